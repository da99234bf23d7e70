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

REBUILD = "build it with `pip install .` on a machine with a C compiler (`make build` in a checkout)"


def _native() -> ModuleType:
    module = import_module("chainrule._native")
    with open(ops.__file__, "rb") as file:
        checksum = zlib.crc32(file.read())
    if checksum != module.TABLE_CHECKSUM:
        raise ImportError(f"the native engine was built from another op table than {ops.__file__}: rebuild; {REBUILD}")
    return module


def _python() -> ModuleType:
    return import_module("chainrule.engine")


def _choose(request: str) -> tuple[str, ModuleType]:
    if request == "python":
        return "python", _python()
    if request not in ("", "native"):
        raise ImportError(f"`CHAINRULE_ENGINE` must be 'python' or 'native', got {request!r}")
    try:
        return "native", _native()
    except ModuleNotFoundError:
        if request == "native":
            raise ImportError(f"CHAINRULE_ENGINE=native, but the native engine is not built: {REBUILD}") from None
        return "python", _python()


ENGINE, _module = _choose(os.environ.get("CHAINRULE_ENGINE", ""))

if TYPE_CHECKING:
    from chainrule.engine import Value as Value
    from chainrule.engine import decide_equality as decide_equality
    from chainrule.engine import observe as observe
    from chainrule.engine import record as record
    from chainrule.engine import watch as watch
else:
    Value, observe, record, watch = _module.Value, _module.observe, _module.record, _module.watch
    decide_equality = _module.decide_equality
    if ENGINE == "native":
        ops.Op.__call__ = _module.call_op  # the same in C; what is neither a float nor a Value goes to the old one


def _detach(value: Value) -> Value:
    """A leaf with the same number, cut off from what it came from.

    >>> (Value(3.0) * 2.0).detach()._operands
    ()
    """
    from chainrule.core.recording import detach

    return detach(value)  # type: ignore[no-any-return]


setattr(Value, "_repr_svg_", shown("svg_of_value"))  # noqa: B010  # of whichever engine it is
setattr(Value, "detach", _detach)  # noqa: B010


def _reduced(value: Value) -> tuple[Any, ...]:
    """For pickles, which do not name the engine that wrote them: they become Values of the one that reads them."""
    return _blank, (), value.__reduce__()[2]


def _blank() -> Value:
    return Value.__new__(Value)


copyreg.pickle(Value, _reduced)
