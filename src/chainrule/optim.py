"""Optimizers, learning-rate schedules and gradient clipping, with the semantics of `torch.optim`.

An optimizer is an update rule as data: the numbers that it keeps for each parameter (`slots`), those that change from
step to step (`scalars`), and `update(data, grad, *slots, **scalars) -> (data, *slots)`. A rule is written with `+ - *`
and ops and never branches on the numbers it receives, so it works on floats, on Values and on anything else that
implements `_apply`. It may branch on settings such as `momentum`, which are fixed numbers. A step calls your own rule
once for each parameter, in order, so it may draw random numbers.

A learning rate is a number or a schedule: any function from the step, counted from 0, to a number.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from chainrule import ops
from chainrule.core.arguments import counted, quoted, setting, whole_number
from chainrule.core.bulk import write_grad
from chainrule.core.graph import lay_flat
from chainrule.core.recording import nodes_are_observed
from chainrule.core.value import ENGINE, Value, record
from chainrule.ops import as_float

if ENGINE == "native":
    from chainrule import _native as native

__all__ = [
    "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "clip_grad_norm", "clip_grad_value", "constant", "cosine",
    "exponential", "linear", "step_decay", "warmup",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


Schedule = Callable[[int], float]


class Optimizer:
    """The base class; a subclass defines `slots` and `update`, and `scalars` if it needs more than `lr`.

    >>> class SignDescent(Optimizer):
    ...     def update(self, data, grad, *, lr):
    ...         return (data - lr * (ops.gt(grad, 0.0) - ops.lt(grad, 0.0)),)
    >>> w = Value(3.0)
    >>> (w * w).backward()
    >>> SignDescent([w], lr=0.5).step()
    >>> w.data
    2.5
    """

    slots: tuple[str, ...] = ()  # the numbers kept for each parameter, 0.0 before the first step

    def __init__(self, parameters: Iterable[Value], lr: float | Schedule) -> None:
        self.parameters = _parameters(parameters)
        self.lr = lr
        self.steps = 0
        self.buffers = {slot: array("d", [0.0]) * len(self.parameters) for slot in self.slots}
        self.rate()  # refuses an unusable `lr` right away

    def update(self, data: Any, grad: Any, *slots: Any, **scalars: Any) -> tuple[Any, ...]:
        """The rule for one parameter: returns its data and slots after a step, given those before it.

        >>> SGD([Value(1.0)], lr=0.1).update(1.0, 5.0, 0.0, lr=0.1)
        (0.5, 5.0)
        """
        raise NotImplementedError(f"{type(self).__name__} has no rule: define `update(self, data, grad, *slots, lr)`")

    def scalars(self) -> dict[str, float]:
        """The numbers that the next step uses for all parameters; by default `lr`."""
        return {"lr": self.rate()}

    def rate(self) -> float:
        """The learning rate of the next step.

        >>> SGD([Value(1.0)], lr=linear(0.1, 0.0, steps=10)).rate()
        0.1
        """
        rate = self.lr(self.steps) if callable(self.lr) else self.lr
        if type(rate) is float and 0.0 <= rate < math.inf:  # a compiled step takes microseconds, and most are so
            return rate
        return setting(rate, "lr", "0.01, or a schedule of such")

    def step(self) -> None:
        """Update every parameter from its gradient; those whose `requires_grad` is False stay as they are."""
        scalars = self.scalars()
        columns = [self.buffers[slot] for slot in self.slots]
        if not self._step_at_once(columns, scalars):
            for i, parameter in enumerate(self.parameters):
                if parameter.requires_grad:
                    before = [parameter._data, parameter.grad, *(column[i] for column in columns)]
                    parameter.data, *remembered = self.update(*before, **scalars)
                    for column, number in zip(columns, remembered, strict=True):
                        column[i] = number
        self.steps += 1

    def _step_at_once(self, columns: list[array[float]], scalars: dict[str, float]) -> bool:
        """Try the whole step in one call of the native engine; whether that was possible.

        Only for this module's rules, no part of which a subclass or the instance replaces: they do the same for every
        parameter, so the rule is recorded on Values with the numbers of the first, and the graph is evaluated for each.
        A user's rule may draw random numbers or count its calls.
        """
        if ENGINE != "native" or nodes_are_observed():
            return False
        if not self.rule_is_known:
            return False
        first = self.parameters[0]
        leaves = [Value(number) for number in (first._data, first.grad, *(column[0] for column in columns))]
        recorded = record(True)  # also inside no_grad()
        try:
            updated = self.update(*leaves, **scalars)
            results = [number if isinstance(number, Value) else Value(number) for number in updated]
            nodes, rules, _ = lay_flat(*results)
        except TypeError:  # `scalars` do not fit the rule, which the ordinary step will report
            return False
        finally:
            record(recorded)
        computed = [node for node, rule in zip(nodes, rules, strict=True) if rule is not None]
        return native.step(self.parameters, leaves, computed, results, columns)

    def zero_grad(self) -> None:
        """Set every gradient to 0; otherwise they would add up from step to step."""
        write_grad(self.parameters, array("d", [0.0]) * len(self.parameters))

    def state(self) -> dict[str, int | list[float]]:
        """A copy, as plain numbers, of everything that past steps left behind; settings are not included.

        >>> SGD([Value(1.0)], lr=0.1, momentum=0.9).state()
        {'steps': 0, 'velocity': [0.0]}
        """
        return {"steps": self.steps, **{slot: list(column) for slot, column in self.buffers.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state()` returned, with the same parameters in the same order."""
        expected = {"steps", *self.slots}
        if set(state) != expected:
            problem = f"must hold {sorted(expected)} to suit {type(self).__name__}, got {quoted(sorted(state), 100)}"
            raise ValueError(f"`state` {problem}: load it into the kind of optimizer that it came from")
        steps = whole_number(state["steps"], "steps", 0)
        buffers = {slot: array("d", [as_float(number, slot) for number in state[slot]]) for slot in self.slots}
        for slot, column in buffers.items():
            if len(column) != len(self.parameters):
                needed = counted(len(self.parameters), "parameter")
                problem = f"has {counted(len(column), 'number')} in {slot!r} for {needed}"
                raise ValueError(f"`state` {problem}: load it into an optimizer of the model that it came from")
        self.steps, self.buffers = steps, buffers

    @property
    def rule_is_known(self) -> bool:
        """Whether the rule is this module's, no part of which a subclass or the instance replaces.

        Such a rule does the same for every parameter and at every step; another may draw random numbers, or count.

        >>> SGD([Value(1.0)], lr=0.1).rule_is_known
        True
        """
        parts = [getattr(self, name) for name in ("update", "descend") if hasattr(self, name)]
        return all(getattr(part, "__module__", "") == __name__ for part in parts)

    @property
    def settings(self) -> dict[str, Any]:
        """The rule's settings without the learning rate, which may change at every step.

        >>> SGD([Value(1.0)], lr=0.1, momentum=0.9).settings
        {'momentum': 0.9, 'nesterov': False, 'weight_decay': 0.0}
        """
        return {name: v for name, v in vars(self).items() if name not in ("parameters", "lr", "steps", "buffers")}

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in {"lr": self.lr, **self.settings}.items())
        return f"{type(self).__name__}({counted(len(self.parameters), 'parameter')}{settings})"


