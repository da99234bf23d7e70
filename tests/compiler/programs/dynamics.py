"""Things that move: differential equations, on grids and of particles."""

import random

from .registry import program


@program(size=32, small=8, numbers=lambda n: n * n + 1)
def heat_in_a_plate(m, numbers, n):
    """Explicit steps of the heat equation, with fixed temperatures at the edges."""
    conductivity, *cells = numbers
    u = [cells[n * i : n * i + n] for i in range(n)]
    for _ in range(50 if n > 8 else 4):
        new = [row[:] for row in u]
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                around = u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1]
                new[i][j] = u[i][j] + 0.2 * conductivity * (around - 4 * u[i][j])
        u = new
    return sum(x * x for row in u for x in row)


@program(size=200, small=20, numbers=lambda n: n + 1)
def heat_in_a_rod(m, numbers, n):
    conductivity, *u = numbers
    for _ in range(40 if n > 20 else 5):
        inside = [u[i] + 0.2 * conductivity * (u[i - 1] - 2 * u[i] + u[i + 1]) for i in range(1, n - 1)]
        u = [u[0], *inside, u[-1]]
    return sum(x * x for x in u)


@program(size=100, small=12, numbers=lambda n: n + 1)
def heat_on_a_ring(m, numbers, n):
    conductivity, *u = numbers
    for _ in range(40 if n > 12 else 5):
        u = [u[i] + 0.2 * conductivity * (u[i - 1] - 2 * u[i] + u[(i + 1) % n]) for i in range(n)]
    return sum(x * x for x in u)


@program(size=60, small=8, numbers=lambda n: n + 1)
def implicit_heat(m, numbers, n):
    """Implicit steps: a tridiagonal system each, by elimination."""
    conductivity, *u = numbers
    for _ in range(20 if n > 8 else 3):
        r = 0.5 * conductivity
        c, d = [r / (1 + 2 * r)], [u[0] / (1 + 2 * r)]
        for i in range(1, n):
            pivot = 1 + 2 * r - r * c[-1]
            d.append((u[i] + r * d[-1]) / pivot)
            c.append(r / pivot)
        u = [d[-1]]
        for i in reversed(range(n - 1)):
            u.insert(0, d[i] + c[i] * u[0])
    return sum(x * x for x in u)


@program(size=500, small=20, numbers=lambda n: [1.2, 0.3, 9.8, 0.7])
def pendulum(m, numbers, n):
    """Runge-Kutta's fourth order."""
    angle, speed, gravity, friction = numbers

    def slope(a, s):
        return s, -gravity * m.sin(a) - friction * s

    h, total = 0.01, 0.0
    for _ in range(n):
        k1 = slope(angle, speed)
        k2 = slope(angle + h / 2 * k1[0], speed + h / 2 * k1[1])
        k3 = slope(angle + h / 2 * k2[0], speed + h / 2 * k2[1])
        k4 = slope(angle + h * k3[0], speed + h * k3[1])
        angle = angle + h / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
        speed = speed + h / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])
        total = total + angle * angle
    return total


@program(size=8, small=3, numbers=lambda n: 4 * n)
def bodies_by_pairs(m, numbers, n):
    """Gravity in a plane, each pair of bodies once."""
    x, y, vx, vy = (list(numbers[k * n : (k + 1) * n]) for k in range(4))
    for _ in range(20 if n > 3 else 3):
        fx, fy = [0.0] * n, [0.0] * n
        for i in range(n):
            for j in range(i + 1, n):
                dx, dy = x[j] - x[i], y[j] - y[i]
                strength = 1.0 / (dx * dx + dy * dy + 0.1) ** 1.5
                fx[i], fy[i] = fx[i] + strength * dx, fy[i] + strength * dy
                fx[j], fy[j] = fx[j] - strength * dx, fy[j] - strength * dy
        for i in range(n):
            vx[i], vy[i] = vx[i] + 0.01 * fx[i], vy[i] + 0.01 * fy[i]
            x[i], y[i] = x[i] + 0.01 * vx[i], y[i] + 0.01 * vy[i]
    return sum(a * a + b * b for a, b in zip(x, y, strict=True))


@program(size=30, small=5, numbers=lambda n: 3 * n)
def coupled_oscillators(m, numbers, n):
    """Kuramoto's model: each phase is drawn to all others."""
    phase, speed, pull = (list(numbers[k * n : (k + 1) * n]) for k in range(3))
    for _ in range(10 if n > 5 else 2):
        drawn = [sum(m.sin(phase[j] - phase[i]) for j in range(n)) for i in range(n)]
        phase = [phase[i] + 0.05 * (speed[i] + pull[i] * drawn[i] / n) for i in range(n)]
    return sum(m.cos(p) for p in phase)


