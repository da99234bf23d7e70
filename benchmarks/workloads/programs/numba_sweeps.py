"""As someone who knows numba writes them: a sweep forward that keeps what the sweep back needs, in memory given to it.

Each is a function of the size, which is a constant of the compiled code. It returns the sweep, which is given all
numbers and a place for their derivatives, and the arrays that it works on besides. The derivatives are worked out by
hand, and simplified as far as we could: nothing is computed twice, and where a formula is known it is used.
"""

import math
import random

import numpy as np
from numba import njit

sweep_of = njit(fastmath=True, error_model="numpy")


def heat_in_a_plate(n):
    """A step is linear in the plate and its stencil symmetric, so the derivatives take the same steps back.

    Edges do not change: it suffices to count what passes them, and to multiply once.
    """
    steps = 50 if n > 8 else 4
    plates, passed, flow = np.empty((steps + 1, n, n)), np.empty((n, n)), np.empty((2, n, n))

    @sweep_of
    def sweep(x, dx, plates, passed, flow):
        rate, total, slope = 0.2 * x[0], 0.0, 0.0
        for i in range(n):
            for j in range(n):
                plates[0, i, j] = x[1 + n * i + j]
        for t in range(steps):
            u, new = plates[t], plates[t + 1]
            for i in range(n):
                new[i, 0], new[i, n - 1] = u[i, 0], u[i, n - 1]
                new[0, i], new[n - 1, i] = u[0, i], u[n - 1, i]
            for i in range(1, n - 1):
                for j in range(1, n - 1):
                    around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
                    new[i, j] = u[i, j] + rate * (around - 4.0 * u[i, j])
        last = plates[steps]
        flow[:], passed[:] = 0.0, 0.0
        for i in range(n):
            for j in range(n):
                total += last[i, j] * last[i, j]
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                flow[steps % 2, i, j] = 2.0 * last[i, j]
        for t in range(steps - 1, -1, -1):
            u, g, new = plates[t], flow[(t + 1) % 2], flow[t % 2]
            for i in range(1, n - 1):
                passed[i, 0] += g[i, 1]
                passed[i, n - 1] += g[i, n - 2]
                passed[0, i] += g[1, i]
                passed[n - 1, i] += g[n - 2, i]
            for i in range(1, n - 1):
                for j in range(1, n - 1):
                    change = g[i - 1, j] + g[i + 1, j] + g[i, j - 1] + g[i, j + 1] - 4.0 * g[i, j]
                    slope += change * u[i, j]
                    new[i, j] = g[i, j] + rate * change
        for i in range(n):
            for j in range(n):
                if 0 < i < n - 1 and 0 < j < n - 1:
                    dx[1 + n * i + j] = flow[0, i, j]
                else:
                    slope += passed[i, j] * last[i, j]
                    dx[1 + n * i + j] = 2.0 * last[i, j] + rate * passed[i, j]
        dx[0] = 0.2 * slope
        return total

    return sweep, (plates, passed, flow)


def kalman_filter(n):
    rng = random.Random(6)
    seen = np.array([rng.gauss(0, 1) for _ in range(n)])

    @sweep_of
    def sweep(numbers, slopes, seen, kept):
        damping, drift, jitter, noise = numbers
        x, v, pxx, pxv, pvv, total = 0.0, 0.0, 1.0, 0.0, 1.0, 0.0
        for t in range(n):
            row = kept[t]
            row[0], row[1], row[2] = v, pxv, pvv
            x, v = x + 0.1 * v, damping * v + drift
            pxx = pxx + 0.2 * pxv + 0.01 * pvv
            pxv, pvv = damping * (pxv + 0.1 * pvv), damping * damping * pvv + jitter
            innovation, inverse = seen[t] - x, 1.0 / (pxx + noise)
            gain_x, gain_v = pxx * inverse, pxv * inverse
            row[3], row[4], row[5], row[6] = pxx, pxv, innovation, inverse
            x, v = x + gain_x * innovation, v + gain_v * innovation
            total += innovation * innovation * inverse - math.log(inverse)
            pvv -= gain_v * pxv
            pxx, pxv = (1.0 - gain_x) * pxx, (1.0 - gain_x) * pxv
        d_damping, d_drift, d_jitter, d_noise = 0.0, 0.0, 0.0, 0.0
        dx, dv, dxx, dxv, dvv = 0.0, 0.0, 0.0, 0.0, 0.0
        for t in range(n - 1, -1, -1):
            row = kept[t]
            v, before_xv, before_vv = row[0], row[1], row[2]
            pxx, pxv, innovation, inverse = row[3], row[4], row[5], row[6]
            gain_x, gain_v = pxx * inverse, pxv * inverse
            d_gain_x = dx * innovation - dxx * pxx - dxv * pxv
            d_gain_v = dv * innovation - dvv * pxv
            weighted = innovation * inverse
            d_spread = inverse - weighted * weighted - inverse * (d_gain_x * gain_x + d_gain_v * gain_v)
            dxv = dxv * (1.0 - gain_x) - dvv * gain_v + d_gain_v * inverse
            dxx = dxx * (1.0 - gain_x) + d_gain_x * inverse + d_spread
            dx = dx - dx * gain_x - dv * gain_v - 2.0 * weighted
            d_noise += d_spread
            d_jitter += dvv
            d_drift += dv
            d_damping += dv * v + dxv * (before_xv + 0.1 * before_vv) + 2.0 * damping * dvv * before_vv
            dv = damping * dv + 0.1 * dx
            dvv = damping * damping * dvv + 0.1 * damping * dxv + 0.01 * dxx
            dxv = damping * dxv + 0.2 * dxx
        slopes[0], slopes[1], slopes[2], slopes[3] = d_damping, d_drift, d_jitter, d_noise
        return total

    return sweep, (seen, np.empty((n, 7)))


