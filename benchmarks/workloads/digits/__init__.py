"""A network of the size that people train on MNIST: 784-50-10, relu, softmax cross-entropy, on random pixels."""

from random import Random

import numpy as np

from workloads.problems import Network, network

SIZES = (784, 50, 10)


def problem(size: int) -> Network:
    draw = Random(1)
    images = [[draw.random() for _ in range(SIZES[0])] for _ in range(size)]
    classes = np.eye(SIZES[-1])[[draw.randrange(SIZES[-1]) for _ in range(size)]]
    return network(SIZES, images, classes, seed=42, scale=0.08)
