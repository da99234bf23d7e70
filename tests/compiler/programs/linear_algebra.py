"""Matrices by loops."""

import math

from .registry import program


@program(size=20, small=5, numbers=lambda n: n)
def cholesky(m, numbers, n):
    """The logarithm of the determinant of a covariance, by its Cholesky factor."""
    a = [[m.exp(-((numbers[i] - numbers[j]) ** 2)) + (0.5 if i == j else 0.0) for j in range(n)] for i in range(n)]
    factor = [[0.0] * n for _ in range(n)]
    for j in range(n):
        factor[j][j] = m.sqrt(a[j][j] - sum(factor[j][k] * factor[j][k] for k in range(j)))
        for i in range(j + 1, n):
            factor[i][j] = (a[i][j] - sum(factor[i][k] * factor[j][k] for k in range(j))) / factor[j][j]
    return sum(2.0 * m.log(factor[j][j]) for j in range(n))


@program(size=64, small=8, numbers=lambda n: n)
def fourier_transform(m, numbers, n):
    """Radix 2, in place of a formula; the energy of the lower half of the spectrum."""

    def transform(signal):
        if len(signal) == 1:
            return signal
        even, odd = transform(signal[::2]), transform(signal[1::2])
        half, result = len(even), [None] * len(signal)
        for k in range(half):
            c, s = math.cos(math.pi * k / half), -math.sin(math.pi * k / half)
            turned = odd[k][0] * c - odd[k][1] * s, odd[k][0] * s + odd[k][1] * c
            result[k] = even[k][0] + turned[0], even[k][1] + turned[1]
            result[k + half] = even[k][0] - turned[0], even[k][1] - turned[1]
        return result

    spectrum = transform([(x, 0.0 * x) for x in numbers])
    return sum(re * re + im * im for re, im in spectrum[: n // 2])


@program(size=16, small=6, numbers=lambda n: n)
def sorting_network(m, numbers, n):
    """Odd-even transposition: a smooth function of sorted numbers."""
    x = list(numbers)
    for turn in range(n):
        for k in range(turn % 2, n - 1, 2):
            x[k], x[k + 1] = m.minimum(x[k], x[k + 1]), m.maximum(x[k], x[k + 1])
    return sum((k + 1.0) * v for k, v in enumerate(x))


@program(size=12, small=4, numbers=lambda n: n * n + n)
def power_iteration(m, numbers, n):
    a, v = [numbers[n * i : n * i + n] for i in range(n)], numbers[n * n :]
    for _ in range(15 if n > 4 else 3):
        v = [sum(a[i][j] * v[j] for j in range(n)) for i in range(n)]
        norm = m.sqrt(sum(x * x for x in v))
        v = [x / norm for x in v]
    return sum(v[i] * sum(a[i][j] * v[j] for j in range(n)) for i in range(n))


@program(size=20, small=4, numbers=lambda n: n * n)
def gauss_elimination(m, numbers, n):
    """The logarithm of a determinant, by loops that are written out."""
    a = [[numbers[n * i + j] + (n if i == j else 0.0) for j in range(n)] for i in range(n)]
    for k in range(n):
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            for j in range(k + 1, n):
                a[i][j] = a[i][j] - factor * a[k][j]
    return sum(m.log(m.abs(a[k][k])) for k in range(n))


@program(size=9, small=4, numbers=lambda n: n * n)
def givens_rotations(m, numbers, n):
    """A QR factorization that clears one element after another."""
    a = [list(numbers[n * i : n * i + n]) for i in range(n)]
    for j in range(n):
        for i in range(j + 1, n):
            radius = m.sqrt(a[j][j] * a[j][j] + a[i][j] * a[i][j])
            c, s = a[j][j] / radius, a[i][j] / radius
            for k in range(j, n):
                a[j][k], a[i][k] = c * a[j][k] + s * a[i][k], c * a[i][k] - s * a[j][k]
    return sum((k + 1.0) * m.abs(a[k][k]) for k in range(n))


@program(size=64, small=6, numbers=lambda n: 2 * n)
def conjugate_gradients(m, numbers, n):
    """A chain of springs between walls, each mass also tied to its place."""
    ties, b = numbers[:n], numbers[n:]

    def times(v):
        left, right = [0.0, *v[:-1]], [*v[1:], 0.0]
        return [(2.0 + t) * x - p - q for t, x, p, q in zip(ties, v, left, right, strict=True)]

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    x, r, p = [0.0] * n, b, b
    size = dot(r, r)
    for _ in range(12 if n > 6 else 3):
        q = times(p)
        step = size / dot(p, q)
        x = [u + step * v for u, v in zip(x, p, strict=True)]
        r = [u - step * v for u, v in zip(r, q, strict=True)]
        before, size = size, dot(r, r)
        p = [u + size / before * v for u, v in zip(r, p, strict=True)]
    return dot(x, x)
