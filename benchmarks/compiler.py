"""The compiler against its peers: `python benchmarks/compiler.py` prints a table and writes it to compiler.md.

Its first part goes into the README too. Every contestant trains the same networks on the same points from the same
parameters, on one core unless said otherwise. With `--quick`, a short run that only prints.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from large_losses import LARGE_LOSSES, LargeLoss
from problems import FOUR_POINTS, MOONS, Problem, many_moons
from races import Entry, Race
from timing import Report, figure, machine, markdown_table, versions

RESULTS = Path(__file__).with_name("compiler.md")
README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- benchmarks/compiler.py writes from here -->", "<!-- to here -->"

EPOCHS = 100_000  # of a whole fit
QUIET = 0.5  # processes that may have been running beside us
OURS = "chainrule"
COLUMNS = {
    "micrograd": "micrograd",
    "micrograd, managed": "micrograd, managed",
    "PyTorch": "PyTorch eager",
    "torch.compile": "torch.compile",
    "CasADi": "CasADi → C",
    "JAX": "JAX jit, whole training",
    "numba": "numba by hand",
    "C": "plain C by hand",
    "tuned C": "C tuned by hand",
    OURS: "**chainrule**",
}
CAPTION = (
    "Contestants take turns in one process, pinned to one core; best and median of the turns; '× ours' compares best "
    "times: above 1, ours is faster; less than 1.5 × either way is a tie. Double precision unless said. Every turn of "
    "training begins at the same parameters. Before timing, all agreed with ours on the losses of steps 1, 2 and 5, or "
    "on loss and gradient, to 1e-12 (float32: 1e-5). A step is loss, gradient and update; compiling is not in it, but "
    "below. micrograd is its algorithm, written anew, with Python's collector as it is by default; 'managed': "
    "collector off, and one collection a step, timed. PyTorch, JAX, numba and C are given the tensors, and micrograd, "
    "CasADi and chainrule scalars. CasADi's C is one function for four points, and called point by point for more. "
    "chainrule's step is what `fit(..., compiled=True)` runs, and its gradient of many examples `program.batch`. Plain "
    "C is loops with `gcc -O3 -march=native`; tuned C is written in the processor's vectors, numba with `fastmath`."
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer turns, a smaller batch, and nothing is written")
    quick = options.parse_args().quick
    others = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    rounds, patience = (5, 0.5) if quick else (101, 5.0)
    one_thread()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"  # so that compiling is measured, not a cache
        races = plan(Path(folder), 10_000 if quick else 100_000)
        for race in races.values():
            race.run(rounds, patience)
    opening = summary(races, others)
    report = Report("Compiler benchmark" + (" (quick)" if quick else ""), CAPTION, notes(races), opening=[*opening, ""])
    for race in races.values():
        report.add(f"{race.name}: {race.unit}", race.times, OURS)
    print("\n".join(opening))
    report.show()
    if not quick:
        RESULTS.write_text(report.markdown())
        write_between(README, opening)


def one_thread() -> None:
    """For the peers, which read this when they are first imported, in a race."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"), "1")
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"


# Who takes part.


def plan(folder: Path, examples: int) -> dict[str, Race]:
    races = {}
    for key, problem, steps in (("four points", FOUR_POINTS, 5000), ("moons", MOONS, 1000)):
        name = f"{key} ({len(problem.start)} parameters, {len(problem.x)} points)"
        races[key] = Race(name, "µs a step", trainers(problem, steps, folder), losses_of_some_steps)
    many = many_moons(examples)
    races["batch"] = Race(f"{many.name}, moons net", "ms a gradient", gradients(many, folder), lambda run: run())
    for large in LARGE_LOSSES:
        races[large.name] = Race(large.name, "µs a gradient", large_gradients(large), lambda run: run())
    return races


def losses_of_some_steps(train: Callable[[int], float]) -> list[float]:
    return [train(steps) for steps in (1, 2, 5)]


