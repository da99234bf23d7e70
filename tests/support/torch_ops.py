"""The op table in PyTorch: the oracle for values and gradients."""

import torch
from torch.nn import functional

FUNCTIONS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "neg": torch.neg,
    "pow": torch.pow,
    "abs": torch.abs,
    "fmod": torch.fmod,
    "mod": torch.remainder,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "rint": torch.round,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "where": lambda c, a, b: torch.where(c != 0, a, b),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "larger": lambda a, b: torch.maximum(a, b).detach(),
    "finite": lambda x: torch.where(torch.isinf(x), torch.zeros_like(x), x).detach(),
    "clip": torch.clamp,
    "sign": torch.sign,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "log": torch.log,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "log10": torch.log10,
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "degrees": torch.rad2deg,
    "radians": torch.deg2rad,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky_relu": functional.prelu,  # the one that takes a tensor as slope
    # functional's elu has a fixed alpha, and no gradient for it
    "elu": lambda x, alpha: torch.where(x <= 0, alpha * torch.expm1(torch.where(x <= 0, x, 0.0)), x),
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),  # functional's turns linear above 20
    "silu": functional.silu,
    "gelu": functional.gelu,
}


def leaf(number):
    return torch.tensor(float(number), dtype=torch.float64, requires_grad=True)


def value_and_grads(name, numbers):
    """The op's value, and its gradient by each operand (0 where it has none)."""
    operands = [leaf(number) for number in numbers]
    out = FUNCTIONS[name](*operands).double()
    if not out.requires_grad:
        return out.item(), [0.0] * len(operands)
    out.backward()
    return out.item(), [0.0 if o.grad is None else o.grad.item() for o in operands]