def hidden_markov_model(n):
    """The algorithm of Baum and Welch: how often each move is expected, for each of the two observations."""
    rng = random.Random(5)
    seen = np.array([rng.randrange(2) for _ in range(n)])

    @sweep_of
    def sweep(x, dx, seen, kept, moves):
        start, move, emit = x[:3], x[3:12].reshape(3, 3), x[12:].reshape(3, 2)
        a0, a1, a2, total = start[0], start[1], start[2], 0.0
        for t in range(n):
            row, o = kept[t], seen[t]
            row[0], row[1], row[2] = a0, a1, a2
            b0 = emit[0, o] * (a0 * move[0, 0] + a1 * move[1, 0] + a2 * move[2, 0])
            b1 = emit[1, o] * (a0 * move[0, 1] + a1 * move[1, 1] + a2 * move[2, 1])
            b2 = emit[2, o] * (a0 * move[0, 2] + a1 * move[1, 2] + a2 * move[2, 2])
            inverse = 1.0 / (b0 + b1 + b2)
            a0, a1, a2 = b0 * inverse, b1 * inverse, b2 * inverse
            row[3] = inverse
            total -= math.log(inverse)
        moves[:] = 0.0
        b0, b1, b2 = 1.0, 1.0, 1.0
        for t in range(n - 1, -1, -1):
            row, o = kept[t], seen[t]
            inverse = row[3]
            b0, b1, b2 = b0 * inverse, b1 * inverse, b2 * inverse
            for i in range(3):
                moves[o, i, 0] += row[i] * b0
                moves[o, i, 1] += row[i] * b1
                moves[o, i, 2] += row[i] * b2
            b0, b1, b2 = b0 * emit[0, o], b1 * emit[1, o], b2 * emit[2, o]
            b0, b1, b2 = (
                move[0, 0] * b0 + move[0, 1] * b1 + move[0, 2] * b2,
                move[1, 0] * b0 + move[1, 1] * b1 + move[1, 2] * b2,
                move[2, 0] * b0 + move[2, 1] * b1 + move[2, 2] * b2,
            )
        dx[0], dx[1], dx[2] = b0, b1, b2
        dx[3:] = 0.0
        for o in range(2):
            for i in range(3):
                for j in range(3):
                    dx[3 + 3 * i + j] += emit[j, o] * moves[o, i, j]
                    dx[12 + 2 * j + o] += move[i, j] * moves[o, i, j]
        return total

    return sweep, (seen, np.empty((n, 4)), np.empty((2, 3, 3)))


def cholesky(n):
    """The derivative of a logarithm of a determinant is the inverse, here the product of the factor's inverses."""

    @sweep_of
    def sweep(x, dx, a, factor, inverse):
        total = 0.0
        for i in range(n):
            for j in range(i):
                apart = x[i] - x[j]
                a[i, j] = math.exp(-apart * apart)
            a[i, i] = 1.5
        for i in range(n):
            for j in range(i):
                left = a[i, j]
                for k in range(j):
                    left -= factor[i, k] * factor[j, k]
                factor[i, j] = left * inverse[j, j]
            left = a[i, i]
            for k in range(i):
                left -= factor[i, k] * factor[i, k]
            total += math.log(left)
            inverse[i, i] = 1.0 / math.sqrt(left)
            for j in range(i):
                inverse[i, j] = 0.0
            for k in range(i):
                for j in range(k + 1):
                    inverse[i, j] -= factor[i, k] * inverse[k, j]
            for j in range(i):
                inverse[i, j] *= inverse[i, i]
        dx[:] = 0.0
        factor[:] = 0.0
        for k in range(n):
            for i in range(k + 1):
                for j in range(i):
                    factor[i, j] += inverse[k, i] * inverse[k, j]
        for i in range(n):
            for j in range(i):
                slope = -4.0 * factor[i, j] * a[i, j] * (x[i] - x[j])
                dx[i] += slope
                dx[j] -= slope
        return total

    return sweep, (np.empty((n, n)), np.empty((n, n)), np.empty((n, n)))


