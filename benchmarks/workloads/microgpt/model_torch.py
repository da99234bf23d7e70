"""In PyTorch: tensors, autograd and its Adam, one name a step, on one thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy, rms_norm, scaled_dot_product_attention

from workloads.microgpt import tokens_of, weights

torch.set_num_threads(1)


class Model:
    def __init__(self) -> None:
        self.w = {k: torch.tensor(rows, dtype=torch.float64) for k, rows in weights().items()}
        parameters = [matrix.requires_grad_() for matrix in self.w.values()]
        self.adam = torch.optim.Adam(parameters, lr=0.01, betas=(0.85, 0.99))
        self.rate = torch.optim.lr_scheduler.LinearLR(self.adam, 1.0, 0.0, 1000)

    def loss(self, letters: str) -> Any:
        w, tokens = self.w, torch.tensor(tokens_of(letters))
        tokens, following = tokens[:-1], tokens[1:]
        x = norm(w["token"][tokens] + w["position"][: len(tokens)])
        normal = norm(x)
        query, key, value = ((normal @ w[k].T).view(-1, 4, 4).transpose(0, 1) for k in ("query", "key", "value"))
        heard = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + heard.transpose(0, 1).reshape(-1, 16) @ w["mix"].T
        x = x + (norm(x) @ w["widen"].T).relu() @ w["narrow"].T
        return cross_entropy(x @ w["predict"].T, following)

    def loss_and_gradient(self, letters: str) -> tuple[float, np.ndarray]:
        """Of one name."""
        self.adam.zero_grad()
        loss = self.loss(letters)
        loss.backward()
        return loss.item(), np.concatenate([matrix.grad.numpy().ravel() for matrix in self.w.values()])

    def train(self, names: Iterable[str]) -> list[float]:
        """A step a name; the loss of each, before its update."""
        return [self.step(letters) for letters in names]

    def step(self, letters: str) -> float:
        self.adam.zero_grad()
        loss = self.loss(letters)
        loss.backward()
        self.adam.step()
        self.rate.step()
        return loss.item()


def norm(x: Any) -> Any:
    return rms_norm(x, (16,), eps=1e-5)
