"""The GPT of lesson 14: built by the learner's own class, trained on names by a WebAssembly module of its graph."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, isclose
from typing import Any

from chainrule import optim
from chainrule.core.value import Value
from chainrule.learn.names import NAMES
from chainrule.learn.own_module import gradient_of, graph_of, value_at
from chainrule.learn.own_program import Program, assemble
from chainrule.learn.pace import repeat
from chainrule.wasm import WasmProgram
from chainrule.wasm.browser import Instance

SIGNS = ".abcdefghijklmnopqrstuvwxyz"  # tokens; the dot is where a name begins and ends
TOKENS, WIDTH, BLOCK = len(SIGNS), 12, 8  # positions of a name, its dot included
OTHER = "zoe"  # a name to compare with
PATIENCE = 8.0  # seconds that a learner's `backward` may take for one name
FEWEST = 20  # names to learn from
SIZE, TURNS = 4, 25  # names in a step, steps in a moment
RATE, TEMPERATURE, SAMPLES = 0.3, 0.7, 12
SILENCE = 0.7  # seconds between names that are made up, which take as long as hundreds that are learned
MOST_LOSSES = 256  # kept; then two become one


def read_names(text: str) -> list[str]:
    """The different words of a text that fit, in small letters.

    >>> names = read_names(" ".join(f"Ada{letter}" for letter in SIGNS[1:]))
    >>> names[:2], len(names)
    (['adaa', 'adab'], 26)
    """
    names = list(dict.fromkeys(word for word in re.findall(r"[^\W\d_]+", text.lower()) if _fits(word)))
    if len(names) < FEWEST:
        raise ValueError(
            f"the text has {len(names)} different words of at most {BLOCK - 1} letters from a to z: "
            f"give at least {FEWEST}, such as names, towns or dishes"
        )
    return names


def _fits(word: str) -> bool:
    return len(word) < BLOCK and set(word) <= set(SIGNS[1:])


def one_hot(tokens: Sequence[int], height: float = 1.0) -> list[list[float]]:
    """A list of 27 numbers for each position: all 0 but one; beyond the tokens only zeros."""
    rows = [[0.0] * TOKENS for _ in range(BLOCK)]
    for row, token in zip(rows, tokens, strict=False):
        row[token] = height
    return rows


def example(name: str) -> tuple[list[list[float]], list[list[float]]]:
    """What a name asks and what the answers are. The answers add up to 1, so that the loss is a mean."""
    letters = [SIGNS.index(letter) for letter in name]
    return one_hot([0, *letters]), one_hot([*letters, 0], 1.0 / (len(letters) + 1))


Rows = Sequence[Sequence[float]]
SMALL: tuple[Rows, Rows] = (  # a name of three letters out of six, asked and answered
    [[1.0, 0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0, 0], [0, 0, 0, 0, 0, 1.0], [0, 1.0, 0, 0, 0, 0]],
    [[0, 0, 0.25, 0, 0, 0], [0, 0, 0, 0, 0, 0.25], [0, 0.25, 0, 0, 0, 0], [0.25, 0, 0, 0, 0, 0]],
)


def flat(rows: Iterable[Iterable[Any]]) -> list[Any]:
    """All numbers of a matrix."""
    return [number for row in rows for number in row]


class Recorded:
    """The graph of one name, as the learner's program builds it."""

    def __init__(self, program: Program, asked: Rows, answers: Rows, width: int = WIDTH, seed: int = 1) -> None:
        make, self.surprise = program.names["Value"], program.names["surprise"]
        random.seed(seed)
        started = time.perf_counter()
        self.model = program.names["GPT"](len(asked[0]), width, len(asked))
        self.asked, self.answers = ([[make(x) for x in row] for row in rows] for rows in (asked, answers))
        self.scores, self.looks, self.loss = self._said(self.asked, self.answers)
        self.forward_seconds = time.perf_counter() - started
        self.parameters = self.model.parameters()
        self.graph = graph_of([self.loss], [*flat(self.asked), *flat(self.answers)], self.parameters)

    def _said(self, asked: list[list[Any]], answers: list[list[Any]]) -> tuple[Any, Any, Any]:
        scores, looks = self.model(asked)
        return scores, looks, sum(self.surprise(s, t) for s, t in zip(scores, answers, strict=True))

    def backward_seconds(self) -> float:
        """Run the learner's `backward`; how long it took."""
        started = time.perf_counter()
        self.loss.backward()
        return time.perf_counter() - started

    def check_gradient(self) -> None:
        """Raises an exception unless the gradients that `backward` left are those of the graph."""
        for parameter, slope in zip(self.parameters, gradient_of(self.graph), strict=True):
            if not isclose(parameter.grad, slope, rel_tol=1e-6, abs_tol=1e-9):
                raise ValueError(f"a gradient is {parameter.grad:g} and should be {slope:g}")

    def check_loss(self, asked: Rows, answers: Rows) -> None:
        """Raises an exception unless the graph computes the loss of another name too, and each look adds up to 1."""
        make = type(self.parameters[0])
        given = [[[make(x) for x in row] for row in rows] for rows in (asked, answers)]
        *_, loss = self._said(*given)
        if not isclose(float(loss.data), value_at(self.graph, [*flat(asked), *flat(answers)]), rel_tol=1e-6):
            raise ValueError("the graph of one name does not compute the loss of another")
        if [len(shares) for shares in self.looks] != list(range(1, len(asked) + 1)):
            raise ValueError("attention does not return a share for each key")

    def trainer(self, rate: float) -> WasmProgram:
        """A module that trains: inputs are questions, then answers."""
        stand_ins = [Value(parameter.data) for parameter in self.parameters]
        return WasmProgram(self.graph, optim.SGD(stand_ins, lr=rate))

    def speaker(self) -> WasmProgram:
        """A module that answers: scores of all positions, then what each looked at."""
        results = [*flat(self.scores), *flat(self.looks)]
        return WasmProgram(graph_of(results, flat(self.asked), self.parameters))


