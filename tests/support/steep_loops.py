"""Random loops in which what is infinite, or no number, goes into conditions and whole numbers too."""

import math

import chainrule
from chainrule import gt, logsumexp, where

STEEP = ("exp", "log", "sqrt", "log1p", "atan", "relu", "floor", "sign", "rint", "abs")
JOINED = ("add", "sub", "mul", "maximum", "minimum", "chosen", "where", "logsumexp")
STRANGE = (math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0)


def random_turn(rng):
    """Lines of a turn that has four numbers: an op, and which of the numbers before it takes."""
    return [
        (rng.choice(STEEP if rng.random() < 0.35 else JOINED), [rng.randrange(size) for _ in range(3)])
        for size in range(4, 4 + rng.randrange(5, 20))
    ]


def after_turns(lines, numbers, turns=6):
    for _ in range(turns):
        numbers = [*numbers]
        for op, places in lines:
            a, b, c = (numbers[place] for place in places)
            if op == "chosen":
                found = where(gt(a * b, c), a, c) * 0.5
            elif op == "where":
                found = where(gt(c, 0.5), a, b)
            elif op == "logsumexp":
                found = logsumexp([a, b, c])
            else:
                found = getattr(chainrule, op)(*([a] if op in STEEP else [a, b]))
            numbers.append(found)
        numbers = numbers[-4:]
    return numbers[-1] + 0.3 * numbers[-2] + numbers[-3] * numbers[-4]
