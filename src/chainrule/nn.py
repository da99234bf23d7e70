"""Neurons, layers and networks.

With default arguments these are micrograd's classes, down to the order in which random numbers are drawn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any

from chainrule import ops
from chainrule.core.arguments import counted, generator, listed, quoted, whole_number
from chainrule.core.display import shown
from chainrule.core.value import Value

__all__ = ["INITIALISERS", "MLP", "Layer", "Module", "Neuron", "Sequential"]


def __dir__() -> list[str]:
    return __all__


Activation = str | Callable[[Value], Value]
Initialiser = str | Callable[[random.Random, int, int], float]
Rng = Any  # a random.Random, an integer seed, or None

INITIALISERS: dict[str, Callable[[random.Random, int, int], float]] = {
    "uniform": lambda rng, nin, nout: rng.uniform(-1, 1),
    "xavier": lambda rng, nin, nout: rng.uniform(-1, 1) * math.sqrt(6 / (nin + nout)),
    "he": lambda rng, nin, nout: rng.gauss(0, math.sqrt(2 / nin)),
}
"""How weights are drawn, by name: `rule(rng, number of inputs, number of outputs)` returns one weight."""


class Module:
    """Something with parameters: the Values and Modules that its attributes hold, also inside lists and dicts.

    >>> class Scale(Module):
    ...     def __init__(self):
    ...         self.factor = Value(2.0)
    ...     def __call__(self, x):
    ...         return self.factor * x
    >>> Scale().named_parameters()
    [('factor', Value(data=2.0, grad=0.0))]
    """

    def named_parameters(self) -> list[tuple[str, Value]]:
        """Every parameter once, with the path of attributes and indices that leads to it.

        Parameters are leaves: a Value computed from others is not one.

        >>> [name for name, _ in Neuron(2).named_parameters()]
        ['w.0', 'w.1', 'b']
        """
        found: dict[Value, str] = {}
        for name, thing in _walk(self, "", set()):
            if isinstance(thing, Value) and not thing._operands:
                found.setdefault(thing, name)
        return [(name, parameter) for parameter, name in found.items()]

    def parameters(self) -> list[Value]:
        """Every parameter once, in the order in which attributes were set."""
        return [parameter for _, parameter in self.named_parameters()]

    def named_modules(self) -> list[tuple[str, Module]]:
        """This module, with an empty path, and every module inside it once, with the path that leads to it.

        >>> [name for name, _ in Layer(2, 2).named_modules()]
        ['', 'neurons.0', 'neurons.1']
        """
        return [(path, thing) for path, thing in _walk(self, "", set()) if isinstance(thing, Module)]

    _repr_svg_ = shown("svg_of_network")

    def zero_grad(self) -> None:
        """Set every parameter's gradient to 0, as each training step must."""
        for parameter in self.parameters():
            parameter.grad = 0.0

    def state(self) -> dict[str, float]:
        """The parameters' numbers by name."""
        named = self.named_parameters()
        state = {name: parameter._data for name, parameter in named}
        if len(state) != len(named):
            raise ValueError("two parameters have the same path of attributes and keys; rename a key that has a dot")
        return state

    def load_state(self, state: Mapping[str, float]) -> None:
        """Set the parameters to what `state()` returned; an error changes nothing.

        >>> neuron = Neuron(1)
        >>> neuron.load_state({"w.0": 0.5, "b": 2.0})
        >>> neuron([2.0]).data
        3.0
        """
        named = dict(self.named_parameters())
        missing, unknown = named.keys() - state.keys(), state.keys() - named.keys()
        if missing or unknown:
            found = f"it lacks {listed(sorted(missing), 3)} and has {listed(sorted(unknown), 3)} besides"
            remedy = "build the model with the shape it was saved with"
            raise ValueError(f"`state` does not fit this {type(self).__name__}: {found}; {remedy}")
        numbers = {name: ops.as_float(number, name) for name, number in state.items()}
        for name, parameter in named.items():
            parameter.data = numbers[name]


