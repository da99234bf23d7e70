"""Kill a training run with SIGKILL at random moments, again and again, and see what its checkpoint is worth.

After each kill the file must be readable and hold all steps but those of one interval at most; the next process resumes
from it. In the end the run must have come to the numbers of one that was never disturbed, to the last bit.

    python tools/kill_checkpoints.py --kills 200
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import safetensors.numpy  # noqa: F401  # loaded before the run, so that the first write is as quick as the others

from chainrule import checkpoints, data, fit, losses, nn, optim

EVERY = 3  # steps


def train(path: str, kills: int, report: str = "") -> list[float]:
    """A run of batches; with `report`, a file that is told of each step that was taken."""
    model = nn.MLP(2, [8, 1], activation="tanh", rng=1)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    handle = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if report else None

    def loss(predictions: list, targets: list) -> object:
        if handle is not None:
            os.write(handle, f"{optimizer.steps}\n".encode())
            time.sleep(0.0005)  # else the run would be over before it could be killed often enough
        return losses.hinge(predictions, targets)

    history = fit(
        model,
        loss,
        data.moons(n=20, seed=1),
        optimizer=optimizer,
        epochs=25 * kills,
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
    done, early, lost_most, processes, writing = 0, 0, 0, 0, 0
    command = [sys.executable, __file__, "--kills", str(kills), *way, "--child", path, report]
    while done < kills:
        open(report, "w").close()
        child = subprocess.Popen(command)
        processes += 1
        while os.path.getsize(report) == 0 and child.poll() is None:  # it is still importing
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.3))
        if child.poll() is not None:
            break
        child.send_signal(signal.SIGKILL)
        child.wait()
        done += 1
        with open(report) as lines:
            taken = int(lines.read().split()[-1])
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
    subprocess.run(command, check=True)
    resumed = train(path, kills)
    straight = train(os.path.join(folder, "straight.safetensors"), kills)
    same = resumed == straight
    print(
        f"{done} kills of {processes} processes ({writing} in the middle of a write, {early} before the first "
        f"checkpoint); every file was readable; at most {lost_most} steps were lost, of {EVERY} in an interval; "
        f"{len(straight):,} numbers at the end {'are the same to the last bit' if same else 'DIFFER'}"
    )
    return 0 if same and 2 * done >= kills else 1  # a quick machine finishes the run before the last kills


if __name__ == "__main__":
    raise SystemExit(main())
