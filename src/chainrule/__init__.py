"""chainrule: a scalar-valued autograd engine. Write scalars, see every step, run at machine speed.

>>> a, b = Value(2.0), Value(-3.0)
>>> loss = tanh(a * b) + a**2
>>> loss.backward()
>>> f"{a.grad:.4f}"
'3.9999'
"""

import builtins
from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainrule import ops
from chainrule.core import display
from chainrule.core.recording import detach, no_grad
from chainrule.core.value import ENGINE, Value
from chainrule.functions import dot, logsumexp, mean, op, softmax

if TYPE_CHECKING:
    from chainrule import data, losses, nn, optim, plot, training
    from chainrule._signatures import *
    from chainrule.compiler import compile
    from chainrule.debug.anomalies import AnomalyError, detect_anomaly
    from chainrule.debug.gradient_check import gradcheck
    from chainrule.debug.supervisor import supervise
    from chainrule.debug.trial import diagnose
    from chainrule.drawing import draw
    from chainrule.files import load, save
    from chainrule.objectives import objective
    from chainrule.stepping.steps import stepper
    from chainrule.training import fit
    from chainrule.transforms import (
        elementwise_grad,
        grad,
        grad_of,
        hessian,
        hvp,
        jacobian,
        jvp,
        value_and_grad,
        vjp,
        vmap,
    )

__version__ = "0.1.0"

globals().update(ops.TABLE)  # every row of the op table is a function: chainrule.exp, chainrule.tanh, ...

# Imported when first used, so that `import chainrule` stays light: name -> module, and the attribute in it if any.
_LATER = {
    "AnomalyError": ("debug.anomalies", "AnomalyError"),
    "compile": ("compiler", "compile"),
    "data": ("data", ""),
    "detect_anomaly": ("debug.anomalies", "detect_anomaly"),
    "diagnose": ("debug.trial", "diagnose"),
    "draw": ("drawing", "draw"),
    "elementwise_grad": ("transforms", "elementwise_grad"),
    "fit": ("training", "fit"),
    "grad": ("transforms", "grad"),
    "grad_of": ("transforms", "grad_of"),
    "gradcheck": ("debug.gradient_check", "gradcheck"),
    "hessian": ("transforms", "hessian"),
    "hvp": ("transforms", "hvp"),
    "jacobian": ("transforms", "jacobian"),
    "jvp": ("transforms", "jvp"),
    "load": ("files", "load"),
    "losses": ("losses", ""),
    "nn": ("nn", ""),
    "objective": ("objectives", "objective"),
    "optim": ("optim", ""),
    "plot": ("plot", ""),
    "save": ("files", "save"),
    "stepper": ("stepping.steps", "stepper"),
    "supervise": ("debug.supervisor", "supervise"),
    "training": ("training", ""),
    "value_and_grad": ("transforms", "value_and_grad"),
    "vjp": ("transforms", "vjp"),
    "vmap": ("transforms", "vmap"),
}

__all__ = [
    "ENGINE",
    "AnomalyError",
    "Value",
    "compile",
    "data",
    "detach",
    "detect_anomaly",
    "diagnose",
    "dot",
    "draw",
    "elementwise_grad",
    "fit",
    "grad",
    "grad_of",
    "gradcheck",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "load",
    "logsumexp",
    "losses",
    "mean",
    "nn",
    "no_grad",
    "objective",
    "op",
    "optim",
    "plot",
    "save",
    "softmax",
    "stepper",
    "supervise",
    "training",
    "value_and_grad",
    "vjp",
    "vmap",
]
__all__ += list(ops.TABLE)
__all__ = [name for name in __all__ if not hasattr(builtins, name)]  # `import *` must not hide Python's abs and pow


display.register(lambda name: getattr(import_module("chainrule.drawing.notebook"), name))


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'chainrule' has no attribute {name!r}")
    module_name, attribute = _LATER[name]
    module = import_module(f"chainrule.{module_name}")
    globals()[name] = getattr(module, attribute) if attribute else module
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
