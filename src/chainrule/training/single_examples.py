"""The loss of one example, from a loss of batches: what compiled batches and a mesh need."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from chainrule.core.recording import no_grad
from chainrule.core.structure import build, flatten
from chainrule.core.value import Value
from chainrule.training.task import Loss, Task


class IndivisibleError(ValueError):
    """The loss of a batch does not follow from the losses of its examples."""


def loss_of_one(task: Task, summands: Value) -> Callable[[Any, Any], Any]:
    """The loss of one example, such that its mean over a batch of `summands` examples is the loss of the batch."""
    prediction, targets = task.model(task.data.inputs[0]), task.data.targets
    with no_grad():  # for targets that the loss refuses: to a compiled program they are just numbers
        task.checked_loss([prediction] * len(targets), targets)
    is_sum = _adds_up(task.checked_loss, prediction, targets)

    def loss_of_one(x: Any, y: Any) -> Any:
        own = task.checked_loss([task.model(x)], [y])
        return task.penalized(own * summands if is_sum else own)

    return loss_of_one


def _adds_up(loss: Loss, prediction: Any, targets: Sequence[Any]) -> bool:
    """Whether the loss of a batch is the sum of the losses of its examples, rather than their mean.

    It is tried on predictions like the one given, with numbers that may be logits, probabilities or lengths.
    """
    rng, leaves = Random(0), list[Any]()
    structure = flatten(prediction, leaves, lambda leaf: leaf)
    wanted = [targets[k * (len(targets) - 1) // 4] for k in range(5)]
    predictions = [build(structure, (Value(rng.uniform(0.1, 0.9)) for _ in leaves)) for _ in wanted]
    alone = [loss([p], [y])._data for p, y in zip(predictions, wanted, strict=True)]
    whole, total = loss(predictions, wanted)._data, sum(alone)
    for is_sum, expected in ((False, total / len(alone)), (True, total)):
        if whole and math.isclose(whole, expected, rel_tol=1e-9):
            return is_sum
    if not math.isfinite(whole) or not (whole or any(alone)):
        raise IndivisibleError(
            f"`loss` is {whole!r} for five examples with predictions between 0.1 and 0.9, which does not show whether "
            "it is their mean or sum, as compiled batches and a mesh need: look at the targets, or try compiled=False"
        )
    raise IndivisibleError(
        "`loss` must be the mean or the sum of the losses of single examples, because steps on a mesh or on compiled "
        f"batches take it apart: of five it is {whole!r}, and their own have the mean {total / len(alone)!r} and the "
        f"sum {total!r}; eager steps, compiled=False, take any"
    )
