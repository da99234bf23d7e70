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


@program(size=12, small=4, numbers=lambda n: 2 * 10 + 3 * (2 * (n // 2) ** 2))
def convolution(m, numbers, n):
    """Two filters over a padded picture, the largest of each square of four, and three classes."""
    rng = random.Random(22)
    picture = [[rng.random() for _ in range(n)] for _ in range(n)]
    features = []
    for f in range(2):
        w, bias = numbers[10 * f : 10 * f + 9], numbers[10 * f + 9]
        rows = [[0.0] * n for _ in range(n)]
        for i in range(n):
            for j in range(n):
                total = bias
                for di in range(3):
                    for dj in range(3):
                        k, o = i + di - 1, j + dj - 1
                        if 0 <= k < n and 0 <= o < n:
                            total = total + (w[3 * di + dj] - 0.5) * picture[k][o]
                rows[i][j] = m.relu(total)
        for i in range(0, n, 2):
            for j in range(0, n, 2):
                top, bottom = m.maximum(rows[i][j], rows[i][j + 1]), m.maximum(rows[i + 1][j], rows[i + 1][j + 1])
                features.append(m.maximum(top, bottom))
    size = len(features)
    logits = [sum(numbers[20 + size * c + k] * x for k, x in enumerate(features)) / size for c in range(3)]
    return m.logsumexp(logits) - logits[1]


@program(size=30, small=4, numbers=lambda n: 16 * 7 + 5)
def long_short_term_memory(m, numbers, n):
    rng = random.Random(23)
    rows, out = [[x - 0.5 for x in numbers[7 * k : 7 * k + 7]] for k in range(16)], numbers[112:]
    hidden, cell, total = [0.0] * 4, [0.0] * 4, 0.0
    for _ in range(n):
        x = [*hidden, rng.gauss(0, 1), rng.gauss(0, 1), 1.0]
        gates = [sum(w * v for w, v in zip(row, x, strict=True)) for row in rows]
        for k in range(4):
            keep, add, show = (m.sigmoid(gates[4 * g + k]) for g in range(3))
            cell[k] = keep * cell[k] + add * m.tanh(gates[12 + k])
            hidden[k] = show * m.tanh(cell[k])
        total = total + (sum(w * h for w, h in zip(out, hidden, strict=False)) + out[4] - rng.random()) ** 2
    return total / n


@program(size=16, small=3, numbers=lambda n: 8 * n + 4 * 64 + 2 * 128)
def transformer_block(m, numbers, n):
    """Two heads of causal attention and a layer of sixteen, each after a norm; the largest score is taken off first."""
    tokens, rest = [numbers[8 * t : 8 * t + 8] for t in range(n)], [x - 0.5 for x in numbers[8 * n :]]
    q, k, v, out = ([rest[64 * s + 8 * i :][:8] for i in range(8)] for s in range(4))
    widen, narrow = [rest[256 + 8 * i :][:8] for i in range(16)], [rest[384 + 16 * i :][:16] for i in range(8)]

    def times(matrix, x):
        return [sum(w * v for w, v in zip(row, x, strict=True)) for row in matrix]

    def norm(x):
        mean = sum(x) / len(x)
        spread = m.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
        return [(v - mean) / spread for v in x]

    def softmax(scores):
        largest = scores[0]
        for score in scores[1:]:
            largest = m.maximum(largest, score)
        parts = [m.exp(score - largest) for score in scores]
        return [part / sum(parts) for part in parts]

    keys, values, total = [], [], 0.0
    for x in tokens:
        normed = norm(x)
        query = times(q, normed)
        keys.append(times(k, normed))
        values.append(times(v, normed))
        mixed = []
        for head in (range(4), range(4, 8)):
            shares = softmax([0.5 * sum(query[i] * key[i] for i in head) for key in keys])
            mixed += [sum(share * value[i] for share, value in zip(shares, values, strict=True)) for i in head]
        x = [a + b for a, b in zip(x, times(out, mixed), strict=True)]
        x = [a + b for a, b in zip(x, times(narrow, [m.relu(h) for h in times(widen, norm(x))]), strict=True)]
        total = total + sum(a * a for a in x)
    return total / n