def trainers(problem: Problem, steps: int, folder: Path) -> dict[str, Entry]:
    few, once = steps // 25, 1 if len(problem.x) > 10 else 20
    entries = {
        OURS: Entry("compiled", lambda peer: peer.Fit(problem), steps),
        "chainrule, program() from Python": Entry(
            "compiled", lambda peer: peer.Call(problem), steps // 5, timed=lambda run, count: run.repeat(count)
        ),
        "C": Entry("c_by_hand", lambda peer: peer.plain(folder).training(problem), steps),
        "tuned C": Entry("c_by_hand", lambda peer: peer.tuned(folder).training(problem), steps),
        "numba": Entry("numba_loops", lambda peer: peer.training(problem), steps),
        "JAX": Entry("jax_jit", lambda peer: peer.training(problem), steps),
        "CasADi": Entry("casadi_c", lambda peer: peer.Casadi(folder).training(problem), steps),
        "torch.compile": Entry("pytorch", lambda peer: peer.training(problem, compiled=True), few),
        "PyTorch": Entry("pytorch", lambda peer: peer.training(problem), few),
        "chainrule, eager": Entry("scalars", lambda peer: peer.training(problem, peer.CHAINRULE), once),
        "micrograd, managed": Entry(
            "scalars", lambda peer: peer.training(problem, peer.MICROGRAD, managed=True), once, managed=True
        ),
        "micrograd": Entry("scalars", lambda peer: peer.training(problem, peer.MICROGRAD), once, warm=True),
    }
    if problem.tanh:
        del entries["tuned C"]  # it is written for the network of the moons
    return entries


def gradients(problem: Problem, folder: Path) -> dict[str, Entry]:
    def entry(module: str, prepare: Callable[[Any], Any], **options: Any) -> Entry:
        return Entry(module, prepare, timed=lambda run, count: run(), **options)

    def ours(**options: Any) -> Callable[[Any], Any]:
        return lambda peer: peer.gradient(problem, **options)

    return {
        OURS: entry("compiled", ours()),
        "chainrule, 2 threads": entry("compiled", ours(threads=2), cores=2),
        "chainrule, float32": entry("compiled", ours(dtype="float32"), tolerance=1e-5),
        "chainrule, float32, 2 threads": entry("compiled", ours(threads=2, dtype="float32"), tolerance=1e-5, cores=2),
        "C": entry("c_by_hand", lambda peer: peer.plain(folder).gradient(problem)),
        "tuned C": entry("c_by_hand", lambda peer: peer.tuned(folder).gradient(problem)),
        "numba": entry("numba_loops", lambda peer: peer.gradient(problem)),
        "JAX": entry("jax_jit", lambda peer: peer.gradient(problem)),
        "CasADi": entry("casadi_c", lambda peer: peer.Casadi(folder).gradient(problem)),
        "torch.compile": entry("pytorch", lambda peer: peer.gradient(problem, compiled=True)),
        "PyTorch": entry("pytorch", lambda peer: peer.gradient(problem)),
    }


def large_gradients(large: LargeLoss) -> dict[str, Entry]:
    def repeat(run: Any, count: int) -> None:
        run.repeat(count)

    return {
        OURS: Entry("compiled", lambda peer: peer.Gradient(large), 20, repeat),
        "chainrule, eager": Entry("scalars", lambda peer: peer.Gradient(large, peer.CHAINRULE), 1, repeat),
        "microgpt's Value, eager": Entry("scalars", lambda peer: peer.Gradient(large, peer.MICROGPT), 1, repeat),
    }


# What is said about it.


def summary(races: Mapping[str, Race], others: float) -> list[str]:
    """Lines of markdown: the table with a column for each contestant, and what it does not say.

    `others` is the load of the machine before the run.
    """
    rows = [races[key] for key in ("four points", "moons", "batch")]
    cells = [[f"{race.name}: {race.unit}", *(cell(race, name) for name in COLUMNS)] for race in rows]
    lines = markdown_table(["", *COLUMNS.values()], cells)
    said = facts(races)
    if others > QUIET:
        said.append(
            f"**Measured on a busy machine** (a load of {others:.1f} before the run): slow contestants, which have few "
            "turns, look slower than they are, and two threads had no two cores to themselves."
        )
    return [*lines, "", *(line for fact in said for line in _item(fact))]


