"""micrograd's demo: 2-16-16-1, relu, the mean hinge loss and 1e-4 of the squared parameters."""

from chainrule import data
from workloads.problems import Network, network

SIZES = (2, 16, 16, 1)


def problem(size: int) -> Network:
    """The demo's hundred points, or the first of them."""
    points = data.micrograd_moons()
    return network(SIZES, points.inputs[:size], points.targets[:size], seed=1337)


def many(size: int) -> Network:
    """More points of that kind."""
    points = data.moons(n=size, seed=1)
    return network(SIZES, points.inputs, points.targets, seed=1337)
