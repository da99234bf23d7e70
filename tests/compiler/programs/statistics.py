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


@program(size=60, small=6, numbers=lambda n: 3)
def survival(m, numbers, n):
    """Cox's partial likelihood: who dies is compared with all who are still alive. Some leave the study before."""
    rng, total = random.Random(18), 0.0
    traits = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(n)]
    risks = [m.exp(sum(w * x for w, x in zip(numbers, trait, strict=True))) for trait in traits]
    for k in range(n):
        if rng.random() < 0.7:
            total = total + m.log(risks[k]) - m.log(sum(risks[k:]))
    return -total / n


@program(size=14, small=5, numbers=lambda n: [1.0, 0.5, 0.3])
def gaussian_process(m, numbers, n):
    """The marginal likelihood of a height, a width and a noise; Cholesky's loops are written out."""
    height, width, noise = numbers
    rng = random.Random(19)
    x = sorted(rng.uniform(0, 5) for _ in range(n))
    y = [rng.gauss(0, 1) for _ in range(n)]
    a = [[height * m.exp(-0.5 * ((x[i] - x[j]) / width) ** 2) for j in range(i + 1)] for i in range(n)]
    total = 0.0
    for i in range(n):
        a[i][i] = a[i][i] + noise
        for j in range(i + 1):
            for k in range(j):
                a[i][j] = a[i][j] - a[i][k] * a[j][k]
            a[i][j] = m.sqrt(a[i][i]) if i == j else a[i][j] / a[j][j]
        for k in range(i):
            y[i] = y[i] - a[i][k] * y[k]
        y[i] = y[i] / a[i][i]
        total = total + 0.5 * y[i] * y[i] + m.log(a[i][i])
    return total


@program(size=40, small=4, numbers=lambda n: [0.9, 0.4, 0.5])
def particle_filter(m, numbers, n):
    """n particles carry their weights along for twenty observations."""
    memory, wobble, noise = numbers
    rng = random.Random(20)
    x, weight = [0.0] * n, [0.0] * n
    for _ in range(20 if n > 4 else 3):
        seen = rng.gauss(0, 1)
        x = [memory * m.sin(p) + wobble * rng.gauss(0, 1) for p in x]
        weight = [w - 0.5 * ((seen - p) / noise) ** 2 - m.log(noise) for w, p in zip(weight, x, strict=True)]
    return -m.logsumexp(weight)