@program(size=64, small=4, numbers=lambda n: n + 1)
def multigrid(m, numbers, n):
    """Poisson's equation on n intervals: V-cycles, in each of which coarser grids correct the finer ones."""
    stiffness, *source = numbers

    def smooth(u, f, h):
        around = [u[i - 1] + u[i + 1] for i in range(1, len(u) - 1)]
        inside = [u[i + 1] / 3 + (a + h * h * f[i + 1] / stiffness) / 3 for i, a in enumerate(around)]
        return [0.0, *inside, 0.0]

    def cycle(u, f, h):
        u = smooth(u, f, h)
        if len(u) > 3:
            r = [f[i] - stiffness * (2 * u[i] - u[i - 1] - u[i + 1]) / (h * h) for i in range(1, len(u) - 1)]
            r = [0.0, *r, 0.0]
            coarse = [0.25 * (r[2 * i - 1] + 2 * r[2 * i] + r[2 * i + 1]) for i in range(1, len(u) // 2)]
            fix = cycle([0.0] * (len(u) // 2 + 1), [0.0, *coarse, 0.0], 2 * h)
            between = [fix[i // 2] if i % 2 == 0 else 0.5 * (fix[i // 2] + fix[i // 2 + 1]) for i in range(len(u))]
            u = [a + b for a, b in zip(u, between, strict=True)]
        return smooth(u, f, h)

    u = [0.0] * (n + 1)
    for _ in range(3):
        u = cycle(u, [*source, 0.0], 1.0 / n)
    return sum(x * x for x in u)


@program(size=120, small=12, numbers=lambda n: [10.0, 28.0, 8 / 3, 1.0, 1.2, 20.0])
def lorenz_fit(m, numbers, n):
    """Lorenz's weather by Runge-Kutta, compared with what is observed at every fifth step."""
    sigma, rho, beta, *state = numbers
    rng, h, total = random.Random(14), 0.005, 0.0

    def slope(x, y, z):
        return sigma * (y - x), x * (rho - z) - y, x * y - beta * z

    def moved(by, slopes):
        return [a + by * b for a, b in zip(state, slopes, strict=True)]

    for step in range(n):
        k1 = slope(*state)
        k2 = slope(*moved(h / 2, k1))
        k3 = slope(*moved(h / 2, k2))
        k4 = slope(*moved(h, k3))
        state = [s + h / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)]
        if step % 5 == 4:
            total = total + (state[0] - rng.gauss(0, 5)) ** 2 + (state[2] - rng.gauss(25, 5)) ** 2
    return total / n


@program(size=8, small=3, numbers=lambda n: n * n + 2)
def cloth(m, numbers, n):
    """Masses on a grid, hung up by the top row, with springs to the right and down."""
    stiffness, friction, *weight = numbers
    x, y = [[1.0 * j for j in range(n)] for _ in range(n)], [[-1.0 * i for _ in range(n)] for i in range(n)]
    vx, vy = [[0.0] * n for _ in range(n)], [[0.0] * n for _ in range(n)]
    for _ in range(10 if n > 3 else 3):
        fx, fy = [[0.0] * n for _ in range(n)], [[-weight[n * i + j] for j in range(n)] for i in range(n)]
        for i in range(n):
            for j in range(n):
                for k, o in ((i, j + 1), (i + 1, j)):
                    if k < n and o < n:
                        dx, dy = x[k][o] - x[i][j], y[k][o] - y[i][j]
                        pull = stiffness * (1.0 - 0.9 / m.sqrt(dx * dx + dy * dy))
                        fx[i][j], fy[i][j] = fx[i][j] + pull * dx, fy[i][j] + pull * dy
                        fx[k][o], fy[k][o] = fx[k][o] - pull * dx, fy[k][o] - pull * dy
        for i in range(1, n):
            for j in range(n):
                vx[i][j] = vx[i][j] + 0.05 * (fx[i][j] - friction * vx[i][j])
                vy[i][j] = vy[i][j] + 0.05 * (fy[i][j] - friction * vy[i][j])
                x[i][j], y[i][j] = x[i][j] + 0.05 * vx[i][j], y[i][j] + 0.05 * vy[i][j]
    return sum(b * b for b in y[-1]) + sum((a - k) ** 2 for k, a in enumerate(x[-1]))


@program(size=120, small=8, numbers=lambda n: [0.5, 0.6, 0.4, 0.3, 0.01])
def epidemic(m, numbers, n):
    """The exposed and the infectious pass through stages; a third of the way in, people keep their distance."""
    contacts, distance, onset, recovery, start = numbers
    rng, total = random.Random(15), 0.0
    healthy, exposed, infectious = 1.0 - start, [start, 0.0, 0.0], [0.0] * 4
    for day in range(n):
        rate = contacts if day < n // 3 else contacts * distance
        new = rate * healthy * sum(infectious)
        out = [onset * e for e in exposed]
        well = [recovery * i for i in infectious]
        healthy = healthy - new
        exposed = [e + i - o for e, i, o in zip(exposed, [new, *out], out, strict=False)]
        infectious = [e + i - o for e, i, o in zip(infectious, [out[-1], *well], well, strict=False)]
        cases = out[-1] + 1e-4
        total = total + cases - 0.01 * rng.random() * m.log(cases)
    return total
