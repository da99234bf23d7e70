"""What is computed. Each folder is a task, written once for every contestant that has a file there."""

from functools import partial

from contest import SHORT_TURN, Workload
from workloads import digits, four_points, graph, greeks, microgpt, moons, programs

LEAVES, FEW_LEAVES = 141, 20  # 99,546 nodes; 2,020

WORKLOADS = [
    Workload("four points", "step of 3-4-4-1 on 4 points", "four_points", "training", four_points.problem, 4, 4, 4),
    Workload("moons", "step of 2-16-16-1 on 100 points", "moons", "training", moons.problem, 100, 100, 8),
    Workload("big batch", "gradient, 2-16-16-1 on 100,000", "moons", "gradient", moons.many, 100_000, 100, 2000),
    Workload("digit", "step of 784-50-10 on an image", "digits", "training", digits.problem, 1, 1, 1),
    Workload("digits", "gradient, 784-50-10 on 100 images", "digits", "gradient", digits.problem, 100, 1, 2),
    Workload("microgpt", "step of a GPT on a name", "microgpt", "training", microgpt.problem, 1, 1, 1),
    Workload("Greeks", "gradient of 100,000 price paths", "greeks", "gradient", greeks.problem, 100_000, 1000, 2000),
]


def program(name: str, title: str, function: str) -> Workload:
    """One of the fifty, at the size that its users would call usual."""
    found, problem = programs.PROGRAMS[function], partial(programs.inputs, function)
    sizes = found.size, found.size, found.small
    return Workload(name, title, "programs", "gradient", problem, *sizes, function, SHORT_TURN, 200)


SIX = [
    program("heat equation", "50 steps on a plate of 32 × 32", "heat_in_a_plate"),
    program("Kalman filter", "likelihood of 100 positions", "kalman_filter"),
    program("HMM", "likelihood of 80 observations, 3 states", "hidden_markov_model"),
    program("Cholesky", "logarithm of a determinant, 20 × 20", "cholesky"),
    program("n-body", "20 steps of 8 bodies", "bodies_by_pairs"),
    program("soft-DTW", "16 numbers against 16", "soft_alignment"),
]

GRAPHS = [
    Workload("graph, built", "build", "graph", "forward", graph.problem, LEAVES, LEAVES, FEW_LEAVES),
    Workload("graph", "build, backward, free", "graph", "gradient", graph.problem, LEAVES, LEAVES, FEW_LEAVES),
]
NODES = graph.nodes(LEAVES)
EVERYTHING = [*WORKLOADS, *SIX, *GRAPHS]
