"""In NumPy: matrices, the gradient by hand, one name a step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from workloads.microgpt import BETA1, BETA2, EPSILON, HEAD, HEADS, RATE, SHAPES, STEPS, flat, tokens_of, weights

TINY = 1e-5


class Model:
    """Parameters and gradients lie in one vector each; matrices are views of it."""

    def __init__(self) -> None:
        self.p = np.array(flat(weights()))
        self.dp, self.m, self.v = np.zeros((3, self.p.size))
        self.w, self.dw = matrices(self.p), matrices(self.dp)
        self.steps = 0

    def loss_and_gradient(self, letters: str) -> tuple[float, np.ndarray]:
        """Of one name."""
        w, dw = self.w, self.dw
        tokens = np.array(tokens_of(letters))
        tokens, following = tokens[:-1], tokens[1:]
        n = len(tokens)

        x0 = w["token"][tokens] + w["position"][:n]
        x1, s1 = norm(x0)
        x2, s2 = norm(x1)
        q, k, v = (by_head(x2 @ w[which].T) for which in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / HEAD**0.5
        scores[:, *np.triu_indices(n, 1)] = -np.inf
        shares = softmax(scores)
        heard = by_token(shares @ v)
        x3 = x1 + heard @ w["mix"].T
        x4, s4 = norm(x3)
        hidden = np.maximum(x4 @ w["widen"].T, 0.0)
        x5 = x3 + hidden @ w["narrow"].T
        chances = softmax(x5 @ w["predict"].T)
        loss = -np.log(chances[np.arange(n), following]).mean()

        dz = chances / n
        dz[np.arange(n), following] -= 1.0 / n
        dw["predict"][:] = dz.T @ x5
        dx5 = dz @ w["predict"]
        dw["narrow"][:] = dx5.T @ hidden
        dhidden = (dx5 @ w["narrow"]) * (hidden > 0.0)
        dw["widen"][:] = dhidden.T @ x4
        dx3 = dx5 + norm_back(x3, s4, dhidden @ w["widen"])
        dw["mix"][:] = dx3.T @ heard
        dheard = by_head(dx3 @ w["mix"])
        dv = shares.transpose(0, 2, 1) @ dheard
        dshares = dheard @ v.transpose(0, 2, 1)
        dscores = shares * (dshares - (dshares * shares).sum(axis=2, keepdims=True)) / HEAD**0.5
        dq, dk = dscores @ k, dscores.transpose(0, 2, 1) @ q
        dx2 = np.zeros_like(x2)
        for which, part in (("query", dq), ("key", dk), ("value", dv)):
            flat = by_token(part)
            dw[which][:] = flat.T @ x2
            dx2 += flat @ w[which]
        dx1 = dx3 + norm_back(x1, s2, dx2)
        dx0 = norm_back(x0, s1, dx1)
        dw["token"][:] = 0.0
        np.add.at(dw["token"], tokens, dx0)
        dw["position"][:n], dw["position"][n:] = dx0, 0.0
        return float(loss), self.dp.copy()

    def train(self, names: Iterable[str]) -> list[float]:
        """A step a name; the loss of each, before its update."""
        return [self.step(letters) for letters in names]

    def step(self, letters: str) -> float:
        loss, gradient = self.loss_and_gradient(letters)
        rate = RATE * max(0.0, 1 - self.steps / STEPS)
        self.steps += 1
        self.m = BETA1 * self.m + (1 - BETA1) * gradient
        self.v = BETA2 * self.v + (1 - BETA2) * gradient**2
        m, v = self.m / (1 - BETA1**self.steps), self.v / (1 - BETA2**self.steps)
        self.p -= rate * m / (np.sqrt(v) + EPSILON)
        return loss


def matrices(flat: np.ndarray) -> dict[str, np.ndarray]:
    found, start = {}, 0
    for key, (rows, columns) in SHAPES.items():
        found[key] = flat[start : start + rows * columns].reshape(rows, columns)
        start += rows * columns
    return found


def norm(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = (np.square(x).mean(axis=1, keepdims=True) + TINY) ** -0.5
    return x * scale, scale


def norm_back(x: np.ndarray, scale: np.ndarray, dy: np.ndarray) -> np.ndarray:
    return scale * dy - x * scale**3 * (x * dy).mean(axis=1, keepdims=True)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def by_head(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, HEADS, HEAD).transpose(1, 0, 2)


def by_token(x: np.ndarray) -> np.ndarray:
    return x.transpose(1, 0, 2).reshape(-1, HEADS * HEAD)
