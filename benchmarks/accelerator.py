"""Gradients over many examples on a GPU: scalar Python by `backend="cuda"` and through JAX, against JAX by hand.

    python benchmarks/accelerator.py --markdown
    python benchmarks/accelerator.py --rows greeks,ode --turns 50
    python benchmarks/accelerator.py --scale 0.0005 --emulate             # without a GPU, to try this program out

All start from the same numbers, in float32, with the data on the device. Each is first compared with JAX by hand in
float64, on all the data; then they take turns, and a figure is the best of its turns. A turn of `backend="cuda"` ends
when value and gradient are on the host, one of JAX with `block_until_ready`. Matrix products are in float32 proper;
where it says so, with factors rounded to TF32, which is what JAX does on a GPU unless told otherwise. Where there are
several ways to write it in JAX, the fastest counts. Seconds to compile include tracing and a first run.
"""

import argparse
import gc
import importlib.util
import subprocess
import sys
import time
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from accelerator_problems import PROBLEMS
from accelerator_rows import CUDA, HAND, OURS, THROUGH, Gradients, Training

ROWS = (*PROBLEMS, "training")
TOLERANCE, TF32_TOLERANCE = 1e-5, 1e-2  # of a value, relative to it; of a vector, relative to its largest number
LONG = 8.0  # seconds of compiling, after which no further way to write it in JAX is tried


def say(text=""):
    print(text, flush=True)


def contest(row, turns):
    """The contestants with their best times, and whether ours agree with the reference."""
    say(f"\n{row}")
    contestants, fine = prepared(row)
    gc.collect()
    for _ in range(turns):
        for contestant in contestants:
            contestant.take_a_turn()
    for contestant in contestants:
        contestant.best /= row.steps
    unit = "ms" if row.steps == 1 else f"ms a step, of {row.steps} in a turn"
    by_hand = fastest(contestants, HAND)
    for contestant in contestants:
        ratio = f"; {by_hand.best / contestant.best:.2f} × the speed of JAX by hand" if by_hand else ""
        say(f"  {contestant!s:46} {contestant.best:10.4f} {unit}{ratio}")
    return contestants, fine


def prepared(row):
    """The contestants that compile and run, each compared with the reference; and whether ours agree with it."""
    started = time.perf_counter()
    expected = row.reference()
    say(f"  {'to compare with: JAX by hand in float64':46} {time.perf_counter() - started:6.1f} s")
    ready, fine, seconds = [], True, 0.0
    for contestant in row.contestants():
        if contestant.group == HAND and seconds > LONG:
            say(f"  {contestant!s:46} left out, since the one before took long to compile")
            continue
        try:
            contestant.prepare()
            agrees = compared(contestant, expected, row.compared)
            ready.append(contestant)
        except Exception as error:
            say(f"  {contestant!s:46} FAILED: {type(error).__name__}: {str(error)[:300]}")
            traceback.print_exc(file=sys.stdout)
            agrees = False
        fine &= agrees or contestant.group not in OURS
        seconds = contestant.compiled
    return ready, fine


def compared(contestant, expected, what):
    """Print how far the results are from what is expected; whether that is near enough."""
    value, vector = contestant.trial()
    off = abs(value - expected[0]) / abs(expected[0])
    most_off = np.abs(vector - expected[1]).max() / np.abs(expected[1]).max()
    tolerance = TF32_TOLERANCE if contestant.by_tf32 else TOLERANCE
    agrees = bool(off <= tolerance and most_off <= tolerance)
    words = "agrees" if agrees else f"DIFFERS by more than {tolerance:g}"
    if contestant.group == CUDA:
        again = contestant.trial()
        same = (again[0], again[1].tobytes()) == (value, vector.tobytes())
        agrees &= same
        words += f"; two runs are {'equal' if same else 'NOT EQUAL'} to the bit"
    say(f"  {contestant!s:46} {contestant.compiled:6.1f} s; value off by {off:.1e}, {what} by {most_off:.1e}: {words}")
    return agrees


def fastest(contestants, group, tf32=False):
    """The fastest of a group; None if nobody is left of it."""
    own = [c for c in contestants if c.group == group and c.by_tf32 == tf32]
    return min(own, key=lambda c: c.best, default=None)


