"""What a type checker says of users' code: every line that ends in `# error` is one, and no other line is.

`test_typed_code.py` has mypy and pyright read this file; nobody runs it.
"""

import math
from fractions import Fraction
from typing import Any, assert_type

import numpy as np

import chainrule
from chainrule import Value, compile, data, losses, nn, op, optim
from chainrule.compiler import CompiledFunction, Program

v = Value(2.0)
w = Value(3, label="w")

# A Value is made of a number.
Value(True), Value(Fraction(1, 2)), Value(np.float64(1.0)), Value(np.float32(1.0)), Value(np.int64(1))
Value("x")  # error
Value(None)  # error
Value([1.0])  # error
Value(1.0, label=3)  # error

# Arithmetic is with Values and numbers.
assert_type(v + w, Value)
assert_type(2 * v - w / 3.0, Value)
assert_type(v**2 % 3, Value)
assert_type(-abs(v), Value)
assert_type(v + Fraction(1, 2), Value)
assert_type(np.float64(2.0) * v, Value)
assert_type(v < 3, bool)
assert_type(sum([v, w], Value(0.0)), Value)
v + "a"  # error
"a" + v  # error
v * [1.0]  # error
v**None  # error
v < "a"  # error

# A Value does not become a float by itself.
float(v)  # error
int(v)  # error
math.exp(v)  # error
assert_type(v.data, float)
v.data = 3
v.data = "3"  # error
v.grad = 0.0
v.requires_grad = False
v.requires_grad = "x"  # error
v.label = "v"
v.backward()
v.backward("1")  # error
v.backwards()  # error

# Ops are functions and methods; floats give a float.
assert_type(chainrule.exp(v), Value)
assert_type(chainrule.exp(2.0), float)
assert_type(chainrule.exp(2), float)
assert_type(chainrule.atan2(v, 1.0), Value)
assert_type(chainrule.atan2(1.0, v), Value)
assert_type(chainrule.leaky_relu(v, slope=0.1), Value)
assert_type(v.tanh().clip(0.0, 1.0), Value)
chainrule.exp("x")  # error
chainrule.exp(v, 2.0)  # error
v.tanh(2.0)  # error
v.maximum("a")  # error


# A compiled function takes the arguments of the function; Values come back as floats.
@compile
def loss(xs: list[float], y: float, *, scale: float = 1.0) -> Value:
    return (sum((w * x for x in xs), Value(0.0)) - y) ** 2 * scale


@compile(wrt=[w], dtype="float32")
def outputs(x: float) -> list[Value]:
    return [w * x, w + x]


@compile
def pair(x: float) -> tuple[float, str]:
    return x, "x"


@compile
def untyped(x: Any, y: Any = 2.0) -> Any:
    return w * x * y


assert_type(loss([1.0], 2.0, scale=3.0), float)
assert_type(outputs(2.0), list[float])
assert_type(pair(2.0), tuple[float, str])
assert_type(loss.value_and_grad([1.0], 2.0)[0], float)
loss.batch([[1.0]], [2.0])
untyped(2.0, y=3.0)
loss.stats, outputs.describe()
loss("a", 2.0)  # error
loss([1.0])  # error
loss([1.0], 2.0, size=3.0)  # error
outputs([2.0])  # error
untyped()  # error
untyped(2.0, z=1.0)  # error
loss.bacth([[1.0]], [2.0])  # error
compile(3.0)  # error

program: Program = compile(v * w)
assert_type(program(), float)
program(2.0)  # error
model = nn.MLP(2, [3, 1])
compiled_model: CompiledFunction[..., Any] = compile(model)
compile(lambda x: w * x)(2.0)


class Line:
    def __init__(self) -> None:
        self.slope = Value(2.0)

    @compile
    def height(self, x: float) -> Value:
        return self.slope * x


assert_type(Line().height(2.0), float)
Line().height("x")  # error
Line().height(2.0, 3.0)  # error


# An op of one's own has its function's operands, and takes Values in their place.
@op(lambda out, x: 3.0 * x * x)
def cube(x: float) -> float:
    return x * x * x


@op(lambda out, x, y: 1.0, lambda out, x, y: 2.0, name="line_of_two")
def weighted(x: float, y: float = 1.0) -> float:
    return x + 2.0 * y


assert_type(cube(v), Value)
assert_type(cube(2.0), float)
assert_type(cube(x=2.0), float)
assert_type(weighted(v, 2.0), Value)
assert_type(weighted(2.0, v), Value)
assert_type(weighted(2.0, y=2.0), float)
cube.name, cube.partials
cube("x")  # error
cube(v, v)  # error
weighted(v, "x")  # error
weighted(2.0, z=1.0)  # error

# What surrounds them.
optimizer = optim.SGD(model.parameters(), lr=0.1)
optim.SGD(model.parameters(), lr="fast")  # error
chainrule.fit(model, losses.hinge, chainrule.data.moons(), metrics=["accuracy"], epochs=2)
chainrule.fit(model, losses.hinge, chainrule.data.moons(), epochs="many")  # error
chainrule.fit(model, losses.hinge, (np.eye(2), [1, -1]), validation=([[1.0, 2.0]], [1]))
chainrule.fit(model, losses.hinge, np.eye(2))  # error
assert_type(data.Dataset.from_arrays([[1.0]], ["yes"], classes=["no", "yes"]), data.Dataset)
assert_type(data.standardize(data.xor()), tuple[data.Dataset, data.Scaling])
assert_type(data.standardize(data.xor(), (np.eye(2), [0, 1])), tuple[data.Dataset, data.Dataset, data.Scaling])
chainrule.nothing  # error
