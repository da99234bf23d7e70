"""Draws the pictures of the README and the documentation into docs/pictures, the same ones every time.

`make pictures` runs it, and so does `make docs`.
"""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt
from same_picture import same_picture

import chainrule
from chainrule import Value, data, draw, losses, nn, optim, plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chainrule.drawing import Drawing
    from chainrule.stepping.page import Page
    from chainrule.training import History

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
CHROMIUM = Path("/usr/bin/chromium")

# The same file from the same numbers: no date, and names of elements that are not drawn at random.
mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "chainrule"
WITHOUT_DATE = {"Date": None}


def worked_expression() -> Value:
    a, b, c, f = (Value(x, label=name) for name, x in {"a": 2.0, "b": -3.0, "c": 10.0, "f": -2.0}.items())
    e = a * b
    d = e + c
    loss = d * f
    e.label, d.label, loss.label = "e", "d", "L"
    loss.backward()
    return loss


def diamond() -> Value:
    a = Value(2.0, label="a")
    b, c = a + 1, a * 3
    d = b * c
    b.label, c.label, d.label = "b", "c", "d"
    d.backward()
    return d


def neuron() -> Drawing:
    cell = nn.Neuron(2, activation="tanh", rng=1)
    out = cell([Value(0.5, label="x0"), Value(-1.0, label="x1")])
    out.label = "out"
    out.backward()
    return draw(out, model=cell)


def four_points() -> tuple[Drawing, Drawing]:
    """The 41 parameters of the lecture's network after training, and its neurons in the graph of one prediction."""
    model = nn.MLP(3, [4, 4, 1], activation="tanh", output="tanh", rng=1)
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    chainrule.fit(model, losses.sum_of_squares, data.four_points(), optimizer=optimizer, epochs=50, progress=False)
    out = model([Value(x, label=f"x{k}") for k, x in enumerate(data.four_points().inputs[0])])
    model.zero_grad()
    out.backward()
    return draw(model), draw(out, model=model, collapse="neuron")


def moons() -> tuple[dict[str, Drawing], dict[str, Figure]]:
    """micrograd's demo: its parts, the program that the compiler finds, the trained network and what it learned."""
    random.seed(1337)
    model = nn.MLP(2, [16, 16, 1])
    points = data.micrograd_moons()
    inputs = [[Value(x) for x in point] for point in points.inputs]
    loss = losses.hinge([model(x) for x in inputs], points.targets) + losses.l2(1e-4)(model.parameters())
    loss.backward()
    layers = draw(loss, model=model, collapse="layer")
    program = draw(chainrule.compile(loss, wrt=model.parameters()), model=model, backward=False)
    optimizer = optim.SGD(model.parameters(), lr=optim.linear(1.0, 0.1, steps=100))
    history = chainrule.fit(
        model, losses.hinge, points, optimizer=optimizer, penalty=losses.l2(1e-4), epochs=100, progress=False
    )
    drawings = {"layers": layers, "program": program, "network": draw(model)}
    return drawings, {"moons_boundary": boundary(model, points), "moons_loss": loss_curves(history)}


def recurrence() -> Drawing:
    """Forty steps of x ← x + tanh(w·x)/10: a loop in time."""
    w, x = Value(-0.7), Value(1.0)
    state = x
    for _ in range(40):
        state = state + (w * state).tanh() * 0.1
    return draw(chainrule.compile(state * state, wrt=[w]), backward=False)


def xor() -> Figure:
    runs = {}
    for activation in ("tanh", "relu"):
        model = nn.MLP(2, [4, 1], activation=activation, rng=1)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        runs[activation] = chainrule.fit(
            model, losses.sum_of_squares, data.xor(), optimizer=optimizer, epochs=100, progress=False
        )
    return loss_curves(runs)


def spirals() -> Figure:
    points = data.spirals(n=300, classes=3, seed=1)
    model = nn.MLP(2, [24, 24, 3], activation="tanh", init="xavier", rng=1)
    optimizer = optim.Adam(model.parameters(), lr=0.02)
    chainrule.fit(model, losses.cross_entropy, points, optimizer=optimizer, epochs=600, progress=False)
    return boundary(model, points)


def saturated_network() -> dict[str, Figure]:
    """A network that starts badly: weights three times too large for tanh."""
    points = data.moons(n=100, seed=1)
    model = nn.MLP(2, [16, 16, 16, 1], activation="tanh", init=lambda rng, nin, nout: rng.uniform(-3, 3), rng=3)
    losses.hinge([model(x) for x in points.inputs], points.targets).backward()
    figures = {}
    for name, draw_into in {
        "activations": lambda ax: plot.activations(model, points, ax=ax),
        "gradients": lambda ax: plot.gradients(model, ax=ax),
        "health": lambda ax: plot.health(model, points, loss=losses.hinge, ax=ax),
    }.items():
        figures[name], ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
        draw_into(ax)
    return figures


def boundary(model: nn.MLP, points: data.Dataset) -> Figure:
    figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    plot.boundary(model, points, ax=ax)
    return figure


def loss_curves(runs: History | dict[str, History]) -> Figure:
    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    plot.loss(runs, ax=ax)
    return figure


def photograph(page: Page, step: int, path: Path) -> None:
    """The stepper as it stands after some steps; where there is no browser, the picture stays as it is."""
    if not CHROMIUM.exists():
        print(f"{CHROMIUM} is missing, so {path.name} stays as it is; tools/install_chromium.sh installs it")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        view = browser.new_page(viewport={"width": 1060, "height": 800}, reduced_motion="reduce")
        view.set_content(page.html)
        view.keyboard.press("Home")
        for _ in range(step):
            view.keyboard.press("ArrowRight")
        view.locator("g[data-node='0']").hover()
        keep(view.locator("#stepper").screenshot(), path)
        browser.close()


def keep(picture: bytes, path: Path) -> None:
    """Write a PNG, unless the file has one that looks the same."""
    if not path.exists() or not same_picture(path.read_bytes(), picture):
        path.write_bytes(picture)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    expression = worked_expression()
    mlp, mlp_neurons = four_points()
    drawings, figures = moons()
    drawings |= {
        "expression": draw(expression, local=True, flow=True),
        "diamond": draw(diamond(), local=True, flow=True),
    }
    drawings |= {"neuron": neuron(), "mlp": mlp, "mlp_neurons": mlp_neurons, "recurrence": recurrence()}
    figures |= {"xor_loss": xor(), "spirals_boundary": spirals(), **saturated_network()}
    for name, drawing in drawings.items():
        drawing.save(FOLDER / f"{name}.svg")
    for name, figure in figures.items():
        if name.endswith("_boundary"):  # mostly an image: as SVG it would be the same pixels, written out in letters
            figure.savefig(content := BytesIO(), format="png", bbox_inches="tight", dpi=160)
            keep(content.getvalue(), FOLDER / f"{name}.png")
        else:
            figure.savefig(FOLDER / f"{name}.svg", bbox_inches="tight", metadata=WITHOUT_DATE)
    photograph(chainrule.stepper(expression), 9, FOLDER / "stepper.png")


if __name__ == "__main__":
    main()