def tables(results):
    """The results in Markdown: milliseconds, then seconds to compile; those by TF32 in parentheses."""
    lines = ['| ms | JAX by hand | chainrule through JAX | `backend="cuda"` | times as fast as JAX by hand |']
    lines.append("|---|--:|--:|--:|--:|")
    for title, contestants in results.items():
        cells = [cell(contestants, group, lambda c: f"{c.best:.3f}") for group in (HAND, THROUGH, CUDA)]
        ours = fastest(contestants, CUDA)
        cells.append(cell(contestants, HAND, lambda c, ours=ours: f"{c.best / ours.best:.2f}") if ours else "")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", '| s to compile | JAX by hand | chainrule through JAX | `backend="cuda"` |', "|---|--:|--:|--:|"]
    for title, contestants in results.items():
        cells = [cell(contestants, group, lambda c: f"{c.compiled:.1f}") for group in (HAND, THROUGH, CUDA)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    others = [line for title, contestants in results.items() if (line := every_way(title, contestants))]
    return "\n".join([*lines, "", *others])


def every_way(title, contestants):
    """A line with all ways to write a row by hand, if there are several."""
    ways = [f"{c.variant} {c.best:.3f}" for c in contestants if c.group == HAND and not c.by_tf32]
    return f"- {title}, JAX by hand in ms: {'; '.join(ways)}" if len(ways) > 1 else ""


def cell(contestants, group, figure):
    """A figure of a group's fastest, with that by TF32 in parentheses."""
    one, other = fastest(contestants, group), fastest(contestants, group, tf32=True)
    text = figure(one) if one else "–"
    return f"{text} ({figure(other)})" if other else text


def placing(kind, emulate):
    """What brings a NumPy array to the device, as an array that `backend="cuda"` reads where it is."""
    if emulate:
        play_the_gpu()
        return lambda array: array
    if kind == "cupy":
        import cupy

        return cupy.asarray
    if kind == "torch":
        import torch

        return lambda array: torch.from_numpy(array).cuda()
    return jnp.array


def play_the_gpu():
    """Have the host run what is compiled for a GPU."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    import emulated_gpu
    from chainrule.compiler.backends.cuda import runner

    runner.machinery = emulated_gpu.Machinery


def surroundings(options):
    """The device, its driver, and the versions, in a line."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip().replace("\n", "; ")
    except (OSError, subprocess.CalledProcessError):
        gpu = "unknown to nvidia-smi"
    python = ".".join(map(str, sys.version_info[:3]))
    ours = "a GPU that the host plays: its times mean nothing" if options.emulate else f"arrays of {options.arrays}"
    device = f"{jax.devices()[0].device_kind} ({jax.default_backend()})"
    return f"{device}; GPU and driver: {gpu}; JAX {jax.__version__}, Python {python}; cuda: {ours}"


def measured(name, options, on_device):
    """The contestants of a row and whether ours agree; of a row that fails, nobody."""
    try:
        if name == "training":
            row = Training(options.scale, on_device)
        else:
            row = Gradients(PROBLEMS[name], options.scale, on_device, options.more)
        contestants, fine = contest(row, options.turns)
    except Exception:
        say(f"\n{name} FAILED")
        traceback.print_exc(file=sys.stdout)
        return name, [], False
    return str(row), contestants, fine


def options_of(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="some of " + ", ".join(ROWS))
    parser.add_argument("--scale", type=float, default=1.0, help="how many examples, as a multiple of what is usual")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--arrays", choices=["cupy", "torch", "jax"], help="whose arrays ours is given")
    parser.add_argument("--emulate", action="store_true", help="have the host play our GPU")
    parser.add_argument("--more", action="store_true", help="also jax.grad of vmap of to_jax(), and PyTorch (moons)")
    parser.add_argument("--markdown", action="store_true", help="end with tables for the documentation")
    options = parser.parse_args(arguments)
    options.rows = options.rows.split(",")
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    options.arrays = options.arrays or next((n for n in ("cupy", "torch") if importlib.util.find_spec(n)), "jax")
    return options


def main():
    """Measure row by row; the exit status is 1 if one of ours failed or differs."""
    options, started = options_of(), time.perf_counter()
    say(surroundings(options))
    on_device = placing(options.arrays, options.emulate)
    results, fine = {}, True
    for name in options.rows:
        title, contestants, row_is_fine = measured(name, options, on_device)
        fine &= row_is_fine
        results[title] = [drained(contestant) for contestant in contestants]
        gc.collect()
    if options.markdown:
        say("\n" + tables(results))
    say(f"\n{time.perf_counter() - started:.0f} s in all; {'all of ours agree' if fine else 'NOT all of ours agree'}")
    return 0 if fine else 1


def drained(contestant):
    """The contestant without its programs and data, which take the device's memory."""
    contestant.run = contestant.trial = contestant.make = None
    contestant.arguments = ()
    return contestant


if __name__ == "__main__":
    sys.exit(main())
