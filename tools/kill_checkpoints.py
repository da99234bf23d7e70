"""Kill a training run with SIGKILL at random moments, again and again, and see what its checkpoint is worth.

After each kill the file must be readable and hold all steps but those of one interval at most; the next process resumes
from it. In the end the run must have come to the numbers of one that was never disturbed, to the last bit.

    python tools/kill_checkpoints.py --kills 200
"""

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import safetensors.numpy  # noqa: F401  # loaded before the run, so that the first write is as quick as the others

from chainrule import data, fit, losses, nn, optim
from chainrule.training import checkpoints

EVERY = 3  # steps
STEPS = 100  # that a process takes at most, for it is to be killed before it has done all


def train(path: str, kills: int, report: str = "") -> list[float]:
    """A run of batches; with `report`, a file that is told of each step, it waits for its end after some of them."""
    model = nn.MLP(2, [8, 1], activation="tanh", rng=1)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    handle = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if report else None

    left = itertools.count(STEPS - 1, -1)

    def loss(predictions: list, targets: list) -> object:
        if handle is not None:
            os.write(handle, f"{optimizer.steps}\n".encode())
            if not next(left):
                signal.pause()
        return losses.hinge(predictions, targets)

    history = fit(
        model,
        loss,
        data.moons(n=20, seed=1),
        optimizer=optimizer,
        epochs=STEPS // 4 * kills,
        batch_size=5,
        rng=7,
        compiled=False,
        progress=False,
        checkpoint=path,
        every=EVERY,
        resume=True,
    )
    return [*history.loss, *model.state().values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder")
    parser.add_argument("--clumsy", action="store_true", help="write in place, to see that it is noticed")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.clumsy:
        checkpoints.write_whole = write_clumsily
    if options.child:
        train(options.child[0], options.kills, options.child[1])
        return 0
    folder = tempfile.mkdtemp(dir=options.folder)
    try:
        return torment(folder, options.kills, random.Random(options.seed), ["--clumsy"] if options.clumsy else [])
    finally:
        shutil.rmtree(folder)


def write_clumsily(path: str, content: bytes) -> None:
    """In place, piece by piece: the planted fault."""
    with open(path, "wb", buffering=0) as file:
        for k in range(0, len(content), 1000):
            file.write(content[k : k + 1000])
            time.sleep(0.0005)


def torment(folder: str, kills: int, rng: random.Random, way: list[str]) -> int:
    path, report = os.path.join(folder, "run.safetensors"), os.path.join(folder, "steps")
    early = lost_most = writing = 0
    command = [sys.executable, __file__, "--kills", str(kills), *way, "--child", path]
    for done in range(1, kills + 1):
        open(report, "w").close()
        child = subprocess.Popen([*command, report])
        kill_in_a_step(child, report, rng)
        if child.returncode != -signal.SIGKILL:
            print(f"kill {done}: the process ended by itself, with exit code {child.returncode}")
            return 1
        taken = int(steps_of(report)[-1])
        writing += any(name.endswith(".part") for name in os.listdir(folder))
        if not os.path.exists(path):
            early += 1
            held = 0
        else:
            try:
                held = checkpoints.read(path).optimizer["steps"]
            except ValueError as error:
                print(f"kill {done}: {error}")
                return 1
        lost_most = max(lost_most, taken - held)
        if taken - held > EVERY:
            print(f"kill {done}: {taken} steps were taken and the checkpoint holds {held}")
            return 1
    subprocess.run([*command, ""], check=True)
    resumed = train(path, kills)
    straight = train(os.path.join(folder, "straight.safetensors"), kills)
    same = resumed == straight
    print(
        f"{kills} kills ({writing} in the middle of a write, {early} before the first "
        f"checkpoint); every file was readable; at most {lost_most} steps were lost, of {EVERY} in an interval; "
        f"{len(straight):,} numbers at the end {'are the same to the last bit' if same else 'DIFFER'}"
    )
    return 0 if same else 1


def kill_in_a_step(child: subprocess.Popen, report: str, rng: random.Random) -> None:
    """In any step, at any moment of it, whether the machine is quick or slow."""
    wanted, began, steps = rng.randint(1, STEPS - 20), 0.0, []
    while len(steps) < wanted and child.poll() is None:
        if not steps:  # it is still importing
            began = time.monotonic()
        time.sleep(0.001)
        steps = steps_of(report)
    time.sleep(rng.random() * (time.monotonic() - began) / wanted)  # a part of what a step takes
    child.kill()
    child.wait()


def steps_of(report: str) -> list[str]:
    with open(report) as lines:
        return lines.read().split()


if __name__ == "__main__":
    raise SystemExit(main())
