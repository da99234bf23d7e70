"""Elementary functions across SIMD lanes, as short programs of arithmetic.

The mathematical library takes one number at a time. A kernel here is a Python function from `Vector` to `Vector`, which
stand for any number of lanes in LLVM's text; `define` runs it once and returns the text of an LLVM function. Constants
come from the format of the numbers (see `formats`). Exp, expm1, tanh, log, log1p, sin and cos are written once for both
formats; the others are for floats, where doubles are slow or the library would need them.

Of 20,000 random doubles, or of every sixteenth float, none has an error over 1.2 ulp in those seven; of every sixteenth
float, or of 50 million pairs, none has one over 1.7 ulp in the others. Zeros, infinities and NaN are as in the library.
That rests on the order of operations, so nothing here carries the flag `reassoc`, and on `fma`, which x86 processors
have had since 2013 (others compute it slowly).
"""

from __future__ import annotations

from functools import cache

from chainrule.compiler.backends.llvm.kernels.arithmetic import fmod, hypot, pow
from chainrule.compiler.backends.llvm.kernels.error_function import erf, erfc
from chainrule.compiler.backends.llvm.kernels.exponential import cosh, exp, exp2, expm1, sinh, tanh
from chainrule.compiler.backends.llvm.kernels.logarithm import acosh, asinh, atanh, log, log1p, log2, log10
from chainrule.compiler.backends.llvm.kernels.steps import Kernel, function
from chainrule.compiler.backends.llvm.kernels.trigonometric import acos, asin, atan, atan2, cos, sin, tan
from chainrule.compiler.backends.llvm.text import DOUBLE, Element, Functions, Table, Text, libm

KERNELS: dict[str, Kernel] = {f.__name__: f for f in (exp, expm1, tanh, log, log1p, sin, cos)}
SINGLE: dict[str, Kernel] = KERNELS | {
    f.__name__: f
    for f in (
        *(exp2, sinh, cosh, log2, log10, asinh, acosh, atanh, tan, asin, acos, atan, atan2, erf, erfc),
        *(pow, hypot, fmod),
    )
}
OF_TWO = {"atan2", "pow", "hypot", "fmod"}
SLOWER_ALONE = {  # for a single lane the library's tables are faster
    "float64": {"exp", "log"},
    "float32": {"log", "exp2", "log2", "log10", "acosh", "pow"},
}


def kernels_for(element: Element) -> dict[str, Kernel]:
    """Those that there are for numbers of this type, by the name of their op."""
    return KERNELS if element is DOUBLE else SINGLE


def symbol(name: str, lanes: int, element: Element = DOUBLE) -> str:
    """The LLVM function of a kernel."""
    return f"@kernel.{name}.{element.suffix(lanes)}"


def pays(name: str, lanes: int, element: Element = DOUBLE, functions: Functions = libm) -> bool:
    """Whether there is a kernel that is faster than the library; than functions other than C's it always is."""
    alone = lanes == 1 and functions is libm
    return name in kernels_for(element) and not (alone and name in SLOWER_ALONE[element.dtype.name])


@cache
def define(
    name: str, lanes: int, element: Element = DOUBLE, functions: Functions = libm, tabled: bool = False
) -> frozenset[str]:
    """The kernel as an LLVM function called `symbol(name, lanes, element)`, and the declarations it needs.

    It is called, not inlined: that costs next to nothing, and the time to compile does not grow with its uses.
    `functions` are those that the kernel itself may call, as in `Text`; if `tabled`, its coefficients are in memory.
    """
    own, count = symbol(name, lanes, element), 2 if name in OF_TWO else 1
    text = Text(element, functions=functions, table=Table(f"{own}.numbers") if tabled else None)
    return function(own, "#0", kernels_for(element)[name], count, text, lanes)
