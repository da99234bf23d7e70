"""Things that move: differential equations, on grids and of particles."""

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
