"""Tries an installed chainrule: derivatives, training, and whatever else its dependencies allow here.

    python tools/try_installed.py --install    installs the dependencies that have wheels for this Python
    python tools/try_installed.py --course     also demands the native engine and the built course, as releases have

Needs the standard library alone. What cannot be tried is named.
"""

import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import requires

import chainrule
from chainrule import Value, data, fit, losses, nn
from chainrule.learn.server import site_folder


def install() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PIP_NO_DEPS"}
    pip = [sys.executable, "-m", "pip", "install", "-q", "--only-binary", ":all:"]
    for requirement in requires("chainrule") or []:
        if "extra ==" not in requirement and subprocess.run([*pip, requirement], env=environment).returncode:
            print(f"cannot be had here: {requirement}")


def differentiate() -> None:
    x, y = Value(2.0), Value(-3.0)
    (x * y + x.tanh()).backward()
    assert abs(x.grad - (-3.0 + 1.0 - x.tanh().data ** 2)) < 1e-15
    assert y.grad == 2.0


def train() -> None:
    model = nn.MLP(2, [4, 1], rng=0)
    history = fit(model, losses.hinge, data.moons(n=20), epochs=5, progress=False, compiled=False)
    assert history.loss[-1] < history.loss[0], history.loss


def compile() -> None:
    function = chainrule.compile(lambda x, y: x * y + x.tanh())
    x, y = Value(0.5), Value(2.0)
    expected = x * y + x.tanh()
    assert abs(float(function(0.5, 2.0)) - expected.data) < 1e-15


def draw() -> None:
    x = Value(2.0, label="x")
    assert "<svg" in chainrule.draw(x * x).svg


def course() -> None:
    assert chainrule.ENGINE == "native", "the native engine is missing"
    assert (site_folder() / "main.js").is_file()


NEEDS: dict[Callable[[], None], list[str]] = {
    differentiate: [],
    train: [],
    compile: ["numpy", "llvmlite"],
    draw: ["pygraphviz"],
}

if __name__ == "__main__":
    if "--install" in sys.argv:
        sys.exit(install())
    print(f"Python {platform.python_version()}, {platform.machine()}, the {chainrule.ENGINE} engine")
    for check, packages in (NEEDS | ({course: []} if "--course" in sys.argv else {})).items():
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if not missing:
            check()
        print(f"{check.__name__}: {'not tried, for want of ' + ', '.join(missing) if missing else 'works'}")