@dataclass(frozen=True)
class Alone:
    """How long the learner's class takes for one name by itself; at least so long, if it would take very long."""

    seconds: float
    is_measured: bool

    @classmethod
    def of(cls, small: Recorded, backward: float, whole: Recorded) -> Alone:
        """From a `backward` on a small graph. One that looks nodes up in a list takes quadratic time."""
        growth = len(whole.graph.rules) / len(small.graph.rules)
        if backward * growth**2 > PATIENCE:
            return cls(whole.forward_seconds + backward * growth, False)
        seconds = whole.forward_seconds + whole.backward_seconds()
        whole.check_gradient()
        return cls(seconds, True)


class MadeUpNames:
    """Names that the learner's GPT makes up, while it learns from others."""

    def __init__(self, settings: dict[str, Any], run: Callable[[WasmProgram], Any] = Instance) -> None:
        seed, self.names = int(settings.get("seed", 1)), read_names(settings.get("text") or NAMES)
        self.rate, self.word = float(settings.get("lr", RATE)), "emma"
        recorded: Recorded
        alone: Alone

        def attempt(program: Program) -> None:
            nonlocal recorded, alone
            small = Recorded(program, *SMALL, width=WIDTH // 2, seed=seed)
            backward = small.backward_seconds()
            small.check_gradient()
            small.check_loss(*(rows[::-1] for rows in SMALL))
            recorded = Recorded(program, *example(self.names[0]), seed=seed)
            recorded.check_loss(*example(OTHER))
            alone = Alone.of(small, backward, recorded)

        self.program = assemble(settings["program"], (), attempt)
        started = time.perf_counter()
        trainer, speaker = recorded.trainer(self.rate), recorded.speaker()
        self.trainer, self.speaker = run(trainer), run(speaker)
        self.nodes = len(recorded.graph.rules)
        self.facts = {
            "of": len(self.names),
            "parameters": len(recorded.parameters),
            "python": 1.0 / alone.seconds,
            "atMost": not alone.is_measured,
            "bytes": len(trainer.binary) + len(speaker.binary),
            "building": time.perf_counter() - started,
        }
        self.rng = random.Random(seed)
        order = self.rng.sample(self.names, len(self.names))
        self.trainer.load([flat(flat(example(name))) for name in order])
        self.losses, self.every = list[float](), 1  # a loss for so many moments
        self.moments, self.sum, self.seconds = 0, 0.0, 0.0
        self.said, self.heard = -SILENCE, dict[str, Any]()

    def adjust(self, settings: dict[str, Any]) -> None:
        """Another rate, or another word to look at."""
        self.rate = float(settings.get("lr", self.rate))
        self.trainer.write("scalars", [self.rate])
        word = str(settings.get("word", self.word)).lower()
        self.word = word if _fits(word) else self.word
        self.said = -SILENCE

    def step(self) -> None:
        """A moment of training."""
        started = time.perf_counter()
        self.sum += self.trainer.train(TURNS, TURNS * self.moments, SIZE)
        self.moments += 1
        self.seconds += time.perf_counter() - started
        if self.moments % self.every == 0:
            self.losses.append(self.sum / self.every)
            self.sum = 0.0
        if len(self.losses) == MOST_LOSSES:
            self.losses = [(a + b) / 2 for a, b in zip(self.losses[::2], self.losses[1::2], strict=True)]
            self.every *= 2

    def advance(self, steps: int, seconds: float) -> None:
        """Take so many steps, or as many as fit."""
        repeat(self.step, steps, seconds)

    def work(self) -> dict[str, Any]:
        """As of other demonstrations."""
        lent = {"lent": self.program.lent, "failing": self.program.failing}
        return {"nodes": self.nodes, "taken": TURNS * self.moments, **lent}

    def state(self) -> dict[str, Any]:
        """How it goes; and names, and a look at attention, as of a moment ago."""
        if time.monotonic() > self.said + SILENCE:
            self.said = time.monotonic()
            self.speaker.write("parameters", self.trainer.read("parameters"))
            self.heard = {"names": self.made_up(), "word": self.word, "looks": self.looks()}
        learned = SIZE * TURNS * self.moments
        speed = learned / self.seconds if self.seconds else None
        each = SIZE * TURNS * self.every
        return {"losses": self.losses, "each": each, "learned": learned, "speed": speed, **self.facts, **self.heard}

    def made_up(self) -> list[dict[str, Any]]:
        """New names, all grown at the same time, and whether each is among those that were learned."""
        grown, ended = [[0] for _ in range(SAMPLES)], [False] * SAMPLES
        for place in range(BLOCK - 1):
            self.speaker.load([flat(one_hot(tokens)) for tokens in grown])
            for k, scores in enumerate(self.speaker.forward()):
                if not ended[k]:
                    token = self._chosen(scores[TOKENS * place : TOKENS * (place + 1)])
                    ended[k] = token == 0
                    grown[k] += [token] * (token != 0)
        known = set(self.names)
        texts = ["".join(SIGNS[token] for token in tokens[1:]) for tokens in grown]
        return [{"name": text, "known": text in known} for text in texts if text]

    def _chosen(self, scores: Sequence[float]) -> int:
        largest = max(scores)
        chances = [exp((score - largest) / TEMPERATURE) for score in scores]
        return self.rng.choices(range(TOKENS), chances)[0]

    def looks(self) -> list[list[float]]:
        """For each position of the word, with the dot before it, the shares of those that it listens to."""
        tokens = [0, *(SIGNS.index(letter) for letter in self.word)]
        self.speaker.load([flat(one_hot(tokens))])
        (results,) = self.speaker.forward()
        shares = iter(results[TOKENS * BLOCK :])
        return [[next(shares) for _ in range(place + 1)] for place in range(len(tokens))]
