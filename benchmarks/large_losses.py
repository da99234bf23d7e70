"""Two losses with many parameters, in scalars and for any Value: a digit in an MLP, and a name in microgpt's GPT.

Both are the loss of one example. The GPT is the model of microgpt, in our words and with its sizes: one layer, 27
tokens (the letters, and 0 for where a name begins and ends), 16 positions, 16 numbers a token, 4 heads; RMSNorm, ReLU,
no biases.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Vector = list[Any]
Weights = dict[str, list[Vector]]

PIXELS, HIDDEN, CLASSES = 784, 50, 10
TOKENS, POSITIONS, WIDTH, HEADS = 27, 16, 16, 4
HEAD = WIDTH // HEADS
NAME = "maximilianjames"  # fifteen letters: with its beginning, all sixteen positions


@dataclass(frozen=True)
class LargeLoss:
    name: str
    shapes: dict[str, tuple[int, int]]
    of: Callable[[Weights], Any]

    def weights(self, value: Callable[[float], Any]) -> Weights:
        """Random matrices, the same at every call."""
        draw = random.Random(42).gauss
        return {k: [[value(draw(0, 0.08)) for _ in range(m)] for _ in range(n)] for k, (n, m) in self.shapes.items()}


def parameters(weights: Weights) -> list[Any]:
    return [number for matrix in weights.values() for row in matrix for number in row]


def digit(weights: Weights) -> Any:
    """Softmax cross-entropy of one image of random pixels, through one hidden layer of relus."""
    draw = random.Random(1)
    pixels = [draw.random() for _ in range(PIXELS)]
    hidden = [h.relu() for h in _plus(_product(weights["w1"], pixels), weights["b1"][0])]
    logits = _plus(_product(weights["w2"], hidden), weights["b2"][0])
    return -_softmax(logits)[3].log()


def name(weights: Weights, letters: str = NAME) -> Any:
    """The cross-entropy of each next letter, on average over the positions."""
    tokens = tokens_of(letters)
    keys: list[Vector] = []
    values: list[Vector] = []
    surprises = []
    for position, (token, following) in enumerate(pairwise(tokens)):
        logits = _next_token(weights, token, position, keys, values)
        surprises.append(-_softmax(logits)[following].log())
    return sum(surprises) / len(surprises)


def tokens_of(letters: str) -> list[int]:
    """A name as numbers, with 0 before it and after."""
    return [0, *(ord(letter) - ord("a") + 1 for letter in letters), 0]


def _next_token(weights: Weights, token: int, position: int, keys: list[Vector], values: list[Vector]) -> Vector:
    """Logits of the next token; this one's key and value join those of the tokens before."""
    x = _normalised(_plus(weights["token"][token], weights["position"][position]))
    normal = _normalised(x)
    query = _product(weights["query"], normal)
    keys.append(_product(weights["key"], normal))
    values.append(_product(weights["value"], normal))
    heads = [_attention(query, keys, values, slice(start, start + HEAD)) for start in range(0, WIDTH, HEAD)]
    x = _plus(x, _product(weights["mix"], [number for head in heads for number in head]))
    hidden = [h.relu() for h in _product(weights["widen"], _normalised(x))]
    x = _plus(x, _product(weights["narrow"], hidden))
    return _product(weights["predict"], x)


def _attention(query: Vector, keys: list[Vector], values: list[Vector], head: slice) -> Vector:
    scores = [_dot(query[head], key[head]) / HEAD**0.5 for key in keys]
    shares = _softmax(scores)
    return [_dot(shares, column) for column in zip(*(value[head] for value in values), strict=True)]


def _dot(a: Vector, b: Any) -> Any:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _product(matrix: list[Vector], x: Vector) -> Vector:
    return [_dot(row, x) for row in matrix]


def _plus(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def _normalised(x: Vector) -> Vector:
    """RMSNorm."""
    scale = (_dot(x, x) / len(x) + 1e-5) ** -0.5
    return [number * scale for number in x]


def _softmax(logits: Vector) -> Vector:
    greatest = max(number.data for number in logits)  # a plain number: it shifts exp's argument and not the result
    exps = [(number - greatest).exp() for number in logits]
    total = sum(exps)
    return [e / total for e in exps]


MLP = LargeLoss(
    "MLP(784, [50, 10])",
    {"w1": (HIDDEN, PIXELS), "b1": (1, HIDDEN), "w2": (CLASSES, HIDDEN), "b2": (1, CLASSES)},
    digit,
)
GPT = LargeLoss(
    "microgpt, 16 tokens",
    {
        "token": (TOKENS, WIDTH),
        "position": (POSITIONS, WIDTH),
        **dict.fromkeys(("query", "key", "value", "mix"), (WIDTH, WIDTH)),
        "widen": (4 * WIDTH, WIDTH),
        "narrow": (WIDTH, 4 * WIDTH),
        "predict": (TOKENS, WIDTH),
    },
    name,
)
LARGE_LOSSES = [MLP, GPT]
