"""Light, qubits, bridges."""

import math

from .registry import program


@program(size=12, small=3, numbers=lambda n: 2 * n)
def thin_films(m, numbers, n):
    """Light of twenty colours through a stack of n layers: a product of matrices each, and what is reflected."""
    indices, thicknesses, total = [1.0 + x for x in numbers[:n]], numbers[n:], 0.0
    for colour in range(20):
        wavelength = 0.4 + 0.015 * colour
        a, b, c, d = 1.0, 0.0, 0.0, 1.0  # the matrix is (a, ib; ic, d)
        for index, thickness in zip(indices, thicknesses, strict=True):
            phase = 2.0 * math.pi * index * thickness / wavelength
            cos, sin = m.cos(phase), m.sin(phase)
            a, b = a * cos - b * index * sin, a * sin / index + b * cos
            c, d = c * cos + d * index * sin, d * cos - c * sin / index
        top = (a - 1.5 * d) ** 2 + (1.5 * b - c) ** 2
        bottom = (a + 1.5 * d) ** 2 + (1.5 * b + c) ** 2
        total = total + top / bottom
    return total / 20


@program(size=6, small=1, numbers=lambda n: 8 * n)
def quantum_circuit(m, numbers, n):
    """n layers of rotations of four qubits, each layer with a ring of controlled flips; how two qubits agree."""
    re, im = [1.0] + [0.0] * 15, [0.0] * 16
    for layer in range(n):
        for qubit in range(4):
            turn, tilt = numbers[8 * layer + 2 * qubit] / 2, numbers[8 * layer + 2 * qubit + 1] / 2
            c, s, p, q = m.cos(turn), m.sin(turn), m.cos(tilt), m.sin(tilt)
            for low in range(16):
                if not low >> qubit & 1:
                    high = low | 1 << qubit
                    re[low], re[high] = c * re[low] - s * re[high], s * re[low] + c * re[high]
                    im[low], im[high] = c * im[low] - s * im[high], s * im[low] + c * im[high]
                    re[low], im[low] = p * re[low] + q * im[low], p * im[low] - q * re[low]
                    re[high], im[high] = p * re[high] - q * im[high], p * im[high] + q * re[high]
        for qubit in range(4):
            flipped = [k ^ (k >> qubit & 1) << (qubit + 1) % 4 for k in range(16)]
            re, im = [re[k] for k in flipped], [im[k] for k in flipped]
    return sum((-1.0) ** (k ^ k >> 1) * (re[k] * re[k] + im[k] * im[k]) for k in range(16))


@program(size=6, small=1, numbers=lambda n: 5 * n + 1)
def truss(m, numbers, n):
    """A bridge of n square bays, each bar with an area of its own: how far it gives way under a load at each joint."""
    joints = [(float(k), float(level)) for k in range(n + 1) for level in range(2)]
    bars = [(2 * k, 2 * k + 1) for k in range(n + 1)]
    bars += [(2 * k + a, 2 * k + b) for k in range(n) for a, b in ((0, 2), (1, 3), (0, 3), (1, 2))]
    free = [k for k in range(2 * len(joints)) if k not in (0, 1, 2)]  # the first joints stand on a wall
    place, size = {k: row for row, k in enumerate(free)}, len(free)
    stiff, load = [[0.0] * size for _ in range(size)], [0.1] * size
    for area, (i, j) in zip(numbers, bars, strict=True):
        dx, dy = joints[j][0] - joints[i][0], joints[j][1] - joints[i][1]
        length = math.hypot(dx, dy)
        ends = [(2 * i, -dx), (2 * i + 1, -dy), (2 * j, dx), (2 * j + 1, dy)]
        for p, a in ends:
            for q, b in ends:
                if p in place and q in place and a * b != 0.0:
                    stiff[place[p]][place[q]] += area * a * b / length**3
    for k in range(size):
        for i in range(k + 1, size):
            factor = stiff[i][k] / stiff[k][k]
            for j in range(k + 1, size):
                stiff[i][j] = stiff[i][j] - factor * stiff[k][j]
            load[i] = load[i] - factor * load[k]
    moved = [0.0] * size
    for k in reversed(range(size)):
        moved[k] = (load[k] - sum(stiff[k][j] * moved[j] for j in range(k + 1, size))) / stiff[k][k]
    return 0.1 * sum(moved)
