"""One training run on many devices, in many processes, on one machine or on a cluster.

    python many_machines.py                                   all devices of this machine, one process
    python many_machines.py --processes 4                     a rehearsal: four processes, all on this machine
    srun python many_machines.py --cluster                    a cluster that JAX knows: Slurm, Open MPI, Cloud TPU, ...
    python many_machines.py --coordinator host:port --processes 4 --process 2         by hand, one for each process

Interrupt it, kill a process, and start it again: it goes on from the checkpoint. Needs JAX: `pip install
'chainrule[jax]'`.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys

import jax

import chainrule
from chainrule import data, losses, nn, optim


def train(checkpoint: str, epochs: int) -> None:
    """The same in every process: data and seeds make it so."""
    points = data.spirals(n=600, seed=1)
    model = nn.MLP(2, [16, 16, 1], activation="tanh", rng=1)
    history = chainrule.fit(
        model,
        losses.hinge,
        points,
        optimizer=optim.Adam(model.parameters(), lr=optim.cosine(0.02, 0.001, 6 * epochs)),
        epochs=epochs,
        batch_size=100,
        rng=1,
        metrics=[losses.accuracy],
        checkpoint=checkpoint,
        resume=True,
        mesh="all",
    )
    if jax.process_index() == 0:
        print(f"{history.engine}\nloss {history.loss[-1]:.4f}, accuracy {history['accuracy'][-1]:.1%}")


def rehearse(processes: int, arguments: list[str]) -> int:
    """Start this script in so many processes here; the worst of their exit codes."""
    with socket.socket() as held:  # a port that nobody else is given; process 0 may use it too
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        command = [sys.executable, __file__, *arguments, "--coordinator", address, "--process"]
        started = [subprocess.Popen([*command, str(k)]) for k in range(processes)]
        return max(abs(process.wait()) for process in started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, help="how many there are")
    parser.add_argument("--process", type=int, help="which of them this is, from 0")
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 can be reached")
    parser.add_argument("--cluster", action="store_true", help="ask the cluster for these three")
    parser.add_argument("--checkpoint", default="spirals.safetensors")
    parser.add_argument("--epochs", type=int, default=150)
    options = parser.parse_args()
    if options.processes and options.coordinator is None:
        return rehearse(options.processes, sys.argv[1:])
    if options.cluster or options.coordinator:
        jax.distributed.initialize(options.coordinator, options.processes, options.process)
    train(options.checkpoint, options.epochs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
