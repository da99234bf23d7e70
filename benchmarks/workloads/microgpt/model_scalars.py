"""Plain scalar code, on any class of Values, and Adam by hand over plain floats."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from peers.scalars import VALUES
from workloads import microgpt
from workloads.microgpt import BETA1, BETA2, EPSILON, HEAD, RATE, STEPS, WIDTH, tokens_of

Vector = list[Any]


def loss(weights: dict[str, list[Vector]], letters: str) -> Any:
    """The cross-entropy of each next letter, on average over the positions."""
    tokens = tokens_of(letters)
    keys: list[Vector] = []
    values: list[Vector] = []
    surprises = []
    for position, (token, following) in enumerate(pairwise(tokens)):
        logits = next_token(weights, token, position, keys, values)
        surprises.append(-softmax(logits)[following].log())
    return sum(surprises) / len(surprises)


def next_token(
    weights: dict[str, list[Vector]], token: int, position: int, keys: list[Vector], values: list[Vector]
) -> Vector:
    """Logits of the next token; this one's key and value join those of the tokens before."""
    x = normalised(plus(weights["token"][token], weights["position"][position]))
    normal = normalised(x)
    query = product(weights["query"], normal)
    keys.append(product(weights["key"], normal))
    values.append(product(weights["value"], normal))
    heads = [attention(query, keys, values, slice(start, start + HEAD)) for start in range(0, WIDTH, HEAD)]
    x = plus(x, product(weights["mix"], [number for head in heads for number in head]))
    hidden = [h.relu() for h in product(weights["widen"], normalised(x))]
    x = plus(x, product(weights["narrow"], hidden))
    return product(weights["predict"], x)


def attention(query: Vector, keys: list[Vector], values: list[Vector], head: slice) -> Vector:
    scores = [dot(query[head], key[head]) / HEAD**0.5 for key in keys]
    shares = softmax(scores)
    return [dot(shares, column) for column in zip(*(value[head] for value in values), strict=True)]


def dot(a: Vector, b: Any) -> Any:
    return sum(x * y for x, y in zip(a, b, strict=True))


def product(matrix: list[Vector], x: Vector) -> Vector:
    return [dot(row, x) for row in matrix]


def plus(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def normalised(x: Vector) -> Vector:
    """RMSNorm."""
    scale = (dot(x, x) / len(x) + 1e-5) ** -0.5
    return [number * scale for number in x]


def softmax(logits: Vector) -> Vector:
    greatest = max(number.data for number in logits)  # a plain number: it shifts exp's argument and not the result
    exps = [(number - greatest).exp() for number in logits]
    total = sum(exps)
    return [e / total for e in exps]


class Model:
    """A step: build the graph, run backward, go through the parameters. If `managed`, one collection a step."""

    def __init__(self, value: str, managed: bool = False) -> None:
        self.weights = microgpt.weights(VALUES[value]())
        self.parameters = microgpt.flat(self.weights)
        self.m, self.v = [0.0] * len(self.parameters), [0.0] * len(self.parameters)
        self.steps, self.managed = 0, managed

    def train(self, names: Iterable[str]) -> list[float]:
        return [self.step(letters) for letters in names]

    def step(self, letters: str) -> float:
        value = self.backward(letters)
        self.update()
        if self.managed:
            gc.collect()
        return value

    def backward(self, letters: str) -> float:
        value = loss(self.weights, letters)
        for p in self.parameters:
            p.grad = 0.0
        value.backward()
        return float(value.data)

    def loss_and_gradient(self, letters: str) -> tuple[float, np.ndarray]:
        return self.backward(letters), np.array([p.grad for p in self.parameters])

    def update(self) -> None:
        rate = RATE * max(0.0, 1 - self.steps / STEPS)
        self.steps += 1
        for i, p in enumerate(self.parameters):
            self.m[i] = BETA1 * self.m[i] + (1 - BETA1) * p.grad
            self.v[i] = BETA2 * self.v[i] + (1 - BETA2) * p.grad**2
            m, v = self.m[i] / (1 - BETA1**self.steps), self.v[i] / (1 - BETA2**self.steps)
            p.data -= rate * m / (v**0.5 + EPSILON)