def bodies_by_pairs(n):
    steps = 20 if n > 3 else 3

    @sweep_of
    def sweep(numbers, slopes, places, kept, force):
        for i in range(n):
            places[0, 0, i], places[0, 1, i] = numbers[i], numbers[n + i]
            slopes[2 * n + i], slopes[3 * n + i] = numbers[2 * n + i], numbers[3 * n + i]
        fx, fy = force[0], force[1]
        vx, vy = slopes[2 * n : 3 * n], slopes[3 * n :]  # room that is free until derivatives are written
        for t in range(steps):
            x, y, after = places[t, 0], places[t, 1], places[t + 1]
            force[:] = 0.0
            for i in range(n):
                for j in range(i + 1, n):
                    dx, dy = x[j] - x[i], y[j] - y[i]
                    inverse = 1.0 / (dx * dx + dy * dy + 0.1)
                    pull = inverse * math.sqrt(inverse)
                    kept[t, i, j, 0], kept[t, i, j, 1] = pull, -3.0 * pull * inverse
                    fx[i] += pull * dx
                    fy[i] += pull * dy
                    fx[j] -= pull * dx
                    fy[j] -= pull * dy
            for i in range(n):
                vx[i] += 0.01 * fx[i]
                vy[i] += 0.01 * fy[i]
                after[0, i], after[1, i] = x[i] + 0.01 * vx[i], y[i] + 0.01 * vy[i]
        x, y, total = places[steps, 0], places[steps, 1], 0.0
        gx, gy, hx, hy = slopes[:n], slopes[n : 2 * n], slopes[2 * n : 3 * n], slopes[3 * n :]
        for i in range(n):
            total += x[i] * x[i] + y[i] * y[i]
            gx[i], gy[i], hx[i], hy[i] = 2.0 * x[i], 2.0 * y[i], 0.0, 0.0
        for t in range(steps - 1, -1, -1):
            x, y = places[t, 0], places[t, 1]
            for i in range(n):
                hx[i] += 0.01 * gx[i]
                hy[i] += 0.01 * gy[i]
            for i in range(n):
                for j in range(i + 1, n):
                    dx, dy, ex, ey = x[j] - x[i], y[j] - y[i], hx[i] - hx[j], hy[i] - hy[j]
                    pull, along = kept[t, i, j, 0], kept[t, i, j, 1] * (ex * dx + ey * dy)
                    sx, sy = 0.01 * (pull * ex + along * dx), 0.01 * (pull * ey + along * dy)
                    gx[i] -= sx
                    gy[i] -= sy
                    gx[j] += sx
                    gy[j] += sy
        return total

    return sweep, (np.empty((steps + 1, 2, n)), np.empty((steps, n, n, 2)), np.empty((2, n)))


def soft_alignment(n):
    """Forward, each cell keeps the weights of its three neighbours; back, they are given its slope by these.

    Forward goes by diagonals, whose cells do not wait for each other.
    """

    @sweep_of
    def sweep(x, dx, least, weights, given):
        a, b, da, db = x[:n], x[n:], dx[:n], dx[n:]
        least[0, :], least[:, 0], least[0, 0] = 10.0, 10.0, 0.0
        for diagonal in range(2 * n - 1):
            for i in range(max(0, diagonal - n + 1), min(diagonal, n - 1) + 1):
                j = diagonal - i
                corner, above, left = least[i, j], least[i, j + 1], least[i + 1, j]
                low = min(corner, above, left)
                p, q, r = math.exp(low - corner), math.exp(low - above), math.exp(low - left)
                inverse = 1.0 / (p + q + r)
                apart = a[i] - b[j]
                least[i + 1, j + 1] = apart * apart + low + math.log(inverse)
                cell = weights[i, j]
                cell[0], cell[1], cell[2] = p * inverse, q * inverse, r * inverse
        dx[:], given[:] = 0.0, 0.0
        given[n, n] = 1.0
        for i in range(n - 1, -1, -1):
            for j in range(n - 1, -1, -1):
                cell, slope = weights[i, j], given[i + 1, j + 1]
                given[i, j] += slope * cell[0]
                given[i, j + 1] += slope * cell[1]
                given[i + 1, j] += slope * cell[2]
                slope *= 2.0 * (a[i] - b[j])
                da[i] += slope
                db[j] -= slope
        return least[n, n]

    return sweep, (np.empty((n + 1, n + 1)), np.empty((n, n, 3)), np.empty((n + 1, n + 1)))
