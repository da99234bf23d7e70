"""What the tests of sharding run in processes of their own: `python sharded.py TASK PROCESS PROCESSES PORT FOLDER`.

Each process writes what it found to FOLDER, under its number.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import chainrule
from chainrule import Value, data, losses, nn, optim

EPOCHS, DEADLY_EPOCH = 6, 3
OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=optim.linear(0.2, 0.1, 20), momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=0.02),
}
UNEVEN = 13  # examples: no number of devices here divides it


def batches(sizes, mesh=None, **options):
    """Values, gradients and single results of a loss, for batches of these sizes."""
    model, scale = nn.MLP(2, [5, 3], activation="tanh", rng=1), Value(2.0)
    model.layers[0].neurons[0].w[0].requires_grad = False

    def loss(x, y):
        return losses.cross_entropy([model(x)], [y]) * scale

    f = chainrule.compile(loss, wrt=model.parameters(), **options)
    f = f.shard(mesh) if mesh else f
    found, rng = {}, np.random.default_rng(0)
    for count in sizes:
        x, y = rng.normal(size=(count, 2)), rng.integers(0, 3, count)
        value, gradient = f.batch_value_and_grad(x, y)
        model.zero_grad()
        total = f.batch(x, y, reduce="sum")
        found[f"{count} examples"] = np.array([value, total, *gradient, *(p.grad for p in model.parameters())])
        found[f"{count} results"] = f.batch(x, y, reduce=None)
    return found


def train(optimizer="Adam", loss=losses.hinge, examples=18, callbacks=(), progress=False, **options):
    """The history, the parameters and the optimizer's memory after some epochs, in batches of 9."""
    model = nn.MLP(2, [6, 1], activation="tanh", rng=2)
    model.layers[0].neurons[1].b.requires_grad = False
    steps = OPTIMIZERS[optimizer](model.parameters())
    history = chainrule.fit(
        model,
        loss,
        data.moons(n=examples, seed=1),
        optimizer=steps,
        epochs=EPOCHS,
        batch_size=9,
        penalty=losses.l2(1e-3),
        metrics=[losses.accuracy],
        validation=data.moons(n=9, seed=2),
        callbacks=callbacks,
        progress=progress,
        rng=7,
        **options,
    )
    memory = [number for slot in steps.slots for number in steps.state()[slot]]
    columns = [number for column in history.columns.values() for number in column]
    return np.array([*columns, *model.state().values(), *memory])


def trainings(**options):
    return {name: train(name, **options) for name in OPTIMIZERS}


def small_sum(predictions, targets):
    return 0.05 * losses.sum_of_squares(predictions, targets)


def equality(process, folder):
    """What is the same on any number of processes; and a batch without the sum over devices, as a planted fault."""
    found = batches([UNEVEN], "all", backend="jax") | trainings(mesh="all")
    lax.psum = lambda numbers, axes: numbers
    fault = batches([UNEVEN], "all", backend="jax")[f"{UNEVEN} examples"]
    np.savez(folder / f"{process}.npz", fault=fault, **found)


def devices(process, folder):
    """What is tried on many devices of one process only: other sizes, losses and numbers."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    found = batches([16, UNEVEN, 1], mesh, backend="jax") | {"sum": train("SGD", small_sum, 22, mesh=mesh)}
    single = batches([UNEVEN], mesh, backend="jax", dtype="float32") | {"Adam": train(mesh=mesh, dtype="float32")}
    found |= {f"{name}, float32": numbers for name, numbers in single.items()}
    by_xla = batches([16, UNEVEN, 1], mesh, backend="xla")
    np.savez(folder / "devices.npz", **found, **{f"{name}, by XLA": numbers for name, numbers in by_xla.items()})
    equality(process, folder)


def deadly(process, folder):
    """Train with a checkpoint; the process whose number is in the file `victim` is killed in the middle, once."""
    victim = folder / "victim"

    def strike(training):
        if training.epoch >= DEADLY_EPOCH and victim.exists() and victim.read_text() == str(process):
            victim.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    numbers = train(mesh="all", callbacks=[strike], checkpoint=folder / "run", every=3, resume=True, progress=True)
    np.save(folder / f"{process}.npy", numbers)


def disagreement(process, folder):
    """Another model in every process."""
    chainrule.fit(nn.MLP(2, [1], rng=process), losses.hinge, data.moons(n=4), mesh="all")


def failure(process, folder):
    """An error in one process: the folder for the checkpoint is not there, and process 0 would write it."""
    train(mesh="all", checkpoint=folder / "missing" / "run")


if __name__ == "__main__":
    import jax
    from jax import lax

    task, process, processes, port, folder = sys.argv[1:]
    if int(processes) > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", int(processes), int(process))
    globals()[task](int(process), Path(folder))
