"""The problems by hand in numba, as fast as we could write them without vectors of our own: with `fastmath`, and, where
there are many examples, with the examples in the innermost loops, block by block. (The plain loops of plain.c, in
Python, took two to four times as long.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from problems import PENALTY, RATE, Problem

BLOCK = 128  # examples: what is kept of them fits into the first-level cache
WIDTH = 16

fast = njit(fastmath=True, error_model="numpy")
inlined = njit(fastmath=True, error_model="numpy", inline="always")


def training(problem: Problem) -> Callable[[int], float]:
    """So many steps from the start; the last loss."""
    train = _train_squares if problem.tanh else _train_hinge

    def run(steps: int) -> float:
        p, dp = problem.start.copy(), np.zeros_like(problem.start)
        return train(p, dp, problem.x, problem.y, steps)

    return run


def gradient(problem: Problem) -> Callable[[], tuple[float, np.ndarray]]:
    """The loss and its gradient at the start."""
    dp = np.zeros_like(problem.start)
    return lambda: (_hinge(problem.start, dp, problem.x, problem.y), dp)


@fast
def _train_hinge(p: Any, dp: Any, x: Any, y: Any, steps: int) -> float:
    loss = 0.0
    for _ in range(steps):
        loss = _hinge(p, dp, x, y)
        for i in range(len(p)):
            p[i] -= RATE * dp[i]
    return loss


@fast
def _train_squares(p: Any, dp: Any, x: Any, y: Any, steps: int) -> float:
    loss = 0.0
    for _ in range(steps):
        loss = _squares(p, dp, x, y)
        for i in range(len(p)):
            p[i] -= RATE * dp[i]
    return loss


@fast
def _hinge(p: Any, dp: Any, x: Any, y: Any) -> float:
    """2-16-16-1: the layers' parameters begin at 0, 48 and 320."""
    a, b = np.empty((WIDTH, BLOCK)), np.empty((WIDTH, BLOCK))
    x0, x1, total, score = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    loss, squares = 0.0, 0.0
    for i in range(len(p)):
        squares += p[i] * p[i]
        dp[i] = 2 * PENALTY * p[i]
    for first in range(0, len(x), BLOCK):
        count = min(BLOCK, len(x) - first)
        for i in range(count):
            x0[i], x1[i], score[i] = x[first + i, 0], x[first + i, 1], p[336]
        for j in range(WIDTH):
            w0, w1, bias = p[3 * j], p[3 * j + 1], p[3 * j + 2]
            for i in range(count):
                a[j, i] = max(bias + w0 * x0[i] + w1 * x1[i], 0.0)
        for j in range(WIDTH):
            row = 48 + 17 * j
            bias = p[row + WIDTH]
            for i in range(count):
                total[i] = bias
            for k in range(WIDTH):
                w = p[row + k]
                for i in range(count):
                    total[i] += w * a[k, i]
            w = p[320 + j]
            for i in range(count):
                b[j, i] = max(total[i], 0.0)
                score[i] += w * b[j, i]
        slope = 0.0
        for i in range(count):  # `score` becomes its own adjoint
            margin = 1 - y[first + i] * score[i]
            loss += max(margin, 0.0)
            score[i] = -y[first + i] / len(x) if margin > 0 else 0.0
            slope += score[i]
        dp[336] += slope
        for j in range(WIDTH):  # and so does `b`
            row, w = 48 + 17 * j, p[320 + j]
            slope, bias = 0.0, 0.0
            for i in range(count):
                slope += score[i] * b[j, i]
                b[j, i] = w * score[i] if b[j, i] > 0 else 0.0
                bias += b[j, i]
            dp[320 + j] += slope
            dp[row + WIDTH] += bias
            for k in range(WIDTH):
                slope = 0.0
                for i in range(count):
                    slope += b[j, i] * a[k, i]
                dp[row + k] += slope
        for k in range(WIDTH):
            for i in range(count):
                total[i] = 0.0
            for j in range(WIDTH):
                w = p[48 + 17 * j + k]
                for i in range(count):
                    total[i] += w * b[j, i]
            w0, w1, bias = 0.0, 0.0, 0.0
            for i in range(count):
                slope = total[i] if a[k, i] > 0 else 0.0
                w0 += slope * x0[i]
                w1 += slope * x1[i]
                bias += slope
            dp[3 * k] += w0
            dp[3 * k + 1] += w1
            dp[3 * k + 2] += bias
    return loss / len(x) + PENALTY * squares


@fast
def _squares(p: Any, dp: Any, x: Any, y: Any) -> float:
    """3-4-4-1: the layers' parameters begin at 0, 16 and 36."""
    a, b, c = np.empty(4), np.empty(4), np.empty(1)
    da, db, dc, dx = np.empty(4), np.empty(4), np.empty(1), np.empty(3)
    loss = 0.0
    dp[:] = 0.0
    for i in range(len(x)):
        _forward(p, 0, x[i], a)
        _forward(p, 16, a, b)
        _forward(p, 36, b, c)
        error = c[0] - y[i]
        loss += error * error
        dc[0] = 2 * error
        _backward(p, dp, 36, b, db, c, dc)
        _backward(p, dp, 16, a, da, b, db)
        _backward(p, dp, 0, x[i], dx, a, da)
    return loss


@inlined
def _forward(p: Any, offset: int, x: Any, h: Any) -> None:
    """One layer of `len(h)` neurons, whose parameters begin at `offset`."""
    inputs = len(x)
    for j in range(len(h)):
        row = offset + j * (inputs + 1)
        total = p[row + inputs]
        for k in range(inputs):
            total += p[row + k] * x[k]
        h[j] = math.tanh(total)


@inlined
def _backward(p: Any, dp: Any, offset: int, x: Any, dx: Any, h: Any, dh: Any) -> None:
    inputs = len(x)
    for k in range(inputs):
        dx[k] = 0.0
    for j in range(len(dh)):
        row = offset + j * (inputs + 1)
        slope = dh[j] * (1 - h[j] * h[j])
        for k in range(inputs):
            dp[row + k] += slope * x[k]
            dx[k] += slope * p[row + k]
        dp[row + inputs] += slope
