"""The contestants: chainrule's engines and what they are measured against, each behind one small interface.

`CONTESTANTS` maps a name to a function that imports what it needs and returns a Peer; one whose package is
missing raises ImportError, and the benchmark goes on without it. The first is the one others are compared to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import chainrule
from chainrule import engine
from peers import microgpt_style, micrograd_style

# The peers sort by recursion, a Python frame a node of depth; the workloads are at most a few thousand deep.
sys.setrecursionlimit(100_000)


@dataclass(frozen=True)
class Peer:
    """How a workload, written once, is spelled for one contestant."""

    parameter: Callable[[float], Any]  # a leaf that receives a gradient
    relu: Callable[[Any], Any]
    leaf: Callable[[float], Any]  # an input
    constant: Callable[[float], Any] = float  # a plain number inside an expression
    cleared: float | None = 0.0  # what zeroing writes to `grad`
    differentiates: bool = True
    managed: bool = False  # collector off while it works, and one collection a turn
    network: Callable[[], Any] | None = None  # in place of the one that all share

    @classmethod
    def of(cls, value: type, **options: Any) -> Peer:
        """A contestant whose every number is a `value` with a relu method."""
        return cls(parameter=value, relu=value.relu, leaf=value, **options)


def floats() -> Peer:
    return Peer(float, lambda x: x if x > 0.0 else 0.0, float, differentiates=False)


def minigrad() -> Peer:
    from minigrad import Value

    return Peer.of(Value, constant=Value)  # it reads the bits of an int operand as a double, so all are wrapped


def torch_scalars() -> Peer:
    import torch

    torch.set_num_threads(1)
    tensor = partial(torch.tensor, dtype=torch.float64)
    return Peer(partial(tensor, requires_grad=True), torch.relu, tensor, cleared=None)


CONTESTANTS: dict[str, Callable[[], Peer]] = {
    **({"chainrule, native": lambda: Peer.of(chainrule.Value)} if chainrule.ENGINE == "native" else {}),
    "chainrule, Python": lambda: Peer.of(engine.Value),
    "plain floats, forward only": floats,
    "minigrad (C)": minigrad,
    "microgpt style": lambda: Peer.of(microgpt_style.Value),
    "micrograd style, managed": lambda: Peer.of(micrograd_style.Value, managed=True),
    "micrograd style": lambda: Peer.of(micrograd_style.Value),
    "PyTorch scalars": torch_scalars,
}
