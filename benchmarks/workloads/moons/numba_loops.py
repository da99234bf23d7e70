"""As fast as we could write it without vectors of our own: the examples in the innermost loops, block by block.

The plain loops of plain.c, in Python, took two to four times as long.
"""

import numpy as np
from numba import njit

BLOCK = 128  # examples: what is kept of them fits into the first-level cache
WIDTH = 16
PENALTY = 1e-4


@njit(fastmath=True, error_model="numpy")
def loss(p, dp, x, y):
    """2-16-16-1: the layers' parameters begin at 0, 48 and 320."""
    a, b = np.empty((WIDTH, BLOCK)), np.empty((WIDTH, BLOCK))
    x0, x1, total, score = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    value, squares = 0.0, 0.0
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
            value += max(margin, 0.0)
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
    return value / len(x) + PENALTY * squares
