"""Shapes, pictures, arms."""

import math
import random
from bisect import bisect_right

from .registry import program


@program(size=8, small=2, numbers=lambda n: [0.1, 0.2, 2.0, 0.6, 0.3, 0.5])
def ray_marching(m, numbers, n):
    """A sphere that melts into a floor, seen by n² rays; each goes as far as nothing is in its way, twelve times."""
    x, y, z, radius, melting, light = numbers
    total = 0.0
    for i in range(n):
        for j in range(n):
            dx, dy, dz = (i + 0.5) / n - 0.5, (j + 0.5) / n - 0.5, 1.0
            length = math.sqrt(dx * dx + dy * dy + dz * dz)
            dx, dy, dz = dx / length, dy / length, dz / length
            far = 0.0
            for _ in range(12):
                px, py, pz = far * dx, far * dy, far * dz
                ball = m.sqrt((px - x) ** 2 + (py - y) ** 2 + (pz - z) ** 2) - radius
                floor = py + 0.5
                near = m.maximum(melting - m.abs(ball - floor), 0.0) / melting
                far = far + m.minimum(ball, floor) - near * near * melting * 0.25
            total = total + light * m.exp(-0.3 * far)
    return total / (n * n)


@program(size=12, small=3, numbers=lambda n: 2 * n + 2)
def robot_arm(m, numbers, n):
    """An arm of n parts in a plane reaches for a point, by steps along the transposed Jacobian."""
    lengths, angles, goal = numbers[:n], list(numbers[n : 2 * n]), numbers[2 * n :]
    for _ in range(20 if n > 3 else 3):
        heading, x, y, joints = 0.0, 0.0, 0.0, []
        for length, angle in zip(lengths, angles, strict=True):
            joints.append((x, y))
            heading = heading + angle
            x, y = x + length * m.cos(heading), y + length * m.sin(heading)
        ex, ey = goal[0] - x, goal[1] - y
        angles = [a + 0.01 * ((x - jx) * ey - (y - jy) * ex) for a, (jx, jy) in zip(angles, joints, strict=True)]
    return ex * ex + ey * ey + 0.01 * sum(a * a for a in angles)


@program(size=16, small=4, numbers=lambda n: 3 * n * n)
def warped_picture(m, numbers, n):
    """Each pixel is fetched from elsewhere, between four others; the picture ends at its borders."""
    picture, right, down = ([numbers[n * (n * k + i) :][:n] for i in range(n)] for k in range(3))
    rng, total = random.Random(10), 0.0

    def at(i, j):
        return picture[min(max(i, 0), n - 1)][min(max(j, 0), n - 1)]

    for i in range(n):
        for j in range(n):
            k, o = i + rng.randrange(-2, 2), j + rng.randrange(-2, 2)
            u, v = down[i][j], right[i][j]
            above = (1.0 - v) * at(k, o) + v * at(k, o + 1)
            below = (1.0 - v) * at(k + 1, o) + v * at(k + 1, o + 1)
            total = total + ((1.0 - u) * above + u * below - rng.random()) ** 2
    return total


@program(size=30, small=6, numbers=lambda n: n)
def spline(m, numbers, n):
    """A natural cubic spline through n points, and how well it fits other points between them."""
    rng, y = random.Random(11), numbers
    x = [k + 0.6 * rng.random() for k in range(n)]
    h = [x[k + 1] - x[k] for k in range(n - 1)]
    c, d = [0.0], [0.0]
    for k in range(1, n - 1):
        bend = 6.0 * ((y[k + 1] - y[k]) / h[k] - (y[k] - y[k - 1]) / h[k - 1])
        pivot = 2.0 * (h[k - 1] + h[k]) - h[k - 1] * c[-1]
        c.append(h[k] / pivot)
        d.append((bend - h[k - 1] * d[-1]) / pivot)
    second = [0.0] * n
    for k in reversed(range(1, n - 1)):
        second[k] = d[k] - c[k] * second[k + 1]
    total = 0.0
    for _ in range(3 * n):
        where, seen = rng.uniform(x[0], x[-1]), rng.random()
        k = bisect_right(x, where, 1, n - 1) - 1
        a, b = (x[k + 1] - where) / h[k], (where - x[k]) / h[k]
        cubic = ((a**3 - a) * second[k] + (b**3 - b) * second[k + 1]) * h[k] * h[k] / 6.0
        total = total + (a * y[k] + b * y[k + 1] + cubic - seen) ** 2
    return total
