"""microgpt in many ways: a GPT of 4,192 parameters learns names, one a step or many; microseconds a name.

    python benchmarks/microgpt.py                    # a table in markdown
    python benchmarks/microgpt.py --quick            # fewer turns, no memory
    python benchmarks/microgpt.py --names FILE       # other names

Everybody starts from the same parameters and takes the same steps of Adam; before timing, all must agree with ours on
loss and gradient of a name and on the losses of five steps. `measure` gives the rows to other programs.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from compiler import one_thread
from large_losses import POSITIONS
from races import Entry, Race
from timing import figure, machine, markdown_table, versions

HERE = Path(__file__).parent
PEERS = HERE / "peers"
SHARED = HERE.parent.parent / "shared" / "data" / "names.txt"  # 32,033 names, where there is such a folder
OWN = HERE.parent / "examples" / "names.txt"
FIVE = ["emma", "olivia", "maximilianjames", "jo", "ava"]
BATCH = 512
HAND, SINGLE = 1e-10, 1e-4  # how far from ours numbers may be: by hand, and in single precision


@dataclass(frozen=True)
class Row:
    """One contestant: its best time, what is to be known about it, the lines that its user wrote, peak memory."""

    name: str
    microseconds: float  # a name
    note: str
    lines: int
    megabytes: float  # of a process that does nothing else, imports included; not a number if not measured


@dataclass(frozen=True)
class Contestant:
    entry: Entry  # `count` is in names
    note: str
    sources: tuple[tuple[Path, tuple[str, ...]], ...]  # what its user wrote: files, and names in them unless it is all


def measure(names: list[str] | None = None, quick: bool = False) -> list[Row]:
    """A row for each contestant that is installed and agrees; the first is our compiled one."""
    one_thread()
    race = _race(names or read_names(), quick)
    rows = []
    for name, contestant in CONTESTANTS.items():
        if name in race.times:
            megabytes = float("nan") if quick else _peak_memory(name)
            rows.append(Row(name, race.best(name), contestant.note, lines_of(contestant), megabytes))
    for name, reason in race.left_out.items():
        print(f"left out: {name} ({reason})", file=sys.stderr)
    return rows


def read_names(path: Path | None = None) -> list[str]:
    """All names of a file, in random order."""
    path = path or (SHARED if SHARED.exists() else OWN)
    words = path.read_text(encoding="utf-8").lower().split()
    names = [word for word in words if word.isascii() and word.isalpha() and len(word) < POSITIONS]
    return random.Random(42).sample(names, len(names))


def _race(names: list[str], quick: bool) -> Race:
    supply = cycle(names)

    def train(run: Any, count: int) -> None:
        run.train(list(islice(supply, count)))

    entries = {name: replace(contestant.entry, timed=train) for name, contestant in CONTESTANTS.items()}
    race = Race("microgpt", "µs a name", entries, _check)
    race.run(*((3, 1.0) if quick else (40, 8.0)))
    return race


def _check(run: Any) -> list[Any]:
    loss, gradient = run.loss_and_gradient(FIVE[0])
    losses = [run.train([name])[0] for name in FIVE]
    return [loss, gradient, losses]


# What is said about each.


def lines_of(contestant: Contestant) -> int:
    """Lines of code that are its user's, without comments, docstrings and empty ones."""
    return sum(_lines(path, names) for path, names in contestant.sources)


def _lines(path: Path, names: tuple[str, ...]) -> int:
    """Of these functions and classes, or of the whole file."""
    text = path.read_text()
    if path.suffix == ".c":
        return sum(bool(line.strip()) for line in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines())
    parts = [part for part in ast.parse(text).body if not names or getattr(part, "name", "") in names]
    return len({line for part in parts for line in _code(part)})


def _code(part: ast.AST) -> Iterator[int]:
    """The lines on which something begins that is not a docstring."""
    if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
        return
    if hasattr(part, "lineno"):
        yield part.lineno
    for child in ast.iter_child_nodes(part):
        yield from _code(child)


