"""Draws the pictures of the README into docs/pictures, the same ones every time on one machine (`make pictures`)."""

from __future__ import annotations

import random
from pathlib import Path

import chainrule
from chainrule import Value, data, draw, losses, nn, optim
from chainrule.drawing import Drawing

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"


def worked_expression() -> Drawing:
    a, b, c, f = (Value(x, label=name) for name, x in {"a": 2.0, "b": -3.0, "c": 10.0, "f": -2.0}.items())
    e = a * b
    d = e + c
    loss = d * f
    e.label, d.label, loss.label = "e", "d", "L"
    loss.backward()
    return draw(loss, local=True, flow=True)


def diamond() -> Drawing:
    a = Value(2.0, label="a")
    b, c = a + 1, a * 3
    d = b * c
    b.label, c.label, d.label = "b", "c", "d"
    d.backward()
    return draw(d, local=True, flow=True)


def neuron() -> Drawing:
    cell = nn.Neuron(2, activation="tanh", rng=1)
    out = cell([Value(0.5, label="x0"), Value(-1.0, label="x1")])
    out.label = "out"
    out.backward()
    return draw(out, model=cell)


def moons() -> tuple[Drawing, Drawing, Drawing]:
    """micrograd's demo: the program that the compiler finds, the layers of its loss, and the trained network."""
    random.seed(1337)
    model = nn.MLP(2, [16, 16, 1])
    points = data.micrograd_moons()
    inputs = [[Value(x) for x in point] for point in points.inputs]
    loss = losses.hinge([model(x) for x in inputs], points.targets) + losses.l2(1e-4)(model.parameters())
    loss.backward()
    layers = draw(loss, model=model, collapse="layer")
    program = draw(chainrule.compile(loss, wrt=model.parameters()), model=model, backward=False)
    optimizer = optim.SGD(model.parameters(), lr=optim.linear(1.0, 0.1, steps=100))
    chainrule.fit(model, losses.hinge, points, optimizer=optimizer, penalty=losses.l2(1e-4), epochs=100, progress=False)
    return program, layers, draw(model)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    program, layers, network = moons()
    pictures = {"expression": worked_expression(), "diamond": diamond(), "neuron": neuron()}
    pictures |= {"network": network, "layers": layers, "program": program}
    for name, drawing in pictures.items():
        drawing.save(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