class Neuron(Module):
    """A weighted sum of inputs plus a bias, passed through an activation.

    >>> Neuron(2, rng=1)
    Neuron(2, activation='relu')
    """

    def __init__(
        self,
        nin: int,
        nonlin: bool = True,
        *,
        activation: Activation = "relu",
        init: Initialiser = "uniform",
        rng: Rng = None,
        nout: int = 1,
    ) -> None:
        whole_number(nin, "nin")
        if not callable(init) and init not in INITIALISERS:
            raise ValueError(f"`init` must be a function or one of {', '.join(INITIALISERS)}; got {init!r}")
        draw, rng = init if callable(init) else INITIALISERS[init], _generator(rng)
        self._nonlinearity: Activation = "relu"
        self.activation = activation
        if not nonlin:
            self.nonlin = False
        self.w = [Value(draw(rng, nin, nout)) for _ in range(nin)]
        self.b = Value(0.0)

    @property
    def activation(self) -> Activation:
        """The function applied to the sum, or its name; assignable."""
        return self._activation

    @activation.setter
    def activation(self, activation: Activation) -> None:
        self._activate = _activation(activation)
        self._activation = activation
        if activation != "linear":
            self._nonlinearity = activation

    @property
    def nonlin(self) -> bool:
        """Whether the activation is not linear. Assign False to make it linear, True to restore the former one.

        >>> neuron = Neuron(2, activation="tanh")
        >>> neuron.nonlin = False
        >>> neuron
        Neuron(2, activation='linear')
        """
        return self.activation != "linear"

    @nonlin.setter
    def nonlin(self, wanted: bool) -> None:
        self.activation = self._nonlinearity if wanted else "linear"

    def __call__(self, x: Sequence[Any]) -> Value:
        if len(x) != len(self.w):
            raise ValueError(f"`x` must have {counted(len(self.w), 'number')}, one for each weight; got {len(x)}")
        try:
            total: Value = sum([wi * xi for wi, xi in zip(self.w, x, strict=True)], self.b)
        except TypeError:
            _refuse_rows(x)
            raise
        return self._activate(total) if self._activate else total

    def __repr__(self) -> str:
        return f"Neuron({len(self.w)}, activation={self.activation!r})"


class Layer(Module):
    """Neurons that see the same inputs. One neuron returns a Value, several return a list.

    >>> Layer(2, 3, rng=1)
    Layer(2, 3, activation='relu')
    """

    def __init__(self, nin: int, nout: int, *, rng: Rng = None, **neuron: Any) -> None:
        whole_number(nout, "nout")
        rng = _generator(rng)
        self.neurons = [Neuron(nin, rng=rng, nout=nout, **neuron) for _ in range(nout)]

    def __call__(self, x: Any) -> Any:
        inputs = x if hasattr(x, "__len__") else [x]
        _refuse_rows(inputs)
        outputs = [neuron(inputs) for neuron in self.neurons]
        return outputs[0] if len(outputs) == 1 else outputs

    def __repr__(self) -> str:
        neuron = self.neurons[0]
        return f"Layer({len(neuron.w)}, {len(self.neurons)}, activation={neuron.activation!r})"


