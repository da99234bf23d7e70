"""Commands about this machine: `bench` and `info`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from typing import Any

import click

import chainrule
from chainrule import data, losses, nn, optim
from chainrule.cli.console import json_option, option, print_json, print_table
from chainrule.core.arguments import counted
from chainrule.core.walk import oldest_first

OPTIONAL = ("matplotlib", "pygraphviz", "jax", "torch")
NEEDED = ("click", "llvmlite", "numpy", "rich", "safetensors")


@click.command()
@option("--seconds", 3.0, "Time to spend on measuring.", click.FloatRange(0.01, 600.0))
@json_option
def bench(seconds: float, as_json: bool) -> None:
    """Measure this machine: micrograd's moons demo, eager and compiled.

    A hundred points, 337 parameters, hinge loss and L2 penalty. Measurements take turns; each time is the best of its
    kind.

    Example: chainrule bench --seconds 1
    """
    from chainrule.compiler.run.steps import CompiledSteps

    points = data.micrograd_moons()
    model = nn.MLP(2, [16, 16, 1], rng=1337)
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    penalty = losses.l2(1e-4)

    def total(inputs: Any) -> Any:
        return losses.hinge([model(x) for x in inputs], points.targets) + penalty(model.parameters())

    def eager_step() -> None:
        loss = total(points.inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    root = total(points.inputs)
    nodes = len(oldest_first(root))
    started = time.perf_counter()
    steps = CompiledSteps(total, points.inputs, optimizer)
    compiling = time.perf_counter() - started
    works = {
        "build the graph": lambda: total(points.inputs),
        "backward": root.backward,
        "training step, eager": eager_step,
        "100 training steps, compiled": lambda: steps.run(100),
    }
    times = _best(works, seconds)
    times["training step, compiled"] = times.pop("100 training steps, compiled") / 100
    if as_json:
        facts = {"engine": chainrule.ENGINE, "cpu": cpu(), "nodes": nodes}
        print_json(facts | {"seconds": times, "seconds to compile": compiling})
        return
    click.echo(f"{counted(nodes, 'node')}, {chainrule.ENGINE} engine, {cpu()}")
    rows = [(what, f"{1e6 * spent:,.1f}", f"{1e9 * spent / nodes:,.2f}") for what, spent in times.items()]
    print_table([("", "µs", "ns per node"), *rows])
    click.echo(f"compiling took {compiling:.2f} s")


@click.command()
@json_option
def info(as_json: bool) -> None:
    """Show versions, the engine in use, the processor, and which optional packages are installed.

    Example: chainrule info --json
    """
    facts = {
        "chainrule": chainrule.__version__,
        "engine": chainrule.ENGINE,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        "cores": os.cpu_count(),
    }
    packages = {name: _version(name) for name in (*NEEDED, *OPTIONAL)}
    if as_json:
        print_json(facts | {"packages": packages})
        return
    rows = [(name, str(fact)) for name, fact in facts.items()]
    rows += [(name, version or "not installed") for name, version in packages.items()]
    width = max(len(name) for name, _ in rows)
    for name, fact in rows:
        click.echo(f"{name.ljust(width)}  {fact}")


def cpu() -> str:
    """The name of the processor, if the system knows it."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _best(works: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The shortest time of each, measured in turns."""
    best, end = dict.fromkeys(works, float("inf")), time.perf_counter() + seconds
    while True:
        for name, work in works.items():
            started = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - started)
        if time.perf_counter() > end:
            return best
