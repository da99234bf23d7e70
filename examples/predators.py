"""Which differential equation made these data? Four rates of predators and prey, fitted through a Runge-Kutta loop.

    prey'      =  birth · prey - hunt · prey · predators
    predators' =  growth · prey · predators - death · predators          (Lotka 1925, Volterra 1926)

Both are counted at twenty moments, with errors. The integrator is a loop over numbers; its gradient is exact, for it is
that of the very steps that were taken, and compiling it takes as long for a thousand steps as for ten.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import chainrule
from chainrule import Value, exp, log, optim

TRUE = {"birth": 1.1, "hunt": 0.4, "growth": 0.1, "death": 0.4}
START = (10.0, 5.0)
MOMENTS, STEPS, STEP = 20, 20, 0.05  # observations, steps from one to the next, and the time that a step takes
NOISE = 0.03  # relative

State = tuple[Any, Any]


def change(rates: Sequence[Any], state: State) -> State:
    """The right-hand side of the equation."""
    birth, hunt, growth, death = rates
    prey, predators = state
    met = prey * predators
    return birth * prey - hunt * met, growth * met - death * predators


def runge_kutta(rates: Sequence[Any], state: State, step: float = STEP) -> State:
    """One step of the classical method of order four."""

    def ahead(slope: State, share: float) -> State:
        return state[0] + share * step * slope[0], state[1] + share * step * slope[1]

    k1 = change(rates, state)
    k2 = change(rates, ahead(k1, 0.5))
    k3 = change(rates, ahead(k2, 0.5))
    k4 = change(rates, ahead(k3, 1.0))
    prey, predators = ((a + 2.0 * b + 2.0 * c + d) / 6.0 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
    return ahead((prey, predators), 1.0)


def trajectory(rates: Sequence[Any]) -> list[State]:
    """The state at each moment of observation."""
    state: State = START
    states = []
    for _ in range(MOMENTS):
        for _ in range(STEPS):
            state = runge_kutta(rates, state)
        states.append(state)
    return states


def counted(rng: random.Random) -> list[list[float]]:
    """Observations of the true system, each off by a few per cent."""
    return [[number * math.exp(rng.gauss(0.0, NOISE)) for number in state] for state in trajectory(list(TRUE.values()))]


class Rates:
    """What is to be found: positive numbers, kept as their logarithms."""

    def __init__(self, guess: Sequence[float]) -> None:
        self.logarithms = [Value(math.log(number)) for number in guess]

    def loss(self, observed: Sequence[Sequence[Any]]) -> Any:
        """The mean square of relative errors."""
        states = trajectory([exp(number) for number in self.logarithms])
        pairs = [pair for both in zip(states, observed, strict=True) for pair in zip(*both, strict=True)]
        errors = [log(model / seen) for model, seen in pairs]
        return chainrule.mean([error * error for error in errors])

    def found(self) -> dict[str, float]:
        return {name: math.exp(value.data) for name, value in zip(TRUE, self.logarithms, strict=True)}


def fit(rates: Rates, observed: list[list[float]], steps: int = 2000) -> list[float]:
    """Adam on the compiled loss; the loss of each step."""
    loss = chainrule.compile(rates.loss, wrt=rates.logarithms)
    optimizer = optim.Adam(rates.logarithms, lr=optim.cosine(0.05, 0.0, steps))
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        history.append(loss(observed))
        optimizer.step()
    return history


def main() -> None:
    observed = counted(random.Random(1))
    rates = Rates([0.8, 0.3, 0.15, 0.6])
    guess = rates.found()
    started = perf_counter()
    history = fit(rates, observed)
    print(
        f"{len(history):,} fits of {MOMENTS * STEPS} Runge-Kutta steps: {perf_counter() - started:.1f} s, all included"
    )
    print(f"relative error {history[0] ** 0.5:.1%} → {history[-1] ** 0.5:.1%}; the data's own is {NOISE:.1%}")
    for name, found in rates.found().items():
        print(f"{name:8} guessed {guess[name]:.3f}   found {found:.4f}   true {TRUE[name]}")


if __name__ == "__main__":
    main()
