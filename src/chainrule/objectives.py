"""Objectives: a scalar model as a function of one flat array, as `scipy.optimize` needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from chainrule.core.arguments import counted
from chainrule.core.value import Value
from chainrule.functions import dot
from chainrule.nn import Module
from chainrule.transforms import grad_of

__all__ = ["Objective", "objective"]


def __dir__() -> list[str]:
    return __all__


def objective(loss: Callable[[], Any], parameters: Module | Iterable[Value], compiled: bool = False) -> Objective:
    """`loss()` as a function of an array of the parameters' numbers: `f(x)` returns its value and its gradient.

    `parameters` is a model or a list of Values; frozen ones are left as they are. With `compiled`, the loss is compiled
    as by `chainrule.compile`.

    >>> a, b = Value(0.0), Value(0.0)
    >>> f = objective(lambda: (a - 3.0) ** 2 + (a * b - 6.0) ** 2, [a, b])
    >>> f(np.array([1.0, 2.0]))
    (20.0, array([-20.,  -8.]))

    `scipy.optimize.minimize(f, f.x0, jac=True)` minimizes it; add `hessp=f.hessp` and a method such as `"trust-ncg"`
    to use second derivatives. `f.assign(result.x)` then sets the parameters to the result.
    """
    return Objective(loss, parameters, compiled)


class Objective:
    """What `objective` returns: a loss as a function of the parameters' numbers.

    >>> a = Value(3.0)
    >>> Objective(lambda: a * a, [a], compiled=False).x0
    array([3.])
    """

    def __init__(self, loss: Callable[[], Any], parameters: Module | Iterable[Value], compiled: bool) -> None:
        found = parameters.parameters() if isinstance(parameters, Module) else list(parameters)
        for parameter in found:
            if not isinstance(parameter, Value):
                raise TypeError(f"`parameters` must be a model or Values, got {type(parameter).__name__} among them")
        self.parameters = [parameter for parameter in found if parameter.requires_grad]
        if not self.parameters:
            raise ValueError("`parameters` has none that can change: give a model, or Values with `requires_grad`")
        self.loss = loss
        self._value_and_grad: Callable[[], tuple[float, Any]] = self._eager_value_and_grad
        self._product: Callable[[Any], Any] = self._hessian_product
        if compiled:
            from chainrule.compiler import compile

            self._value_and_grad = compile(loss, self.parameters).value_and_grad
            self._product = compile(lambda v: self._hessian_product(v, create_graph=True), ())

    @property
    def x0(self) -> np.ndarray:
        """The parameters' current numbers."""
        return np.array([parameter._data for parameter in self.parameters])

    def assign(self, x: Any) -> None:
        """Set the parameters to the numbers in `x`."""
        numbers = np.asarray(x, dtype=np.float64)
        if numbers.shape != (len(self.parameters),):
            wanted = f"a flat array of {counted(len(self.parameters), 'number')}, one for each parameter"
            raise ValueError(f"`x` must be {wanted}; got one of shape {numbers.shape}")
        for parameter, number in zip(self.parameters, numbers.tolist(), strict=True):
            parameter.data = number

    def __call__(self, x: Any) -> tuple[float, np.ndarray]:
        """The loss at `x` and its gradient. Sets the parameters to `x` and touches no `grad`."""
        self.assign(x)
        value, gradient = self._value_and_grad()
        return value, np.asarray(gradient, dtype=np.float64)

    def hessp(self, x: Any, v: Any) -> np.ndarray:
        """The product of the Hessian at `x` and the vector `v`.

        >>> a, b = Value(0.0), Value(0.0)
        >>> objective(lambda: a * a * b, [a, b]).hessp([3.0, 5.0], [1.0, 0.0])
        array([10.,  6.])
        """
        self.assign(x)
        return np.asarray(self._product(np.asarray(v, dtype=np.float64).tolist()), dtype=np.float64)

    def _eager_value_and_grad(self) -> tuple[float, Any]:
        loss = self._checked(self.loss())
        return loss._data, grad_of(loss, self.parameters)

    def _hessian_product(self, v: Any, create_graph: bool = False) -> Any:
        gradient = grad_of(self._checked(self.loss()), self.parameters, create_graph=True)
        return grad_of(dot(gradient, v), self.parameters, create_graph)

    def _checked(self, loss: Any) -> Any:
        if not hasattr(loss, "_apply"):
            raise TypeError(f"`loss` must return a Value computed from the parameters, got {type(loss).__name__}")
        return loss
