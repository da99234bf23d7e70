import math

import numpy as np
from numba import njit

inlined = njit(fastmath=True, error_model="numpy", inline="always")


@njit(fastmath=True, error_model="numpy")
def loss(p, dp, x, y):
    """3-4-4-1: the layers' parameters begin at 0, 16 and 36."""
    a, b, c = np.empty(4), np.empty(4), np.empty(1)
    da, db, dc, dx = np.empty(4), np.empty(4), np.empty(1), np.empty(3)
    total = 0.0
    dp[:] = 0.0
    for i in range(len(x)):
        forward(p, 0, x[i], a)
        forward(p, 16, a, b)
        forward(p, 36, b, c)
        error = c[0] - y[i]
        total += error * error
        dc[0] = 2 * error
        backward(p, dp, 36, b, db, c, dc)
        backward(p, dp, 16, a, da, b, db)
        backward(p, dp, 0, x[i], dx, a, da)
    return total


@inlined
def forward(p, offset, x, h):
    """One layer of `len(h)` neurons, whose parameters begin at `offset`."""
    inputs = len(x)
    for j in range(len(h)):
        row = offset + j * (inputs + 1)
        total = p[row + inputs]
        for k in range(inputs):
            total += p[row + k] * x[k]
        h[j] = math.tanh(total)


@inlined
def backward(p, dp, offset, x, dx, h, dh):
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
