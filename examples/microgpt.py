"""A GPT that learns to spell names, written in scalars: one layer, 4,192 parameters, after Karpathy's microgpt.

    python examples/microgpt.py                        # 1,000 steps on names.txt, one name a step, compiled
    python examples/microgpt.py --mode eager           # the same steps on Values, as one would write them first
    python examples/microgpt.py --mode ragged          # the same, with a program for each length of a name
    python examples/microgpt.py --mode batched         # 512 names a step, side by side in vectors and on all cores
    python examples/microgpt.py FILE                   # other names, or other words: whatever is in a text file

The model is the same code in all of them. It computes the loss of one name, a number at a time, and knows of no
batch, no tensor and no device.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from itertools import chain, groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import chainrule
from chainrule import Value, dot, losses, nn, optim, softmax

NAMES = Path(__file__).with_name("names.txt")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
EDGE = 0  # the token before the first letter and after the last; letters are 1 to 26
TOKENS, BLOCK, WIDTH, HEADS = 1 + len(LETTERS), 16, 16, 4
HEAD = WIDTH // HEADS
SIZES, LANES = (6, 8, 10, BLOCK), 16  # of batches: names are filled up to one of these, so many at a time

Vector = list[Any]
Matrix = list[Vector]


class GPT(nn.Module):
    """Tokens in, and for each of them the logits of the one that follows; no biases."""

    def __init__(self, rng: random.Random) -> None:
        def matrix(rows: int, columns: int) -> Matrix:
            return [[Value(rng.gauss(0.0, 0.08)) for _ in range(columns)] for _ in range(rows)]

        self.token = matrix(TOKENS, WIDTH)
        self.position = matrix(BLOCK, WIDTH)
        self.query, self.key, self.value, self.mix = (matrix(WIDTH, WIDTH) for _ in range(4))
        self.widen = matrix(4 * WIDTH, WIDTH)
        self.narrow = matrix(WIDTH, 4 * WIDTH)
        self.predict = matrix(TOKENS, WIDTH)

    def __call__(self, tokens: Sequence[Any]) -> list[Vector]:
        x = [normalised(plus(row(self.token, token), self.position[i])) for i, token in enumerate(tokens)]
        seen = [normalised(v) for v in x]
        queries, keys, values = ([product(m, v) for v in seen] for m in (self.query, self.key, self.value))
        heard = [attention(query, keys, values, i) for i, query in enumerate(queries)]
        x = [plus(v, product(self.mix, h)) for v, h in zip(x, heard, strict=True)]
        hidden = [[h.relu() for h in product(self.widen, normalised(v))] for v in x]
        x = [plus(v, product(self.narrow, h)) for v, h in zip(x, hidden, strict=True)]
        return [product(self.predict, v) for v in x]

    def loss(self, tokens: Sequence[Any], targets: Sequence[Any], weights: Sequence[Any]) -> Any:
        """How surprising the targets are, in nats: a weighted sum over the positions."""
        surprises = [losses.cross_entropy([z], [t]) for z, t in zip(self(tokens), targets, strict=True)]
        return dot(weights, surprises)

    def surprise(self, tokens: Sequence[Any]) -> Any:
        """How surprising each of a name's tokens is after those before it, on average."""
        return losses.cross_entropy(self(tokens[:-1]), tokens[1:])


def attention(query: Vector, keys: Matrix, values: Matrix, position: int) -> Vector:
    """What this position hears from those before it and from itself, a few numbers from each head.

    Later positions are given the score -inf, and so the share 0, rather than left out: every position then does the
    same, and the compiler finds one loop over all of them.
    """
    later = [0.0 if k <= position else -float("inf") for k in range(len(keys))]
    heard = []
    for start in range(0, WIDTH, HEAD):
        head = slice(start, start + HEAD)
        scores = [dot(query[head], key[head]) / HEAD**0.5 + bar for key, bar in zip(keys, later, strict=True)]
        shares = softmax(scores)
        heard += [dot(shares, column) for column in zip(*(value[head] for value in values), strict=True)]
    return heard


