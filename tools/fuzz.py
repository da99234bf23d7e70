"""Give hostile input to everything that reads files or texts: each must be read, or refused in a sentence.

Inputs and what must hold come from `hostile_files`, `hostile_texts` and `hostile_commands` (tests/support): valid ones
cut, flipped and edited, attacks, and noise. The process may use 2 GB of memory more than it begins with, and a minute
for an input; whatever takes more is a finding too.

    python tools/fuzz.py tables formulas --inputs 100000
"""

import argparse
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from chainrule import data, load, nn
from chainrule.cli.formula_parser import parse
from chainrule.training import checkpoints
from hostile_commands import command_is_done, hostile_commands
from hostile_files import file_is_read, hostile_bytes, run_goes_on, valid_files
from hostile_texts import formula_is_read, hostile_formulas, hostile_tables, table_is_read

GIGABYTE = 1 << 30
BATCH = 2000  # inputs to a run of hypothesis, which remembers what it has tried
MINUTE = 60.0

Reading = tuple[SearchStrategy, list[Callable[[Any], bool]]]  # inputs, and ways of reading one: whether it was read


def models(folder: Path) -> Reading:
    file, table = folder / "file", folder / "table.csv"
    table.write_text("a,b,y\n1,2,p\n3,4,r\n")

    def predict(content: bytes) -> bool:
        file.write_bytes(content)
        return command_is_done(["predict", str(file), str(table)])

    ways = [load, checkpoints.read, lambda path: load(path, nn.MLP(2, [3, 1], rng=0)), run_goes_on]
    reading = [lambda content, way=way: file_is_read(way, file, content) for way in ways]
    return hostile_bytes(valid_files(folder)), [*reading, predict]


def tables(folder: Path) -> Reading:
    file = folder / "file"

    def train(content: bytes) -> bool:
        return command_is_done(["train", str(file), "--steps", "1", "--hidden", "2"])

    return hostile_tables(), [lambda content: table_is_read(data.read_csv, file, content), train]


def formulas(folder: Path) -> Reading:
    return hostile_formulas(), [lambda text: formula_is_read(parse, text)]


def commands(folder: Path) -> Reading:
    return hostile_commands(), [command_is_done]


READERS = {reader.__name__: reader for reader in (models, tables, formulas, commands)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "readers", nargs="*", type=reader, metavar="READER", help=f"of {', '.join(READERS)}; all of them"
    )
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    limit_memory(2 * GIGABYTE)
    for name in options.readers or READERS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {fuzz(READERS[name](Path(folder)), options.inputs, options.seed)}", flush=True)
    return 0


def reader(name: str) -> str:
    if name not in READERS:
        raise argparse.ArgumentTypeError(f"there is no {name!r}: choose from {', '.join(READERS)}")
    return name


def limit_memory(more: int) -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))


def fuzz(reading: Reading, inputs: int, first: int) -> str:
    outcomes: Counter[str] = Counter()
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while outcomes["inputs"] < inputs:
        run_batch(reading, first + outcomes["inputs"], min(BATCH, inputs - outcomes["inputs"]), outcomes)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return (
        f"{outcomes['inputs']:,} inputs, {outcomes['read'] + outcomes['refused']:,} readings in "
        f"{time.perf_counter() - started:.0f} s: {outcomes['refused']:,} refused, {outcomes['read']:,} read; "
        f"memory grew by {grown:.0f} MB at most"
    )


def run_batch(reading: Reading, first: int, count: int, outcomes: Counter[str]) -> None:
    strategy, ways = reading

    @seed(first)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def attempt(content: Any) -> None:
        outcomes["inputs"] += 1
        for way in ways:
            signal.setitimer(signal.ITIMER_REAL, MINUTE)  # the default of its signal ends the process
            outcomes["read" if way(content) else "refused"] += 1
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    attempt()


if __name__ == "__main__":
    raise SystemExit(main())