def cell(race: Race, name: str) -> str:
    if name in race.times:
        text = figure(race.best(name))
        return f"**{text}**" if name == OURS else text
    return "–" if name in race.left_out else ""


def facts(races: Mapping[str, Race]) -> list[str]:
    moons, batch = races["moons"], races["batch"]
    call = "chainrule, program() from Python"
    program = moons.ready[call].program
    said = [
        f"The whole loss of the moons, {program.stats['scalar nodes']:,} scalar nodes recorded by unchanged "
        f"micrograd-style code, compiles in {moons.ready[call].seconds:.2f} s. A step inside `fit` is then "
        f"{times(moons.ratio('micrograd', OURS))} as fast as micrograd's with Python's collector as it is, "
        f"{times(moons.ratio('micrograd, managed', OURS))} as fast as with a managed one, and "
        f"{times(moons.ratio('C', OURS))} as fast as plain C by hand.",
        f"One `program()` from Python, which reads the data of {len(MOONS.start)} Values and adds to their gradients, "
        f"takes {figure(moons.best(call))} µs: {times(moons.ratio(call, OURS))} such a step.",
    ]
    faster = {
        "2 threads": "chainrule, 2 threads",
        'one with `dtype="float32"`': "chainrule, float32",
        "2 with float32": "chainrule, float32, 2 threads",
    }
    parts = [
        f"{figure(batch.best(name))} ms on {text} ({times(batch.ratio(OURS, name))} as fast)"
        for text, name in faster.items()
        if name in batch.times
    ]
    said.append(f"{batch.name}, of which the table has one thread: {', '.join(parts)}.")
    for large in LARGE_LOSSES:
        race = races[large.name]
        ours, eager = race.ready[OURS], "microgpt's Value, eager"
        said.append(
            f"{large.name}, softmax cross-entropy, {len(ours.parameters):,} parameters, "
            f"{ours.program.stats['scalar nodes']:,} scalar nodes forward: compiled in {ours.seconds:.2f} s; loss and "
            f"gradient take {figure(race.best(OURS))} µs, and from the same code on a Value as microgpt's "
            f"{figure(race.best(eager))} µs ({times(race.ratio(eager, OURS))})."
        )
    said.append(f"{machine()}; {versions('llvmlite', 'torch', 'jax', 'numba', 'casadi')}; gcc {gcc_version()}.")
    return said


def notes(races: Mapping[str, Race]) -> list[str]:
    """Whole runs of `fit`, seconds before the first step, and who was left out."""
    lines = []
    for key in ("four points", "moons"):
        seconds = races[key].ready[OURS].whole(EPOCHS)
        lines.append(f"{races[key].name}: `fit` itself, {EPOCHS:,} epochs and compiling, took {seconds:.2f} s.")
    for race in races.values():
        seconds = ", ".join(f"{name} {race.seconds[name]:.2f}" for name in race.ready)
        lines.append(f"{race.name}, seconds to build, compile and run for the first time, imports aside: {seconds}.")
    for race in races.values():
        lines += [f"Left out of {race.name}: {name} ({reason})." for name, reason in race.left_out.items()]
    return lines


def times(ratio: float) -> str:
    return "–" if math.isnan(ratio) else f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.2f} ×"


def _item(text: str) -> list[str]:
    return textwrap.wrap(text, 140, initial_indent="- ", subsequent_indent="  ", break_long_words=False)


def gcc_version() -> str:
    try:
        return subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    except OSError:
        return "not found"


def write_between(page: Path, lines: list[str]) -> None:
    """Replace what stands between the two marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{page.name} must have the lines {BEGIN!r} and {END!r}, between which the table goes")
    page.write_text("\n".join([before + BEGIN, *lines, mark + after]))


if __name__ == "__main__":
    main()
