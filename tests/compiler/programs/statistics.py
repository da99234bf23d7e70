"""Likelihoods and other sums over observations."""

import random

from .registry import program


@program(size=120, small=6, numbers=lambda n: 5)
def logistic_regression(m, numbers, n):
    rng, total = random.Random(8), 0.0
    for _ in range(n):
        x, y = [rng.gauss(0, 1) for _ in range(4)], rng.choice([-1.0, 1.0])
        margin = y * (numbers[4] + sum(w * v for w, v in zip(numbers, x, strict=False)))
        total = total + m.log(1.0 + m.exp(-margin))
    return total / n + 0.01 * sum(w * w for w in numbers)


@program(size=60, small=6, numbers=lambda n: 9)
def mixture_of_normals(m, numbers, n):
    rng, total = random.Random(9), 0.0
    for _ in range(n):
        x = rng.gauss(0, 1)
        parts = [
            numbers[k] - m.log(numbers[6 + k]) - 0.5 * ((x - numbers[3 + k]) / numbers[6 + k]) ** 2 for k in range(3)
        ]
        total = total + m.logsumexp(parts)
    return total - n * m.logsumexp(numbers[:3])


@program(size=40, small=6, numbers=lambda n: n + 1)
def mean_field(m, numbers, n):
    """Magnetisations on a ring, each by its neighbours' until they settle."""
    coupling, *fields = numbers
    spins = [m.tanh(h) for h in fields]
    for _ in range(25 if n > 6 else 3):
        for i in range(n):
            spins[i] = m.tanh(fields[i] + coupling * (spins[i - 1] + spins[(i + 1) % n]))
    return sum(s * s for s in spins)
