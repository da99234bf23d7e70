"""Which Value: the native one where it is built, else the Python one; `CHAINRULE_ENGINE` decides otherwise."""

from __future__ import annotations

import copyreg
import os
import zlib
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from chainrule import ops
from chainrule.core.display import shown

__all__ = ["ENGINE", "Value", "decide_equality", "observe", "record", "watch"]

REBUILD = "build it with `pip install .` on a machine with a C compiler (`make build` in a checkout)"


def _native() -> ModuleType:
    module = import_module("chainrule._native")
    with open(ops.__file__, "rb") as file:
        checksum = zlib.crc32(file.read())
    if checksum != module.TABLE_CHECKSUM:
        raise ImportError(f"the native engine was built from another op table than {ops.__file__}: rebuild; {REBUILD}")
    return module


def _choose(request: str) -> tuple[str, ModuleType]:
    if request not in ("", "python", "native"):
        raise ImportError(f"`CHAINRULE_ENGINE` must be 'python' or 'native', got {request!r}")
    if request != "python":
        try:
            return "native", _native()
        except ModuleNotFoundError:
            if request == "native":
                raise ImportError(f"CHAINRULE_ENGINE=native, but the native engine is not built: {REBUILD}") from None
    return "python", import_module("chainrule.engine")


ENGINE, _module = _choose(os.environ.get("CHAINRULE_ENGINE", ""))

if TYPE_CHECKING:
    from chainrule.core.node import decide_equality, observe, record, watch
    from chainrule.engine import Value
else:
    Value, _hooks = _module.Value, _module if ENGINE == "native" else import_module("chainrule.core.node")
    decide_equality, observe, record, watch = _hooks.decide_equality, _hooks.observe, _hooks.record, _hooks.watch
    if ENGINE == "native":
        ops.Op.__call__ = _module.call_op  # the same in C; what is neither a float nor a Value goes to the old one


setattr(Value, "_repr_svg_", shown("svg_of_value"))  # noqa: B010  # of whichever engine it is


def _reduced(value: Value) -> tuple[Any, ...]:
    """For pickles, which do not name the engine that wrote them: they become Values of the one that reads them."""
    return _blank, (), value.__reduce__()[2]


def _blank() -> Value:
    return Value.__new__(Value)


copyreg.pickle(Value, _reduced)
