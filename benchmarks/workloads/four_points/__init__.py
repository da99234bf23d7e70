"""The lecture's first network: 3-4-4-1, tanh everywhere, four points, the sum of squared errors."""

from chainrule import data
from workloads.problems import Network, network


def problem(size: int) -> Network:
    points = data.four_points()
    return network((3, 4, 4, 1), points.inputs[:size], points.targets[:size], seed=1, summed=True)
