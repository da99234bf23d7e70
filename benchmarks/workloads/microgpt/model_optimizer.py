"""The plain scalar code on chainrule's Values, with its Adam."""

from __future__ import annotations

from chainrule import optim
from workloads.microgpt import BETA1, BETA2, EPSILON, RATE, STEPS, model_scalars

SOURCES = [model_scalars]


class Model(model_scalars.Model):
    def __init__(self, value: str) -> None:
        super().__init__(value)
        rate = optim.linear(RATE, 0.0, STEPS)
        self.optimizer = optim.Adam(self.parameters, lr=rate, betas=(BETA1, BETA2), eps=EPSILON)

    def update(self) -> None:
        self.optimizer.step()
