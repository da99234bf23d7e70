"""What is computed. Each folder is a task, written once for every contestant that has a file there."""

from contest import Workload
from workloads import digits, four_points, graph, greeks, microgpt, moons

LEAVES, FEW_LEAVES = 141, 20  # 99,546 nodes; 2,020

WORKLOADS = [
    Workload("four points", "a step of 3-4-4-1 on 4 points", "four_points", "training", four_points.problem, 4, 4, 4),
    Workload("moons", "a step of 2-16-16-1 on 100 points", "moons", "training", moons.problem, 100, 100, 8),
    Workload("big batch", "a gradient of it on 100,000", "moons", "gradient", moons.many, 100_000, 100, 2000),
    Workload("digit", "a step of 784-50-10 on an image", "digits", "training", digits.problem, 1, 1, 1),
    Workload("digits", "a gradient of it on 100 images", "digits", "gradient", digits.problem, 100, 1, 2),
    Workload("microgpt", "a step of a GPT on a name", "microgpt", "training", microgpt.problem, 1, 1, 1),
    Workload("Greeks", "100,000 paths of 12 dates", "greeks", "gradient", greeks.problem, 100_000, 1000, 2000),
]

GRAPHS = [
    Workload("graph, built", "build", "graph", "forward", graph.problem, LEAVES, LEAVES, FEW_LEAVES),
    Workload("graph", "build, backward, free", "graph", "gradient", graph.problem, LEAVES, LEAVES, FEW_LEAVES),
]
NODES = graph.nodes(LEAVES)
