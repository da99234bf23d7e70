"""micrograd's demo, from scratch: learn to tell two moons apart, one scalar at a time.

Same points, same random weights, same 100 steps as the original, and so the same losses. Run it with `make demo`.
"""

import random
from pathlib import Path

from rich.console import Console
from rich.table import Table

import chainrule
from chainrule import data, losses, nn, optim

MODEL = Path("moons.safetensors")
PUBLISHED = {"loss, step 0": 0.8958441028683222, "loss, step 99": 0.010978370135492717, "accuracy": 1.0}


def train(points: data.Dataset) -> tuple[nn.MLP, chainrule.training.History]:
    random.seed(1337)
    model = nn.MLP(2, [16, 16, 1])
    history = chainrule.fit(
        model,
        losses.hinge,
        points,
        optimizer=optim.SGD(model.parameters(), lr=optim.linear(1.0, 0.1, steps=100)),
        penalty=losses.l2(1e-4),
        metrics=[losses.accuracy],
        epochs=100,
    )
    return model, history


def results(history: chainrule.training.History) -> Table:
    table = Table("", "this run", "micrograd published")
    ours = dict(zip(PUBLISHED, (history.loss[0], history.loss[99], history["accuracy"][99]), strict=True))
    for name, published in PUBLISHED.items():
        table.add_row(name, repr(ours[name]), repr(published))
    table.add_row("time of a step", f"{history.seconds / len(history) * 1e3:.1f} ms", "")
    return table


def boundary(model: nn.MLP, points: data.Dataset, width: int = 72, height: int = 22) -> str:
    """The plane as text: shaded where the model says +1; ● and ○ are the points of class +1 and -1."""
    xs, ys = zip(*points.inputs, strict=True)
    left, right, bottom, top = min(xs) - 0.3, max(xs) + 0.3, min(ys) - 0.3, max(ys) + 0.3

    def column(x: float) -> int:
        return round((x - left) / (right - left) * (width - 1))

    def row(y: float) -> int:
        return round((top - y) / (top - bottom) * (height - 1))

    def score(i: int, j: int) -> float:
        x = left + (right - left) * j / (width - 1)
        y = top - (top - bottom) * i / (height - 1)
        return model([x, y]).data

    cells = [["▒" if score(i, j) > 0 else " " for j in range(width)] for i in range(height)]
    for (x, y), target in points:
        cells[row(y)][column(x)] = "●" if target > 0 else "○"
    return "\n".join("".join(line) for line in cells)


def main() -> None:
    console = Console()
    points = data.micrograd_moons()
    console.print(f"[bold]micrograd's moons[/], on the {chainrule.ENGINE} engine")
    model, history = train(points)
    console.print(f"{model}, {len(model.parameters())} parameters")
    console.print(results(history))
    console.print(boundary(model, points), highlight=False)
    chainrule.save(model, MODEL)
    again = chainrule.load(MODEL)
    same = all(again(x).data == model(x).data for x in points.inputs)
    console.print(f"saved to {MODEL} ({MODEL.stat().st_size:,} bytes) and loaded again; same answers: {same}")


if __name__ == "__main__":
    main()
