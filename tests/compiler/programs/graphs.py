"""Networks of pages and of friends: neighbours are whoever they are."""

import random

from .registry import program


@program(size=20, small=5, numbers=lambda n: 3 * n + 1)
def page_rank(m, numbers, n):
    """Each page links to three others, with weights of its own."""
    damping, *weights = numbers
    rng, links = random.Random(12), []
    for page in range(n):
        out = weights[3 * page : 3 * page + 3]
        links += [(page, rng.randrange(n), w / sum(out)) for w in out]
    rank = [1.0 / n] * n
    for _ in range(20 if n > 5 else 3):
        new = [(1.0 - damping) / n] * n
        for page, other, share in links:
            new[other] = new[other] + damping * share * rank[page]
        rank = new
    return sum((k + 1.0) * r * r for k, r in enumerate(rank))


@program(size=24, small=4, numbers=lambda n: 4 * n + 2 * 16 + 4)
def message_passing(m, numbers, n):
    """A graph neural network: three rounds in which each node hears the mean of its neighbours, one to five of them."""
    rng = random.Random(13)
    neighbours = [rng.sample(range(n), rng.randrange(1, min(n, 6))) for _ in range(n)]
    state, weights = [numbers[4 * k : 4 * k + 4] for k in range(n)], numbers[4 * n :]
    own, heard = ([weights[k + 4 * i : k + 4 * i + 4] for i in range(4)] for k in (0, 16))
    for _ in range(3):
        means = [[sum(state[k][i] for k in around) / len(around) for i in range(4)] for around in neighbours]
        state = [
            [m.tanh(sum(own[i][j] * s[j] + heard[i][j] * mean[j] for j in range(4))) for i in range(4)]
            for s, mean in zip(state, means, strict=True)
        ]
    scores = [sum(w * x for w, x in zip(weights[32:], s, strict=True)) for s in state]
    return sum((m.sigmoid(score) - rng.randrange(2)) ** 2 for score in scores)
