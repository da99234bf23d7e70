"""Give hostile files to `load` and to the reader of checkpoints: each must be an object or a ValueError that names it.

Inputs come from `tests/hostile_files.py`: valid files cut, flipped, resized and edited, and noise. The process may use
2 GB of memory more than it begins with; a file that makes it ask for more is a finding too.

    python tools/fuzz_files.py --inputs 100000
"""

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from hypothesis import HealthCheck, Phase, given, seed, settings

from chainrule import checkpoints, data, fit, load, losses, nn, save
from hostile_files import hostile_bytes

GIGABYTE = 1 << 30
BATCH = 2000  # inputs to a run of hypothesis, which remembers what it has tried


def valid_files(folder: Path) -> list[bytes]:
    save(nn.MLP(2, [3, 1], rng=1), folder / "model")
    model = nn.MLP(2, [3, 1], rng=1)
    options = {"metrics": [losses.accuracy], "rng": 1, "progress": False}
    fit(model, losses.mean_square, data.xor(), epochs=3, checkpoint=folder / "run", **options)
    return [(folder / name).read_bytes() for name in ("model", "run")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        contents = valid_files(Path(folder))
        path = Path(folder) / "file"
        limit_memory(2 * GIGABYTE)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        while outcomes["inputs"] < options.inputs:
            fuzz(path, contents, options.seed + outcomes["inputs"], options.inputs - outcomes["inputs"], outcomes)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    readings = outcomes["read"] + outcomes["refused"]
    print(
        f"{outcomes['inputs']:,} inputs, {readings:,} readings in {time.perf_counter() - started:.0f} s: "
        f"{outcomes['refused']:,} refused, {outcomes['read']:,} read; memory grew by {grown:.0f} MB at most"
    )
    return 0


def limit_memory(more: int) -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))


def fuzz(path: Path, contents: list[bytes], first: int, left: int, outcomes: Counter[str]) -> None:
    @seed(first)
    @settings(
        max_examples=min(BATCH, left),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(hostile_bytes(contents))
    def attempt(content: bytes) -> None:
        outcomes["inputs"] += 1
        path.write_bytes(content)
        for reading in (load, checkpoints.read, lambda path: load(path, nn.MLP(2, [3, 1], rng=0))):
            try:
                reading(path)
                outcomes["read"] += 1
            except ValueError as error:
                outcomes["refused"] += 1
                if str(path) not in str(error):
                    raise AssertionError(f"the error does not name the file: {error}") from error

    attempt()


if __name__ == "__main__":
    raise SystemExit(main())
