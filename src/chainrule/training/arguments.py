"""Checks of what `fit` and `diagnose` are given: each error names the argument and says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from chainrule.core.arguments import whole_number
from chainrule.data import Dataset
from chainrule.nn import Module
from chainrule.optim import Optimizer
from chainrule.training.task import Metric


def check_problem(model: Any, loss: Any, data: Any, optimizer: Any) -> None:
    """Refuse a model, loss, data set or optimizer that cannot be trained."""
    if not isinstance(model, Module) or not callable(model):
        raise TypeError(f"`model` must be an nn.Module that can be called, got {type(model).__name__}")
    if not callable(loss):
        raise TypeError(f"`loss` must be a function of predictions and targets, as losses.hinge is; got {loss!r}")
    check_dataset(data, "data")
    if not len(data):
        raise ValueError("`data` is empty; there is nothing to learn from")
    if optimizer is None:
        return
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"`optimizer` must be an optimizer, as optim.Adam(model.parameters()) is; got {optimizer!r}")
    if not set(optimizer.parameters) & set(model.parameters()):
        raise ValueError("`optimizer` holds no parameter of this model: make it with model.parameters()")


def check_dataset(data: Any, argument: str) -> None:
    """Refuse what is no Dataset."""
    if not isinstance(data, Dataset):
        raise TypeError(
            f"`{argument}` must be a Dataset, got {type(data).__name__}: make one with Dataset(inputs, targets)"
        )


def check_options(validation: Any, epochs: Any, batch_size: Any, penalty: Any, compiled: Any) -> None:
    """Refuse options of `fit` that make no sense by themselves."""
    if validation is not None:
        check_dataset(validation, "validation")
        if not len(validation):
            raise ValueError("`validation` is empty; leave it out if there is nothing to validate on")
    whole_number(epochs, "epochs")
    if batch_size is not None:
        whole_number(batch_size, "batch_size")
    if penalty is not None and not callable(penalty):
        raise TypeError(f"`penalty` must be a function of the parameters, as losses.l2(1e-4) is; got {penalty!r}")
    if compiled not in (True, False, "auto"):
        raise ValueError(f"`compiled` must be True, False or 'auto', got {compiled!r}")


def check_dtype(dtype: Any, compiled: bool) -> None:
    """Refuse an unknown dtype, and float32 for eager steps."""
    if dtype not in ("float64", "float32"):
        raise ValueError(f"`dtype` must be 'float64' or 'float32', got {dtype!r}")
    if dtype == "float32" and not compiled:
        raise ValueError("`dtype` 'float32' is for compiled steps, and eager ones are float64: say compiled=True too")


def check_checkpoint(checkpoint: Any, every: Any, resume: Any) -> None:
    """Refuse an `every` that makes no sense, and options of a checkpoint without one."""
    if checkpoint is None and (resume or every is not None):
        raise ValueError(
            "`every` and `resume` are about a checkpoint: give its file, as in checkpoint='run.safetensors'"
        )
    if isinstance(every, timedelta) and every <= timedelta(0):
        raise ValueError(f"`every` must be more than no time, got {every}: choose one such as timedelta(seconds=30)")
    if every is not None and not isinstance(every, timedelta):
        whole_number(every, "every")


def metrics_by_name(metrics: Mapping[str, Metric] | Iterable[Metric]) -> dict[str, Metric]:
    """The metrics, each by a name of its own."""
    if isinstance(metrics, Mapping):
        named = list(metrics.items())
    else:
        functions = list_of_functions(metrics, "metrics")
        named = [(getattr(metric, "__name__", type(metric).__name__), metric) for metric in functions]
    names = [name for name, _ in named]
    if len(set(names)) < len(names) or "loss" in names:
        raise ValueError(f"`metrics` need names of their own, got {names}: give a dict, as in {{'name': function}}")
    return dict(named)


def list_of_functions(things: Any, argument: str) -> list[Any]:
    """The functions in `things`; a single function is refused."""
    if callable(things) or not hasattr(things, "__iter__"):
        raise TypeError(f"`{argument}` must be a list of functions, got {things!r}: write [function] for one")
    return list(things)
