"""Who takes part: the contestants, in the order in which tables list them. The first is what others are compared to."""

from __future__ import annotations

from typing import Any

from contest import Contestant

OURS, EAGER, BY_LENGTH = "chainrule", "chainrule (eager)", "chainrule (a program for each length)"
OURSELVES, SCALARS, TENSORS, BY_HAND = GROUPS = ("chainrule", "scalars", "tensors", "by hand")
TASKS = ("four_points", "moons", "digits", "greeks")  # folders whose problems are a `Problem`


def compiled(name: str, options: dict[str, Any] | None = None, **rest: Any) -> Contestant:
    return Contestant(name, OURSELVES, "compiled", "scalars.py", options or {}, folders=TASKS, **rest)


def eager(name: str, group: str, value: str, file: str = "scalars.py", **rest: Any) -> Contestant:
    """On one of the classes of `peers.scalars`."""
    options = {"value": value, "managed": rest.get("managed", False)}
    return Contestant(name, group, "scalars", file, options, few=True, **rest)


def names(name: str, group: str, file: str, options: dict[str, Any] | None = None, **rest: Any) -> Contestant:
    """In the folder of microgpt; Adam divides by small numbers, and what differs grows."""
    return Contestant(name, group, "names", file, options or {}, **{"tolerance": 1e-10, **rest})


def gpt(name: str, **options: Any) -> Contestant:
    """Ours, in that folder."""
    tolerance = 1e-4 if options.get("dtype") == "float32" else 1e-10
    return names(name, OURSELVES, "model_chainrule.py", options, tolerance=tolerance, cores=options.get("threads", 1))


CONTESTANTS = [
    compiled(OURS),
    compiled("chainrule (2 threads)", {"threads": 2}, kinds=("gradient",), cores=2),
    compiled("chainrule (float32)", {"dtype": "float32"}, kinds=("gradient",), tolerance=1e-5),
    compiled("chainrule → JAX", {"backend": "jax"}),
    compiled("chainrule → XLA", {"backend": "xla"}),
    Contestant("chainrule (your own loop)", OURSELVES, "called", "scalars.py", kinds=("training",)),
    eager(EAGER, OURSELVES, "native"),
    eager("chainrule (eager, Python)", OURSELVES, "Python"),
    eager("plain floats", SCALARS, "float", "floats.py", kinds=("forward",)),
    eager("minigrad", SCALARS, "minigrad", folders=("graph",)),
    eager("microgpt's Value", SCALARS, "microgpt"),
    eager("micrograd (managed)", SCALARS, "micrograd", managed=True),
    eager("micrograd", SCALARS, "micrograd", warm=True),
    Contestant("CasADi", SCALARS, "casadi_functions", "casadi_symbols.py"),
    Contestant("CasADi → C", SCALARS, "casadi_c", "casadi_symbols.py"),
    Contestant("PyTorch", TENSORS, "pytorch", "pytorch.py"),
    Contestant("torch.compile", TENSORS, "pytorch", "pytorch.py", {"compiled": True}),
    Contestant("JAX", TENSORS, "jax_jit", "jax_numpy.py"),
    Contestant("NumPy by hand", BY_HAND, "numpy_loops", "numpy_by_hand.py"),
    Contestant("numba by hand", BY_HAND, "numba_jit", "numba_loops.py"),
    Contestant("C by hand", BY_HAND, "c_by_hand", "plain.c"),
    Contestant("tuned C by hand", BY_HAND, "c_by_hand", "tuned.c"),
    gpt(OURS, mode="compiled"),
    gpt("chainrule (float32)", mode="compiled", dtype="float32"),
    gpt(BY_LENGTH, mode="ragged"),
    gpt("chainrule (512 names)", mode="batched", threads=1, at_once=512),
    gpt("chainrule (512 names, 2 threads)", mode="batched", threads=2, at_once=512),
    gpt("chainrule (512 names, 2 threads, float32)", mode="batched", threads=2, at_once=512, dtype="float32"),
    names(EAGER, OURSELVES, "model_optimizer.py", {"value": "native"}),
    names("chainrule (eager, Python)", OURSELVES, "model_scalars.py", {"value": "Python"}),
    names("microgpt's Value", SCALARS, "model_scalars.py", {"value": "microgpt"}),
    names("micrograd (managed)", SCALARS, "model_scalars.py", {"value": "micrograd", "managed": True}, managed=True),
    names("micrograd", SCALARS, "model_scalars.py", {"value": "micrograd"}),
    names("PyTorch", TENSORS, "model_torch.py"),
    names("JAX", TENSORS, "model_jax.py"),
    names("NumPy by hand", BY_HAND, "model_numpy.py"),
    names("C by hand", BY_HAND, "model_c.py"),
    Contestant(OURS, OURSELVES, "program_compiled", "loops.py"),
    Contestant(EAGER, OURSELVES, "program_eager", "loops.py"),
    Contestant("JAX", TENSORS, "program_jax", "jax_arrays.py"),
    Contestant("numba by hand", BY_HAND, "program_numba", "numba_sweeps.py"),
]
