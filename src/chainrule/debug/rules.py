"""What a node's rule does when it is called: a `_backward` written by hand, or the partials of an op."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from chainrule.core.code_lines import definition, is_ours
from chainrule.core.graph import is_hand_written, number_of
from chainrule.core.value import Value
from chainrule.debug.finite_differences import Derivative, derivative


def is_users_rule(node: Value) -> bool:
    """Whether the user wrote what the node does backward: a `_backward`, or the partials of an op.

    >>> is_users_rule(Value(1.0) * 2.0)
    False
    """
    return is_hand_written(node) or (node._rule is not None and not is_ours(node._rule.forward.__code__))


def push(node: Any, operands: Sequence[Any], grad: float = 1.0, held: float = 0.0) -> list[float]:
    """The operands' gradients after `node` has passed on `grad`, if they held `held` before."""
    for operand in operands:
        operand.grad = held
    node.grad = grad
    node._backward()
    return [float(operand.grad) for operand in operands]


class TriedRule(NamedTuple):
    """What a rule passes on when it is called three times: it must add to what is there, in proportion to its gradient.

    >>> x = Value(3.0)
    >>> tried_rule(x * 5.0, [x]).partials
    [5.0]
    """

    partials: list[float]  # for a gradient of 1
    doubled: list[float]  # for a gradient of 2
    held: float  # what the operands had before the third call
    totals: list[float]  # and after it

    @property
    def accumulates(self) -> bool:
        return all(close(total, self.held + partial) for total, partial in zip(self.totals, self.partials, strict=True))

    @property
    def is_proportional(self) -> bool:
        return all(close(twice, 2.0 * once) for once, twice in zip(self.partials, self.doubled, strict=True))


def tried_rule(node: Any, operands: Sequence[Any]) -> TriedRule:
    """Call the node's rule and see; gradients are changed."""
    partials = push(node, operands)
    held = 1.0 + max((abs(partial) for partial in partials if isfinite(partial)), default=0.0)
    totals = push(node, operands, held=held)
    return TriedRule(partials, push(node, operands, grad=2.0), held, totals)


def local_slope(node: Any, operand: Any) -> Derivative:
    """The measured derivative of a table op with respect to one operand, in all its places."""

    def moved(x: float) -> float:
        return float(node._rule.forward(*[x if other is operand else number_of(other) for other in node._operands]))

    return derivative(moved, number_of(operand))


def backward_of(node: Any) -> str:
    """How to refer to the node's `_backward`."""
    return f"_backward{definition(node._backward)}"


def close(a: float, b: float) -> bool:
    """Equal up to rounding; what is not finite gets the benefit of the doubt."""
    return not isfinite(a - b) or abs(a - b) <= 1e-9 * max(abs(a), abs(b))