class SGD(Optimizer):
    """Gradient descent: `data - lr * grad`, or with `momentum`, along a velocity that accumulates gradients.

        velocity = momentum * velocity + grad
        data = data - lr * velocity                          plain
        data = data - lr * (grad + momentum * velocity)      nesterov: looks one step ahead

    `weight_decay` adds `weight_decay * data` to the gradient.

    >>> SGD([Value(1.0), Value(2.0)], lr=0.1, momentum=0.9)
    SGD(2 parameters, lr=0.1, momentum=0.9, nesterov=False, weight_decay=0.0)
    """

    slots = ("velocity",)

    def __init__(
        self,
        parameters: Iterable[Value],
        lr: float | Schedule,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        self.momentum = setting(momentum, "momentum", "0.9", below=1.0)
        self.nesterov = nesterov
        self.weight_decay = setting(weight_decay, "weight_decay", "0.0001")
        if nesterov and not momentum:
            raise ValueError("`nesterov` looks ahead along the momentum, and `momentum` is 0: choose one such as 0.9")

    def update(self, data: Any, grad: Any, velocity: Any, *, lr: Any) -> tuple[Any, ...]:
        grad = _decayed(grad, data, self.weight_decay)
        velocity = self.momentum * velocity + grad if self.momentum else grad
        direction = grad + self.momentum * velocity if self.nesterov else velocity
        return data - lr * direction, velocity


class RMSprop(Optimizer):
    """Steps scaled by the root of the running mean square of each parameter's gradient.

        v = alpha * v + (1 - alpha) * grad²
        velocity = momentum * velocity + grad / (√v + eps)
        data = data - lr * velocity

    `weight_decay` adds `weight_decay * data` to the gradient.

    >>> RMSprop([Value(1.0), Value(2.0)])
    RMSprop(2 parameters, lr=0.01, alpha=0.99, eps=1e-08, weight_decay=0.0, momentum=0.0)
    """

    slots = ("v", "velocity")

    def __init__(
        self,
        parameters: Iterable[Value],
        lr: float | Schedule = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        self.alpha = setting(alpha, "alpha", "0.99", below=1.0)
        self.eps = setting(eps, "eps", "1e-8")
        self.weight_decay = setting(weight_decay, "weight_decay", "0.0001")
        self.momentum = setting(momentum, "momentum", "0.9", below=1.0)

    def update(self, data: Any, grad: Any, v: Any, velocity: Any, *, lr: Any) -> tuple[Any, ...]:
        grad = _decayed(grad, data, self.weight_decay)
        v = self.alpha * v + (1.0 - self.alpha) * (grad * grad)
        direction = ops.div(grad, ops.sqrt(v) + self.eps)
        velocity = self.momentum * velocity + direction if self.momentum else direction
        return data - lr * velocity, v, velocity


class _Moments(Optimizer):
    """What Adam and AdamW share: running means of the gradient and of its square, corrected for their bias to 0."""

    slots = ("m", "v")

    def __init__(
        self,
        parameters: Iterable[Value],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        if not hasattr(betas, "__len__") or len(betas) != 2:
            raise TypeError(f"`betas` must be two numbers, got {betas!r}: choose a pair such as (0.9, 0.999)")
        self.betas = setting(betas[0], "betas[0]", "0.9", below=1.0), setting(betas[1], "betas[1]", "0.999", below=1.0)
        self.eps = setting(eps, "eps", "1e-8")
        self.weight_decay = setting(weight_decay, "weight_decay", "0.01")

    def scalars(self) -> dict[str, float]:
        """The step size and the factor of √v, both with the bias correction of the next step.

        A factor, because a division takes as long as the rest of the rule, and this one would be done per parameter.
        """
        (beta1, beta2), step = self.betas, self.steps + 1
        return {"rate": self.rate() / (1.0 - beta1**step), "scale": 1.0 / math.sqrt(1.0 - beta2**step)}

    def descend(self, data: Any, grad: Any, m: Any, v: Any, rate: Any, scale: Any) -> tuple[Any, ...]:
        """One step without weight decay."""
        beta1, beta2 = self.betas
        m = beta1 * m + (1.0 - beta1) * grad
        v = beta2 * v + (1.0 - beta2) * (grad * grad)
        return data - rate * ops.div(m, ops.sqrt(v) * scale + self.eps), m, v


class Adam(_Moments):
    """Momentum and scaling combined (Kingma and Ba 2015); the step t counts from 1.

        m = β₁ * m + (1 - β₁) * grad
        v = β₂ * v + (1 - β₂) * grad²
        data = data - lr * m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + eps)

    `weight_decay` adds `weight_decay * data` to the gradient.

    >>> Adam([Value(1.0), Value(2.0)])
    Adam(2 parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)
    """

    def update(self, data: Any, grad: Any, m: Any, v: Any, *, rate: Any, scale: Any) -> tuple[Any, ...]:
        return self.descend(data, _decayed(grad, data, self.weight_decay), m, v, rate, scale)


class AdamW(_Moments):
    """Adam with weight decay decoupled from the gradient: first `data = (1 - lr * weight_decay) * data`.

    >>> AdamW([Value(1.0), Value(2.0)])
    AdamW(2 parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)
    """

    def __init__(
        self,
        parameters: Iterable[Value],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def scalars(self) -> dict[str, float]:
        """Those of Adam, and the factor that weight decay multiplies the data by."""
        return {**super().scalars(), "keep": 1.0 - self.rate() * self.weight_decay}

    def update(self, data: Any, grad: Any, m: Any, v: Any, *, rate: Any, scale: Any, keep: Any) -> tuple[Any, ...]:
        return self.descend(data * keep, grad, m, v, rate, scale)


def constant(lr: float) -> Schedule:
    """The same rate at every step.

    >>> constant(0.1)(1000)
    0.1
    """
    rate = setting(lr, "lr", "0.01")
    return lambda step: rate


def linear(start: float, end: float, steps: int) -> Schedule:
    """A straight line from `start` at step 0 to `end` at step `steps`, then `end`.

    >>> linear(1.0, 0.0, steps=4)(1)
    0.75
    """
    first, last, length = setting(start, "start", "0.1"), setting(end, "end", "0.01"), whole_number(steps, "steps")
    return lambda step: first + (last - first) * step / length if step < length else last


def step_decay(start: float, every: int, factor: float = 0.1) -> Schedule:
    """A staircase: `start`, multiplied by `factor` once per `every` steps.

    >>> step_decay(1.0, every=10, factor=0.5)(25)
    0.25
    """
    first, width, decay = setting(start, "start", "0.1"), whole_number(every, "every"), setting(factor, "factor", "0.1")
    return lambda step: first * ops.pow_(decay, step // width)


def exponential(start: float, factor: float) -> Schedule:
    """`start`, multiplied by `factor` at every step.

    >>> exponential(1.0, factor=0.5)(3)
    0.125
    """
    return step_decay(start, 1, factor)


def cosine(start: float, end: float, steps: int) -> Schedule:
    """Half a cosine wave from `start` at step 0 to `end` at step `steps`, then `end`.

    >>> cosine(1.0, 0.0, steps=10)(5)
    0.5
    """
    first, last, length = setting(start, "start", "0.1"), setting(end, "end", "0.01"), whole_number(steps, "steps")
    return lambda step: last + (first - last) * (1.0 + math.cos(math.pi * min(step, length) / length)) / 2.0


def warmup(schedule: float | Schedule, steps: int) -> Schedule:
    """A linear rise to the first rate of `schedule` in `steps` equal steps, then `schedule` from its start.

    >>> warmup(constant(1.0), steps=4)(0)
    0.25
    """
    after = schedule if callable(schedule) else constant(schedule)
    length = whole_number(steps, "steps")
    return lambda step: after(0) * (step + 1) / length if step < length else after(step - length)


def clip_grad_norm(parameters: Iterable[Value], max_norm: float) -> float:
    """Scale all gradients by one factor so that their norm √Σgrad² is at most `max_norm`; return the norm before.

    >>> w = Value(1.0)
    >>> (4.0 * w).backward()
    >>> clip_grad_norm([w], max_norm=1.0)
    4.0
    """
    limit = _limit(max_norm, "max_norm")
    clipped = _parameters(parameters)
    norm = math.hypot(*[parameter.grad for parameter in clipped])
    scale = ops.minimum(limit / (norm + 1e-6), 1.0)  # as in PyTorch; NaN stays NaN
    for parameter in clipped:
        parameter.grad *= scale
    return norm


def clip_grad_value(parameters: Iterable[Value], limit: float) -> None:
    """Clip each gradient to [-limit, limit].

    >>> w = Value(1.0)
    >>> (4.0 * w).backward()
    >>> clip_grad_value([w], limit=1.0)
    >>> w.grad
    1.0
    """
    bound = _limit(limit, "limit")
    for parameter in _parameters(parameters):
        parameter.grad = ops.clip(parameter.grad, -bound, bound)


def _decayed(grad: Any, data: Any, weight_decay: float) -> Any:
    return grad + weight_decay * data if weight_decay else grad


def _parameters(parameters: Iterable[Value]) -> list[Value]:
    """The parameters as a list, each Value once."""
    remedy = "give a list of Values, such as model.parameters()"
    if not hasattr(parameters, "__iter__"):
        raise TypeError(f"`parameters` must be Values, got one {type(parameters).__name__}: {remedy}")
    found = list(parameters)
    if not found:
        raise ValueError(f"`parameters` is empty: {remedy}")
    for parameter in found:
        if not isinstance(parameter, Value):
            raise TypeError(f"`parameters` must be Values, got a {type(parameter).__name__} among them: {remedy}")
    return list(dict.fromkeys(found))


def _limit(number: Any, argument: str) -> float:
    limit = as_float(number, argument)
    if not limit >= 0.0:
        raise ValueError(f"`{argument}` must be at least 0, got {limit!r}: choose one such as 1.0")
    return limit
