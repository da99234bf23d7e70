"""Losses: functions of predictions and targets that return the one number which training minimizes.

Predictions and targets are sequences of equal length, with one entry per example. An entry is a number, or a list of
numbers if the model has several outputs; losses that take a mean then average over all numbers. `cross_entropy` is
different: a prediction is a list with one logit per class, and a target a class index. A logit is the number before
any sigmoid or softmax: these losses apply it themselves, and so stay accurate at any size.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chainrule import ops
from chainrule.core.arguments import setting
from chainrule.core.graph import is_node
from chainrule.core.value import Value
from chainrule.functions import logsumexp, mean
from chainrule.ops import as_float

__all__ = [
    "accuracy", "argmax", "binary_cross_entropy", "cross_entropy", "hinge", "huber", "l2", "mean_square",
    "sum_of_squares",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def sum_of_squares(predictions: Sequence[Any], targets: Sequence[Any]) -> Any:
    """Σ (prediction - target)².

    >>> sum_of_squares([Value(1.0), Value(2.0)], [0.0, 5.0]).data
    10.0
    """
    return sum(_squares(predictions, targets))


def mean_square(predictions: Sequence[Any], targets: Sequence[Any]) -> Any:
    """The mean of (prediction - target)².

    >>> mean_square([Value(1.0), Value(2.0)], [0.0, 5.0]).data
    5.0
    """
    return mean(_squares(predictions, targets))


def huber(predictions: Sequence[Any], targets: Sequence[Any], delta: float = 1.0) -> Any:
    """The mean of ½e² where |e| ≤ delta, else delta * (|e| - ½delta): a squared error that outliers cannot dominate.

    >>> huber([Value(0.5), Value(10.0)], [0.0, 0.0]).data
    4.8125
    """
    bound = as_float(delta, "delta")
    if not 0.0 < bound < ops.INF:
        raise ValueError(f"`delta` must be above 0 and finite, got {bound!r}: choose one such as 1.0")
    return mean([_huber(prediction - target, bound) for prediction, target in _pairs(predictions, targets)])


def hinge(scores: Sequence[Any], targets: Sequence[Any]) -> Any:
    """The mean of max(0, 1 - target * score), for targets -1 and 1.

    >>> hinge([Value(0.5), Value(3.0)], [1, 1]).data
    0.25
    """
    pairs = _pairs(scores, targets, "scores")
    for _, target in pairs:
        if not is_node(target) and target not in (-1, 1):  # the number of a node may not be known yet
            raise ValueError(f"`targets` of hinge must be -1 or 1, got {target!r}: convert 0 and 1 with 2 * y - 1")
    losses = [ops.relu(1 + -target * score) for score, target in pairs]
    return sum(losses) * (1.0 / len(losses))  # micrograd's order of operations, to match its figures exactly


def binary_cross_entropy(logits: Sequence[Any], targets: Sequence[Any]) -> Any:
    """The mean of -log p(target), where p(1) = sigmoid(logit); a target between 0 and 1 is the probability of a 1.

    >>> f"{binary_cross_entropy([Value(0.0), Value(1000.0)], [1, 1]):.4f}"
    '0.3466'
    """
    pairs = _pairs(logits, targets, "logits")
    for _, target in pairs:
        if not is_node(target) and not 0.0 <= as_float(target, "targets") <= 1.0:
            remedy = "convert -1 and 1 with (y + 1) / 2, or use hinge"
            raise ValueError(f"`targets` of binary_cross_entropy must lie between 0 and 1, got {target!r}: {remedy}")
    return mean([y * ops.softplus(-logit) + (1 - y) * ops.softplus(logit) for logit, y in pairs])


def cross_entropy(logits: Sequence[Sequence[Any]], targets: Sequence[int]) -> Any:
    """The mean of -log p(target), where p = softmax(logits), for one list of logits and one class index per example.

    >>> f"{cross_entropy([[Value(1.0), Value(1.0)]], [0]):.4f}"
    '0.6931'
    """
    return mean([_surprise(row, target) for row, target in _rows(logits, targets, "logits")])


def l2(alpha: float) -> Callable[[Iterable[Any]], Any]:
    """A penalty on large parameters: returns the function that computes alpha * Σp² from a list of them.

    >>> l2(0.5)([Value(1.0), Value(3.0)]).data
    5.0
    """
    strength = setting(alpha, "alpha", "1e-4")
    return lambda parameters: strength * sum(p * p for p in parameters)


def accuracy(predictions: Sequence[Any], targets: Sequence[Any], threshold: float = 0.0) -> float:
    """The fraction of predictions that are right.

    If predictions are numbers, those above `threshold` mean one class and those below the other; targets are -1 and 1,
    or 0 and 1. For outputs that approximate targets of 0 and 1, rather than being logits, use a threshold of 0.5. If
    predictions are lists, each means the class of its largest entry; targets are class indices.

    >>> accuracy([Value(0.3), Value(-2.0)], [1, 1])
    0.5
    >>> accuracy([[Value(0.3), Value(-2.0)]], [0])
    1.0
    """
    if _length(predictions, "predictions") and _is_list(predictions[0]):
        right: list[bool] = [argmax(row) == target for row, target in _rows(predictions, targets, "predictions")]
    else:
        right = [(_number(p) > threshold) == (_number(y) > 0) for p, y in _pairs(predictions, targets)]
    return sum(right) / len(right)


def argmax(values: Sequence[Any]) -> int:
    """The index of the largest value; the first one if several are equal.

    >>> argmax([Value(0.1), Value(0.7), Value(0.2)])
    1
    """
    if not _length(values, "values"):
        raise ValueError("`values` is empty; give at least one")
    return max(range(len(values)), key=lambda i: _number(values[i]))


def _squares(predictions: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
    errors = [prediction - target for prediction, target in _pairs(predictions, targets)]
    return [error * error for error in errors]


def _huber(error: Any, delta: float) -> Any:
    """½e² inside, delta * (|e| - ½delta) outside: with c = e clipped to ±delta, both are c * (e - ½c)."""
    clipped = ops.clip(error, -delta, delta)
    return clipped * (error - 0.5 * clipped)


def _surprise(logits: Sequence[Any], target: int) -> Any:
    """-log softmax(z)[t] = log Σ exp(zⱼ - zₜ)."""
    chosen = _entry(logits, target) if _is_symbol(target) else logits[target]
    return logsumexp([logit - chosen for logit in logits])


def _entry(logits: Sequence[Any], index: Any) -> Any:
    """logits[index] for an index that is not known yet: a sum that selects one entry; NaN if the index has none."""
    chosen = [ops.eq(index, float(k)) for k in range(len(logits))]
    found = sum(ops.where(choice, logit, 0.0) for choice, logit in zip(chosen, logits, strict=True))
    return found + ops.div(0.0, sum(chosen))


def _pairs(predictions: Sequence[Any], targets: Sequence[Any], name: str = "predictions") -> list[tuple[Any, Any]]:
    """Each predicted number with its target, also inside entries that are lists."""
    pairs: list[tuple[Any, Any]] = []
    for i, (prediction, target) in enumerate(_aligned(predictions, targets, name)):
        if _is_list(prediction) and _is_list(target):
            pairs += _pairs(prediction, target, f"{name}[{i}]")
        elif _is_list(prediction) or _is_list(target):
            shapes = f"{_shape(prediction)} and its target {_shape(target)}"
            raise ValueError(f"`{name}[{i}]` is {shapes}: give two numbers, or two lists of equal length")
        else:
            pairs.append((prediction, target))
    return pairs


def _rows(rows: Sequence[Any], targets: Sequence[Any], name: str) -> list[tuple[Sequence[Any], Any]]:
    """Each list of class scores with its class index."""
    pairs = []
    for i, (row, target) in enumerate(_aligned(rows, targets, name)):
        if not _is_list(row):
            raise TypeError(f"`{name}[{i}]` must be a list with a number for each class, got {_shape(row)}")
        pairs.append((row, _class_index(target, len(row), i)))
    return pairs


def _class_index(target: Any, classes: int, i: int) -> Any:
    if _is_symbol(target):
        target.must_be_class(classes)
        return target
    try:
        index = operator.index(target)
    except TypeError:
        remedy = "give an int, as data.Dataset.from_arrays(X, y, labels=True) does"
        raise TypeError(f"`targets[{i}]` must be a class index, got {target!r}: {remedy}") from None
    if not 0 <= index < classes:
        remedy = "count classes from 0, and give the model one output for each"
        raise ValueError(f"`targets[{i}]` must be a class index below {classes}, got {index}: {remedy}")
    return index


def _aligned(predictions: Sequence[Any], targets: Sequence[Any], name: str) -> Iterable[tuple[Any, Any]]:
    given, wanted = _length(predictions, name), _length(targets, "targets")
    if given != wanted:
        raise ValueError(f"`{name}` has {given} entries and its targets {wanted}: give one target for each")
    if not given:
        raise ValueError(f"`{name}` is empty; give at least one")
    return zip(predictions, targets, strict=True)


def _length(sequence: Any, name: str) -> int:
    if not _is_list(sequence):
        remedy = "write [x] for one number x, list(m) for a map m"
        raise TypeError(f"`{name}` must be a list, got {type(sequence).__name__}: {remedy}")
    return len(sequence)


def _is_list(entry: Any) -> bool:
    return hasattr(entry, "__len__")


def _is_symbol(entry: Any) -> bool:
    """Whether it stands for a number that is unknown while a function is traced, and so cannot be checked."""
    return is_node(entry) and not isinstance(entry, Value)


def _shape(entry: Any) -> str:
    return f"a list of {len(entry)}" if _is_list(entry) else "one number"


def _number(entry: Any) -> Any:
    return entry.data if isinstance(entry, Value) else entry