def row(matrix: Matrix, index: Any) -> Vector:
    """The row at an index; at one that is not known yet, while a function is traced, a sum over all rows."""
    if isinstance(index, int):
        return matrix[index]
    chosen = [chainrule.where(chainrule.eq(index, float(k)), 1.0, 0.0) for k in range(len(matrix))]
    return [dot(chosen, column) for column in zip(*matrix, strict=True)]


def product(matrix: Matrix, x: Vector) -> Vector:
    return [dot(weights, x) for weights in matrix]


def plus(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def normalised(x: Vector) -> Vector:
    """Divided by the root of their mean square (RMSNorm)."""
    scale = (dot(x, x) / len(x) + 1e-5) ** -0.5
    return [number * scale for number in x]


Example = tuple[list[int], list[int], list[float]]


def read_names(path: Path) -> list[str]:
    """The words of a text file that consist of the letters a to z, capital or not, and fit into a block."""
    words = path.read_text(encoding="utf-8").lower().split()
    names = [word for word in words if len(word) < BLOCK and set(word) <= set(LETTERS)]
    if not names:
        raise ValueError(f"`{path}` holds no word of 1 to {BLOCK - 1} letters a to z: give a list of names, one a line")
    return names


def example(name: str) -> Example:
    """A name as tokens, the tokens that follow them, and the weight of each position in the mean."""
    tokens = whole(name)
    return tokens[:-1], tokens[1:], [1 / (len(name) + 1)] * (len(name) + 1)


def whole(name: str) -> list[int]:
    """All tokens of a name."""
    return [EDGE, *[byte - ord("a") + 1 for byte in name.encode()], EDGE]


def padded(
    names: Sequence[str], positions: int = BLOCK, multiple: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Examples as three matrices with a row a name, filled up with positions, and then rows, of weight 0."""
    rows = [*names, *[""] * (-len(names) % multiple)]
    text = "".join([name.ljust(positions, "`") for name in rows])  # the sign before "a", so that it counts as 0
    targets = (np.frombuffer(text.encode(), dtype=np.uint8) - float(ord("`"))).reshape(len(rows), positions)
    tokens = np.full(targets.shape, float(EDGE))
    tokens[:, 1:] = targets[:, :-1]
    lengths = np.array([len(name) + 1.0 for name in rows])[:, None]
    weights = (np.arange(positions) < lengths) / lengths
    weights[len(names) :] = 0.0
    return tokens, targets, weights


class Trainer:
    """Steps of Adam on the mean loss of a few names. `step` returns the loss from before."""

    def __init__(self, gpt: GPT, steps: int, dtype: str = "float64", threads: int | None = None) -> None:
        self.gpt = gpt
        self.threads = threads  # of batches; None: as many as pay
        self.optimizer = optim.Adam(gpt.parameters(), lr=optim.linear(0.01, 0.0, steps), betas=(0.85, 0.99))
        self.loss = chainrule.compile(gpt.loss, wrt=gpt.parameters(), dtype=dtype)  # done when it is first called

    def train(self, batches: Sequence[list[str]]) -> list[float]:
        return [self.step(names) for names in batches]

    def step(self, names: list[str]) -> float:
        self.optimizer.zero_grad()
        loss = self.backward(names)
        self.optimizer.step()
        return loss

    def backward(self, names: list[str]) -> float:
        """The mean loss of these names; its gradient is added to that of the parameters."""
        return self.loss.batch(*padded(names))


class Eager(Trainer):
    """On Values."""

    def backward(self, names: list[str]) -> float:
        loss = chainrule.mean([self.gpt.loss(*example(name)) for name in names])
        loss.backward()
        return loss.data


class Compiled(Trainer):
    """One name a step. Loss, gradient and Adam are one native program, which goes from name to name by itself."""

    def train(self, batches: Sequence[list[str]]) -> list[float]:
        return self.loss.train(self.optimizer, *padded([name for (name,) in batches]))


class Ragged(Trainer):
    """The same, with a program for each length that names have: nothing is filled up, and more is compiled."""

    def __init__(self, gpt: GPT, steps: int, dtype: str = "float64", threads: int | None = None) -> None:
        super().__init__(gpt, steps, dtype, threads)
        self.loss = chainrule.compile(gpt.surprise, wrt=gpt.parameters(), dtype=dtype)

    def train(self, batches: Sequence[list[str]]) -> list[float]:
        return self.loss.train(self.optimizer, [whole(name) for (name,) in batches])

    def backward(self, names: list[str]) -> float:
        return self.loss.batch([whole(name) for name in names])


class Batched(Trainer):
    """Many names a step, side by side in vectors, and on all cores.

    They go by length: most have six letters or so, and most of the work on a whole block would be for nothing.
    """

    def backward(self, names: list[str]) -> float:
        names, loss = sorted(names, key=len), 0.0
        rows = [names[start : start + LANES] for start in range(0, len(names), LANES)]
        for positions, group in groupby(rows, key=positions_for):
            tokens, targets, weights = padded([*chain(*group)], positions, LANES)
            loss += self.loss.batch(tokens, targets, weights / len(names), reduce="sum", threads=self.threads)
        return loss


def positions_for(names: list[str]) -> int:
    """What names are filled up to, of which the last is the longest."""
    return next(size for size in SIZES if len(names[-1]) < size)


TRAINERS = {"eager": Eager, "compiled": Compiled, "ragged": Ragged, "batched": Batched}


def sample(gpt: GPT, rng: random.Random, temperature: float = 0.5) -> str:
    """A name that the model makes up, letter by letter."""
    tokens = [EDGE]
    while len(tokens) < BLOCK:
        chances = softmax([logit.data / temperature for logit in gpt(tokens)[-1]])
        (token,) = rng.choices(range(TOKENS), chances)
        if token == EDGE:
            break
        tokens.append(token)
    return "".join(LETTERS[token - 1] for token in tokens[1:])


def in_batches(names: list[str], size: int, steps: int, rng: random.Random) -> list[list[str]]:
    """The names in random order, so many a step, from the start again when they have all been seen."""
    order = rng.sample(names, len(names))
    return [[order[i % len(order)] for i in range(step * size, (step + 1) * size)] for step in range(steps)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a GPT on names and let it make some up.")
    parser.add_argument("file", nargs="?", type=Path, default=NAMES, help="a text file with a name in each line")
    parser.add_argument("--mode", choices=TRAINERS, default="compiled")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=512, help="names in a step of the mode `batched`")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64", help="of compiled modes")
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()

    rng = random.Random(options.seed)
    names = read_names(options.file)
    batches = in_batches(names, options.batch if options.mode == "batched" else 1, options.steps, rng)
    gpt = GPT(rng)
    print(f"{len(names):,} names, {len(gpt.parameters()):,} parameters, {options.steps:,} steps, {options.mode}")
    started = perf_counter()
    trainer = TRAINERS[options.mode](gpt, options.steps, options.dtype)
    surprises = trainer.train(batches[:1])
    ready = perf_counter()
    surprises += trainer.train(batches[1:])
    done = perf_counter()
    tenth = max(1, len(surprises) // 10)
    print(f"loss {np.mean(surprises[:tenth]):.3f} → {np.mean(surprises[-tenth:]):.3f}, a tenth of the steps each")
    seen = sum(map(len, batches[1:])) or 1
    print(f"{ready - started:.1f} s until the first step was done; then {(done - ready) / seen * 1e6:,.1f} µs a name")
    print("made up:", ", ".join(sample(gpt, rng) for _ in range(20)))


if __name__ == "__main__":
    main()
