"""The engines against their peers: `python benchmarks/engine.py` prints a table and writes it to results.md.

With `--quick`, a short run that only prints.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import memory
from chainrule import nn
from peers import CONTESTANTS, Peer
from timing import Report, Turn, interleave, machine, versions
from workloads import MOONS_LOSS, Moons, mixed_gradient, mixed_graph, mixed_leaves, mixed_size

RESULTS = Path(__file__).with_name("results.md")
NODES = 100_000  # of the mixed graph

CAPTION = (
    "Contestants take turns in one process, on one thread; all garbage is collected between turns, untimed, and "
    "imports are frozen. '× ours' compares best times with the first line: above 1, ours is faster; "
    "less than 1.5 × either way is a tie. "
    "Before a timed backward or step an untimed one runs, so that a collector that lags behind pays what it owes. "
    "Python's collector runs as it does by default, except 'managed': there it is off during a turn, and "
    "one collection frees the graph after backward, timed. "
    "All run the same code; 'chainrule.nn' is the first line with the library's own network. "
    "Before timing, all agreed on every loss and gradient to 1e-9."
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer turns, and no results.md")
    quick = options.parse_args().quick
    rounds, patience, held = (5, 1.0, 200_000) if quick else (25, 6.0, 1_000_000)

    notes = [f"Machine: {machine()}. Peers: {versions('minigrad', 'torch') or 'only those in this repository'}."]
    report = Report("Engine benchmark" + (" (quick)" if quick else ""), CAPTION, notes)
    peers = available(notes)
    ours = next(iter(peers))
    networks = {ours: peers[ours], "chainrule.nn": replace(peers[ours], network=library_network), **peers}
    check_agreement(networks)

    def compare(workload: str, turn: Callable[[Peer], Turn], entrants: Mapping[str, Peer], scale: float) -> None:
        turns = {name: turn(peer) for name, peer in entrants.items()}
        report.add(workload, interleave(turns, rounds, patience, scale), ours)

    per_node = 1e9 / mixed_size(mixed_leaves(peers[ours], NODES))
    compare("mixed graph, build: ns a node", build, peers, per_node)
    compare("… + backward + free: ns a node", gradient, engines(peers), per_node)
    compare("moons, forward and loss: µs", moons_loss, networks, 1e6)
    compare("moons, training step: µs", moons_step, engines(networks), 1e6)
    if memory.STATISTICS.exists():
        holders = [name for name, peer in engines(peers).items() if not peer.managed]
        report.add("memory held: bytes a node", {name: [memory.bytes_a_node(name, held)] for name in holders}, ours)
    report.add("import, over bare Python: ms", {"import chainrule": import_time(rounds)}, ours)

    report.show()
    if not quick:
        RESULTS.write_text(report.markdown())


def available(notes: list[str]) -> dict[str, Peer]:
    """The contestants that are installed; the others go to `notes`."""
    peers = {}
    for name, load in CONTESTANTS.items():
        try:
            peers[name] = load()
        except ImportError as error:
            notes.append(f"Left out, not installed: {name} ({error}).")
    return peers


def engines(peers: Mapping[str, Peer]) -> dict[str, Peer]:
    return {name: peer for name, peer in peers.items() if peer.differentiates}


def library_network() -> nn.MLP:
    return nn.MLP(2, [16, 16, 1], rng=1337)


# What a contestant does in a turn.


def build(peer: Peer) -> Turn:
    return Turn(partial(mixed_graph, peer), partial(mixed_leaves, peer, NODES), collector=not peer.managed)


def gradient(peer: Peer) -> Turn:
    def prepare() -> list[Any]:
        leaves = mixed_leaves(peer, NODES)
        mixed_gradient(peer, leaves)
        return leaves

    return Turn(partial(mixed_gradient, peer), prepare, collector=not peer.managed)


def moons_loss(peer: Peer) -> Turn:
    return Turn(Moons.loss, partial(Moons, peer), collector=not peer.managed)


def moons_step(peer: Peer) -> Turn:
    def prepare() -> Moons:
        moons = Moons(peer)
        moons.step()
        return moons

    return Turn(Moons.step, prepare, collector=not peer.managed)


def import_time(rounds: int) -> list[float]:
    """Milliseconds of `import chainrule` beyond the fastest bare interpreter, the two taking turns."""

    def milliseconds(program: str) -> float:
        start = perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        return 1e3 * (perf_counter() - start)

    pairs = [(milliseconds("pass"), milliseconds("import chainrule")) for _ in range(rounds)]
    bare = min(bare for bare, _ in pairs)
    return [loaded - bare for _, loaded in pairs]


# Agreement comes first: a fast wrong answer is not a result.


def check_agreement(peers: Mapping[str, Peer]) -> None:
    """Every contestant gives the same numbers on every workload, or the benchmark stops."""
    expected: dict[str, list[float]] = {}
    for name, peer in peers.items():
        leaves, moons = mixed_leaves(peer, NODES), Moons(peer)
        agree(name, "moons loss", [number(moons.loss())], [MOONS_LOSS])
        agree(name, "mixed graph", [number(mixed_graph(peer, leaves))], expected.setdefault("mixed", []))
        if peer.differentiates:
            mixed_gradient(peer, leaves)
            moons.step()
            agree(name, "mixed gradient", gradients(leaves), expected.setdefault("mixed gradient", []))
            agree(name, "moons gradient", gradients(moons.parameters), expected.setdefault("moons gradient", []))


def agree(name: str, what: str, numbers: list[float], expected: list[float]) -> None:
    """Compare with `expected`; the first to come fills it in."""
    if not expected:
        expected.extend(numbers)
    for i, (number, other) in enumerate(zip(numbers, expected, strict=True)):
        if not math.isclose(number, other, rel_tol=1e-9, abs_tol=1e-12):
            raise AssertionError(f"{name} disagrees on the {what}: number {i} is {number!r}, expected {other!r}")


def number(result: Any) -> float:
    return float(getattr(result, "data", result))


def gradients(leaves: list[Any]) -> list[float]:
    return [float(leaf.grad) for leaf in leaves]


if __name__ == "__main__":
    main()
