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
    from chainrule import data, files, losses, nn, optim, plot, training
    from chainrule._signatures import *
    from chainrule.compiler import compile
    from chainrule.debug.anomalies import AnomalyError, detect_anomaly
    from chainrule.debug.gradient_check import gradcheck
    from chainrule.debug.supervisor import supervise
    from chainrule.debug.trial import diagnose
    from chainrule.drawing import draw
    from chainrule.objectives import objective
    from chainrule.predictor import Predictor, load, save
    from chainrule.stepping.steps import stepper
    from chainrule.training import fit
    from chainrule.transforms import *

__version__ = "0.1.0"

globals().update(ops.TABLE)  # every row of the op table is a function: chainrule.exp, chainrule.tanh, ...

# Imported when first used, so that `import chainrule` stays light: modules, and where functions and classes come from.
_MODULES = {"data", "files", "losses", "nn", "optim", "plot", "training"}
_HOMES = {
    "compiler": "compile",
    "debug.anomalies": "AnomalyError detect_anomaly",
    "debug.gradient_check": "gradcheck",
    "debug.supervisor": "supervise",
    "debug.trial": "diagnose",
    "drawing": "draw",
    "objectives": "objective",
    "predictor": "Predictor load save",
    "stepping.steps": "stepper",
    "training": "fit",
    "transforms": "elementwise_grad grad grad_of hessian hvp jacobian jvp value_and_grad vjp vmap",
}
_LATER = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ENGINE", "AnomalyError", "Predictor", "Value", "compile", "data", "detach", "detect_anomaly", "diagnose", "dot",
    "draw", "elementwise_grad", "files", "fit", "grad", "grad_of", "gradcheck", "hessian", "hvp", "jacobian", "jvp",
    "load", "logsumexp", "losses", "mean", "nn", "no_grad", "objective", "op", "optim", "plot", "save", "softmax",
    "stepper", "supervise", "training", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
__all__ += list(ops.TABLE)
_PUBLIC = __all__
__all__ = [name for name in __all__ if not hasattr(builtins, name)]  # `import *` must not hide Python's abs and pow


display.register(lambda name: getattr(import_module("chainrule.drawing.notebook"), name))


if not TYPE_CHECKING:  # to which every name would be one of them

    def __getattr__(name: str) -> Any:
        if name not in _LATER and name not in _MODULES:
            raise AttributeError(f"module 'chainrule' has no attribute {name!r}")
        module = import_module(f"chainrule.{_LATER.get(name, name)}")
        globals()[name] = module if name in _MODULES else getattr(module, name)
        return globals()[name]


def __dir__() -> list[str]:
    return _PUBLIC
