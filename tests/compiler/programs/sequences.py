"""Sequences: filters, alignments, hidden states."""

import random

from .registry import program


@program(size=80, small=6, numbers=lambda n: 3 + 9 + 6)
def hidden_markov_model(m, numbers, n):
    """The forward algorithm; the observation picks a column."""
    start, move, emit = numbers[:3], [numbers[3 + 3 * i : 6 + 3 * i] for i in range(3)], numbers[12:]
    rng = random.Random(5)
    alpha, total = list(start), 0.0
    for _ in range(n):
        seen = rng.randrange(2)
        alpha = [emit[2 * j + seen] * sum(alpha[i] * move[i][j] for i in range(3)) for j in range(3)]
        norm = sum(alpha)
        alpha, total = [a / norm for a in alpha], total + m.log(norm)
    return total


@program(size=100, small=8, numbers=lambda n: [0.9, 0.1, 0.5, 0.3])
def kalman_filter(m, numbers, n):
    """Position and speed from noisy positions; the innovations' likelihood."""
    damping, drift, jitter, noise = numbers
    rng = random.Random(6)
    x, v, pxx, pxv, pvv, total = 0.0, 0.0, 1.0, 0.0, 1.0, 0.0
    for _ in range(n):
        x, v = x + 0.1 * v, damping * v + drift
        pxx = pxx + 0.2 * pxv + 0.01 * pvv
        pxv, pvv = damping * (pxv + 0.1 * pvv), damping * damping * pvv + jitter
        innovation, spread = rng.gauss(0, 1) - x, pxx + noise
        gain_x, gain_v = pxx / spread, pxv / spread
        x, v = x + gain_x * innovation, v + gain_v * innovation
        pxx, pxv, pvv = (1.0 - gain_x) * pxx, (1.0 - gain_x) * pxv, pvv - gain_v * pxv
        total = total + m.log(spread) + innovation * innovation / spread
    return total


@program(size=16, small=4, numbers=lambda n: 2 * n)
def soft_alignment(m, numbers, n):
    """Dynamic time warping, with a soft minimum."""
    a, b = numbers[:n], numbers[n:]
    before = [0.0] + [10.0] * n
    for i in range(n):
        row = [10.0]
        for j in range(n):
            least = -m.logsumexp([-before[j], -before[j + 1], -row[-1]])
            row.append((a[i] - b[j]) ** 2 + least)
        before = row
    return before[-1]


@program(size=150, small=10, numbers=lambda n: [0.4, 0.3, 0.2])
def smoothing(m, numbers, n):
    """Holt's exponential smoothing with a trend."""
    level_rate, trend_rate, start = numbers
    rng = random.Random(7)
    level, trend, total = start, 0.0, 0.0
    for t in range(n):
        seen = 0.1 * t + rng.gauss(0, 0.1)
        error = seen - (level + trend)
        level, trend = level + trend + level_rate * error, trend + trend_rate * error
        total = total + error * error
    return total / n


@program(size=40, small=5, numbers=lambda n: 6 * 4 + 4 * 4)
def tagging(m, numbers, n):
    """A conditional random field: all sequences of four tags against the right one, for words out of six."""
    emit, move = [numbers[4 * w : 4 * w + 4] for w in range(6)], [numbers[24 + 4 * i : 28 + 4 * i] for i in range(4)]
    rng = random.Random(21)
    words, tags = [rng.randrange(6) for _ in range(n)], [rng.randrange(4) for _ in range(n)]
    alpha, right = emit[words[0]], emit[words[0]][tags[0]]
    for t in range(1, n):
        alpha = [m.logsumexp([alpha[i] + move[i][j] for i in range(4)]) + emit[words[t]][j] for j in range(4)]
        right = right + move[tags[t - 1]][tags[t]] + emit[words[t]][tags[t]]
    return m.logsumexp(alpha) - right
