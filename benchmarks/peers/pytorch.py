"""The problems in PyTorch: tensors, eager or through torch.compile, on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from problems import PENALTY, RATE, Problem

torch.set_num_threads(1)

Parameters = list[torch.Tensor]  # a matrix and a vector a layer


def training(problem: Problem, compiled: bool = False) -> Callable[[int], float]:
    """So many steps from the start; the last loss."""
    start, loss = _start(problem), _loss(problem)
    step = torch.compile(_whole_step(loss), fullgraph=True) if compiled else _eager_step(loss)

    def train(steps: int) -> float:
        parameters = [p.clone().requires_grad_(not compiled) for p in start]
        for _ in range(steps):
            value, parameters = step(parameters)
        return float(value)

    return train


def gradient(problem: Problem, compiled: bool = False) -> Callable[[], tuple[float, np.ndarray]]:
    """The loss and its gradient at the start."""
    parameters, loss = [p.requires_grad_() for p in _start(problem)], _loss(problem)
    if compiled:
        loss = torch.compile(loss, fullgraph=True)

    def run() -> tuple[float, np.ndarray]:
        value = loss(parameters)
        found = torch.autograd.grad(value, parameters)
        return float(value.detach()), problem.flat(zip(found[::2], found[1::2], strict=True))

    return run


def _start(problem: Problem) -> Parameters:
    return [torch.tensor(part) for layer in problem.layers() for part in layer]


def _loss(problem: Problem) -> Callable[[Parameters], Any]:
    x, y = torch.tensor(problem.x), torch.tensor(problem.y)

    def loss(parameters: Parameters) -> Any:
        h, last = x, len(parameters) - 2
        for k in range(0, len(parameters), 2):
            h = torch.addmm(parameters[k + 1], h, parameters[k].T)
            if problem.tanh or k < last:
                h = torch.tanh(h) if problem.tanh else torch.relu(h)
        if problem.tanh:
            return ((h[:, 0] - y) ** 2).sum()
        return torch.relu(1 - y * h[:, 0]).mean() + PENALTY * sum((p * p).sum() for p in parameters)

    return loss


def _eager_step(loss: Callable[[Parameters], Any]) -> Callable[[Parameters], tuple[Any, Parameters]]:
    def step(parameters: Parameters) -> tuple[Any, Parameters]:
        value = loss(parameters)
        gradients = torch.autograd.grad(value, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-RATE)
        return value.detach(), parameters

    return step


def _whole_step(loss: Callable[[Parameters], Any]) -> Callable[[Parameters], tuple[Any, Parameters]]:
    """Loss, gradient and update in one graph, which leaves the compiler the most to fuse."""

    def step(parameters: Parameters) -> tuple[Any, Parameters]:
        gradients, value = torch.func.grad_and_value(loss)(parameters)
        return value, [p - RATE * g for p, g in zip(parameters, gradients, strict=True)]

    return step