class MLP(Module):
    """A multi-layer perceptron: `nin` inputs, then one layer for each size in `nouts`.

    >>> model = MLP(2, [16, 16, 1], rng=1337)
    >>> model
    MLP(2, [16, 16, 1], activation='relu', output='linear')
    >>> len(model.parameters())
    337
    """

    def __init__(
        self,
        nin: int,
        nouts: Sequence[int],
        *,
        activation: Activation = "relu",
        output: Activation = "linear",
        init: Initialiser = "uniform",
        rng: Rng = None,
    ) -> None:
        if not hasattr(nouts, "__len__") or not len(nouts):
            raise ValueError(f"`nouts` must be the sizes of one or more layers, as in MLP(2, [16, 1]); got {nouts!r}")
        rng = _generator(rng)
        for name in (activation, output):
            _activation(name)
        self.activation, self.output = activation, output
        sizes, activations = [nin, *nouts], [activation] * (len(nouts) - 1) + [output]
        shapes = zip(sizes, nouts, activations, strict=False)
        self.layers = [Layer(before, after, activation=act, init=init, rng=rng) for before, after, act in shapes]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def config(self) -> dict[str, Any]:
        """The arguments that make an MLP of this shape.

        >>> MLP(2, [3, 1]).config()
        {'nin': 2, 'nouts': [3, 1], 'activation': 'relu', 'output': 'linear'}
        """
        for k, layer in enumerate(self.layers, 1):
            usual = self.output if k == len(self.layers) else self.activation
            if any(neuron.activation != usual for neuron in layer.neurons):
                raise ValueError(
                    f"this MLP has neurons in layer {k} whose activation is not {usual!r}, which it was made with, "
                    "so its shape does not describe it: keep its state(), and change a new MLP in the same way"
                )
        return self._shape()

    def _shape(self) -> dict[str, Any]:
        sizes = [len(layer.neurons) for layer in self.layers]
        nin = len(self.layers[0].neurons[0].w)
        return {"nin": nin, "nouts": sizes, "activation": self.activation, "output": self.output}

    def __repr__(self) -> str:
        return "MLP({nin}, {nouts}, activation={activation!r}, output={output!r})".format(**self._shape())


class Sequential(Module):
    """Modules or plain functions, applied one after another.

    >>> model = Sequential(Layer(2, 4, rng=1), lambda h: sum(h))
    >>> len(model.parameters())
    12
    """

    def __init__(self, *steps: Callable[[Any], Any]) -> None:
        for step in steps:
            if not callable(step):
                raise TypeError(f"`steps` must be modules or functions, got {type(step).__name__}")
        self.steps = list(steps)

    def __call__(self, x: Any) -> Any:
        for step in self.steps:
            x = step(x)
        return x

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(repr, self.steps))})"


def _walk(thing: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Value | Module]]:
    """The Values and Modules that `thing` is or holds, with their paths; each Module once, as they may form cycles."""
    if isinstance(thing, Value):
        yield path, thing
        return
    if isinstance(thing, Module):
        if id(thing) in seen:
            return
        seen.add(id(thing))
        yield path, thing
        thing = vars(thing)
    parts = thing.items() if isinstance(thing, Mapping) else enumerate(thing) if _is_list(thing) else ()
    for key, part in parts:
        yield from _walk(part, f"{path}.{key}" if path else str(key), seen)


def _refuse_rows(x: Any) -> None:
    """Raise an error if these are the inputs of many examples, where those of one are wanted."""
    if getattr(x, "ndim", 1) > 1:
        found = f"an array of shape {x.shape}"
    elif len(x) and hasattr(x[0], "__len__"):
        found = f"a list of {counted(len(x), 'row')}"
    else:
        return
    remedy = "call the model for each, as in [model(x) for x in rows], or compile(model).batch(rows, reduce=None)"
    raise ValueError(f"`x` must be one example, a list of numbers; got {found}: {remedy}")


def _is_list(thing: Any) -> bool:
    return isinstance(thing, (list, tuple)) or str(getattr(thing, "dtype", "")) == "object"  # NumPy's


def _activation(activation: Activation) -> Callable[[Value], Value] | None:
    if activation == "linear":
        return None
    if callable(activation):
        return activation
    if not isinstance(activation, str) or not _takes_one(ops.TABLE.get(activation)):
        names = ", ".join(row.name for row in ops.TABLE.values() if _takes_one(row))
        raise ValueError(f"`activation` must be a function, 'linear' or one of {names}; got {quoted(activation)}")
    return methodcaller(activation)  # works on Values and on the compiler's symbols


def _takes_one(row: ops.Op | None) -> bool:
    return row is not None and row.arity - len(row.defaults) == 1


def _generator(rng: Rng) -> Any:
    """The generator to draw from; by default Python's global one, which `random.seed` seeds."""
    return random if rng is random else generator(rng) or random
