"""Networks, one neuron at a time."""

import random
from itertools import pairwise

from .registry import program


@program(size=30, small=3, numbers=lambda n: 4 * 2 + 4 + 4 + 1)
def small_network(m, numbers, n):
    rng, total = random.Random(3), 0.0
    for _ in range(n):
        x, y = [rng.uniform(-1, 1), rng.uniform(-1, 1)], rng.uniform(-1, 1)
        hidden = [m.tanh(numbers[2 * k] * x[0] + numbers[2 * k + 1] * x[1] + numbers[8 + k]) for k in range(4)]
        out = sum(numbers[12 + k] * hidden[k] for k in range(4)) + numbers[16]
        total = total + (out - y) ** 2
    return total / n


@program(size=40, small=5, numbers=lambda n: 5 * 4 + 4 * 4 + 4 * 5)
def characters(m, numbers, n):
    """A recurrent network that predicts the next of five characters; each is looked up in a table."""
    rng = random.Random(4)
    text = [rng.randrange(5) for _ in range(n + 1)]
    embedding = [numbers[4 * k : 4 * k + 4] for k in range(5)]
    inner = [numbers[20 + 4 * k : 24 + 4 * k] for k in range(4)]
    outer = [numbers[36 + 4 * k : 40 + 4 * k] for k in range(5)]
    state, total = [0.0] * 4, 0.0
    for now, after in pairwise(text):
        state = [m.tanh(embedding[now][i] + sum(inner[i][j] * state[j] for j in range(4))) for i in range(4)]
        logits = [sum(outer[k][j] * state[j] for j in range(4)) for k in range(5)]
        total = total + m.logsumexp(logits) - logits[after]
    return total / n


@program(size=12, small=3, numbers=lambda n: 4 * n + 3 * 16)
def masked_attention(m, numbers, n):
    tokens = [numbers[4 * t : 4 * t + 4] for t in range(n)]
    weights = [[numbers[4 * n + 16 * s + 4 * i : 4 * n + 16 * s + 4 * i + 4] for i in range(4)] for s in range(3)]

    def times(matrix, x):
        return [sum(w * v for w, v in zip(row, x, strict=True)) for row in matrix]

    q, k, v = ([times(matrix, x) for x in tokens] for matrix in weights)
    total = 0.0
    for t in range(n):
        scores = [0.5 * sum(a * b for a, b in zip(q[t], k[s], strict=True)) for s in range(t + 1)]
        norm = m.logsumexp(scores)
        mixed = [sum(m.exp(scores[s] - norm) * v[s][i] for s in range(t + 1)) for i in range(4)]
        total = total + sum(x * x for x in mixed)
    return total
