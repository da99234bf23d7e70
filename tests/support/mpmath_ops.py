"""The op table in mpmath: the oracle for values and derivatives in as many digits as one likes."""

import mpmath
from mpmath import mp


def trunc(x):
    return mp.floor(x) if x > 0 else mp.ceil(x)


FUNCTIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda x: -x,
    "pow": lambda a, b: a**b,
    "abs": abs,
    "fmod": lambda a, b: a - b * trunc(a / b),
    "mod": lambda a, b: a - b * mp.floor(a / b),
    "floor": mp.floor,
    "ceil": mp.ceil,
    "trunc": trunc,
    "rint": mp.nint,
    "lt": lambda a, b: mp.mpf(a < b),
    "le": lambda a, b: mp.mpf(a <= b),
    "gt": lambda a, b: mp.mpf(a > b),
    "ge": lambda a, b: mp.mpf(a >= b),
    "eq": lambda a, b: mp.mpf(a == b),
    "ne": lambda a, b: mp.mpf(a != b),
    "where": lambda condition, a, b: a if condition else b,
    "maximum": max,
    "minimum": min,
    "larger": max,
    "finite": lambda x: x,
    "clip": lambda x, low, high: min(max(x, low), high),
    "exp2": lambda x: mp.power(2, x),
    "log2": lambda x: mp.log(x, 2),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "relu": lambda x: max(x, mp.mpf(0)),
    "leaky_relu": lambda x, slope: x if x > 0 else slope * x,
    "elu": lambda x, alpha: x if x > 0 else alpha * mp.expm1(x),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "gelu": lambda x: x * mp.ncdf(x),
    **{name: getattr(mpmath, name) for name in ("exp", "expm1", "log", "log1p", "log10", "sqrt", "sign")},
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "hypot")},
    **{name: getattr(mpmath, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc")},
    **{name: getattr(mpmath, name) for name in ("degrees", "radians")},
}