def _peak_memory(name: str) -> float:
    command = [sys.executable, __file__, "--memory", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _own_peak(name: str) -> float:
    """After a turn in this process, in megabytes. (`ru_maxrss` would be that of the parent, if that was larger.)"""
    entry = CONTESTANTS[name].entry
    run = entry.prepare(import_module(f"peers.{entry.module}"))
    run.train(list(islice(cycle(read_names()), entry.count)))
    status = Path("/proc/self/status").read_text()  # Linux
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


# Who takes part.


MODEL = ("name", "_next_token", "_attention", "_dot", "_product", "_plus", "_normalised", "_softmax", "tokens_of")
SCRIPT = ((HERE / "large_losses.py", MODEL), (PEERS / "gpt_scalars.py", ("Script",)))
EXAMPLE = ("GPT", "attention", "row", "product", "plus", "normalised", "example", "padded", "Trainer")


def _ours(mode: str, note: str, count: int, **options: Any) -> Contestant:
    cores, tolerance = options.get("threads", 1), SINGLE if options.get("dtype") == "float32" else 1e-12
    entry = Entry("gpt_chainrule", lambda peer: peer.Trainer(mode, **options), count, tolerance=tolerance, cores=cores)
    return Contestant(entry, note, ((HERE.parent / "examples" / "microgpt.py", (*EXAMPLE, mode.title())),))


def _script(value: str, note: str, count: int, managed: bool = False) -> Contestant:
    entry = Entry("gpt_scalars", lambda peer: peer.Script(getattr(peer, value)), count, tolerance=HAND, managed=managed)
    return Contestant(entry, note, SCRIPT)


def _by_hand(module: str, prepare: Callable[[Any], Any], note: str, count: int, **options: Any) -> Contestant:
    """One whose module is all that its user wrote."""
    options = {"tolerance": HAND, **options}
    return Contestant(Entry(module, prepare, count, **options), note, ((PEERS / f"{module}.py", ()),))


PLAIN, ADAM = "plain scalar code, Adam by hand", "plain scalar code, `optim.Adam`"
CONTESTANTS = {
    "chainrule, compiled": _ours("compiled", "examples/microgpt.py, one name a step", 200),
    "chainrule, compiled, float32": _ours("compiled", "the same in single precision", 200, dtype="float32"),
    "chainrule, batched": _ours("batched", f"{BATCH} names a step, one thread", 2 * BATCH, size=BATCH, threads=1),
    "chainrule, batched, 2 threads": _ours("batched", "the same on two cores", 2 * BATCH, size=BATCH, threads=2),
    "chainrule, batched, float32": _ours(
        "batched", "one thread, single precision", 4 * BATCH, size=BATCH, threads=1, dtype="float32"
    ),
    "chainrule, batched, float32, 2 threads": _ours(
        "batched", "two cores, single precision", 4 * BATCH, size=BATCH, threads=2, dtype="float32"
    ),
    "chainrule, eager": _ours("eager", "examples/microgpt.py on Values", 5),
    "chainrule, eager, plain script": Contestant(
        Entry("gpt_scalars", lambda peer: peer.WithOptimizer(), 5, tolerance=HAND), ADAM, SCRIPT
    ),
    "chainrule, eager, Python engine": _script("PYTHON", PLAIN, 1),
    "microgpt's Value": _script("MICROGPT", f"slots, collector as by default; {PLAIN}", 2),
    "microgpt's Value, collector off": _script("MICROGPT", "slots, no collection at all", 2, managed=True),
    "C by hand": Contestant(
        Entry("gpt_c", lambda peer: peer.C(), 200, tolerance=HAND),
        "gcc -O3 -march=native, double precision",
        ((PEERS / "gpt_c.py", ()), (PEERS / "gpt.c", ())),
    ),
    "JAX scan": _by_hand("gpt_jax", lambda peer: peer.Jax(), "padded to 16, double precision", 200),
    "JAX scan, float32": _by_hand(
        "gpt_jax", lambda peer: peer.Jax("float32"), "padded to 16, single precision", 200, tolerance=SINGLE
    ),
    "NumPy by hand": _by_hand("gpt_numpy", lambda peer: peer.Numpy(), "gradient by hand", 50),
    "PyTorch": _by_hand("gpt_torch", lambda peer: peer.Torch(), "tensors, autograd, `torch.optim.Adam`", 20),
}


def table(rows: list[Row]) -> list[str]:
    """Lines of markdown."""
    cells = [
        (row.name, figure(row.microseconds), str(row.lines), _memory(row.megabytes), row.note)
        for row in sorted(rows, key=lambda row: row.microseconds)
    ]
    return markdown_table(("", "µs a name", "lines", "MB", ""), cells)


def _memory(megabytes: float) -> str:
    return "" if megabytes != megabytes else f"{megabytes:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer turns, and no measurement of memory")
    parser.add_argument("--names", type=Path, help="a text file with names")
    parser.add_argument("--memory", metavar="NAME", help="print the peak memory of one contestant, and nothing else")
    options = parser.parse_args()
    if options.memory:
        print(_own_peak(options.memory))
        return
    rows = measure(read_names(options.names), options.quick)
    print("\n".join(table(rows)))
    print(f"\n{machine()}; {versions('llvmlite', 'torch', 'jax', 'numpy')}.")


if __name__ == "__main__":
    main()
