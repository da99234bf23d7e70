"""A GPT that learns to spell names, with the sizes of microgpt: one layer, 27 tokens, 16 positions, 16 numbers a token.

Everybody starts from the same parameters and takes the same steps of Adam, a name each. The tokens are the letters, and
0 for where a name begins and ends.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[3]
SHARED = HERE.parent / "shared" / "data" / "names.txt"  # 32,033 names, where there is such a folder
OWN = HERE / "examples" / "names.txt"

TOKENS, POSITIONS, WIDTH, HEADS = 27, 16, 16, 4
HEAD = WIDTH // HEADS
RATE, BETA1, BETA2, EPSILON, STEPS = 0.01, 0.85, 0.99, 1e-8, 1000  # Adam's, and how long until the rate is 0

SHAPES = {
    "token": (TOKENS, WIDTH),
    "position": (POSITIONS, WIDTH),
    **dict.fromkeys(("query", "key", "value", "mix"), (WIDTH, WIDTH)),
    "widen": (4 * WIDTH, WIDTH),
    "narrow": (WIDTH, 4 * WIDTH),
    "predict": (TOKENS, WIDTH),
}


def problem(_: int) -> list[str]:
    """Names in random order."""
    words = (SHARED if SHARED.exists() else OWN).read_text(encoding="utf-8").lower().split()
    names = [word for word in words if word.isascii() and word.isalpha() and len(word) < POSITIONS]
    return random.Random(42).sample(names, len(names))


def weights(value: Callable[[float], Any] = float) -> dict[str, list[list[Any]]]:
    """Random matrices, the same at every call."""
    draw = random.Random(42).gauss
    return {key: [[value(draw(0, 0.08)) for _ in range(m)] for _ in range(n)] for key, (n, m) in SHAPES.items()}


def flat(matrices: dict[str, list[list[Any]]]) -> list[Any]:
    return [number for matrix in matrices.values() for row in matrix for number in row]


def tokens_of(letters: str) -> list[int]:
    """A name as numbers, with 0 before it and after."""
    return [0, *(ord(letter) - ord("a") + 1 for letter in letters), 0]
