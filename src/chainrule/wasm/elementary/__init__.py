"""The elementary functions, in nothing but the arithmetic of floats: the same results in every browser.

WebAssembly has no exp, log or sin, and the functions of one browser differ from those of the next. The modules here are
compiled to WebAssembly as they stand, so they keep to a small part of Python: floats and pairs of floats, tables, `if`,
`while`, calls of one another, and what `primitives.py` has.

Each family of functions has a core whose result is a pair, a number and a small rest (see `pairs`): `exp_mantissa`,
`log_pair`, `sine`, `angle`, `erfc_over_exp`. A core reduces its argument with a table and goes on with a short
polynomial. What follows the core is a line or two, and the last addition is nearly the only rounding: results are
within 0.6 units in the last place. Tables and fitted coefficients come from tools/fit_elementary.py; coefficients
written as fractions are Taylor's.
"""

from chainrule.wasm.elementary import arithmetic, error_function, exponential, logarithm, pairs, trigonometric
from chainrule.wasm.elementary.arithmetic import fmod, hypot, pow
from chainrule.wasm.elementary.error_function import erf, erfc
from chainrule.wasm.elementary.exponential import cosh, exp, exp2, expm1, sinh, tanh
from chainrule.wasm.elementary.logarithm import acosh, asinh, atanh, log, log1p, log2, log10
from chainrule.wasm.elementary.trigonometric import acos, asin, atan, atan2, cos, sin, tan

FUNCTIONS = (
    *(exp, expm1, exp2, log, log1p, log2, log10, sin, cos, tan, asin, acos, atan, atan2),
    *(sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc, pow, hypot, fmod),
)
MODULES = (pairs, exponential, logarithm, trigonometric, arithmetic, error_function)  # no name has two meanings in them
