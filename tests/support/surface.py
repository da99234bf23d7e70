"""What users can call: every public name with its signature, a line each, and the command line's options.

`python tests/support/surface.py` prints it; `public_surface.txt` is what it printed last.
"""

import inspect
import re

import chainrule
from chainrule.cli import app

MODULES = (
    "closures",
    "compiler",
    "data",
    "drawing",
    "files",
    "functions",
    "losses",
    "nn",
    "objectives",
    "ops",
    "optim",
    "plot",
    "training",
    "transforms",
    "wasm",
)


def surface():
    lines = list(described("chainrule", chainrule, sorted(chainrule.__all__)))
    for name in MODULES:
        module = __import__(f"chainrule.{name}", fromlist=["*"])
        own = [n for n, thing in vars(module).items() if getattr(thing, "__module__", "").startswith(module.__name__)]
        names = getattr(module, "__all__", None) or [n for n in own if not n.startswith("_")]
        lines += described(module.__name__, module, sorted(names))
    return lines + sorted(commands())


def described(place, holder, names):
    for name in names:
        thing = getattr(holder, name)
        if inspect.ismodule(thing):
            yield f"{place}.{name}: module"
            continue
        yield f"{place}.{name}{signature(thing)}"
        if inspect.isclass(thing):
            for method, member in sorted(vars(thing).items()):
                if not method.startswith("_"):
                    kind = (
                        ": property"
                        if not callable(getattr(member, "__func__", member))
                        else signature(getattr(thing, method))
                    )
                    yield f"{place}.{name}.{method}{kind}"


def signature(thing):
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return "(...)" if callable(thing) else f": {type(thing).__name__}"
    return re.sub(r"<[^>]* at 0x[0-9a-f]+>", "<...>", re.sub(r"\bchainrule\.[\w.]+\.", "", text))


def commands():
    for name, command in app.commands.items():
        for parameter in command.params:
            yield f"$ chainrule {name} {'/'.join(parameter.opts)}"


if __name__ == "__main__":
    print("\n".join(surface()))
