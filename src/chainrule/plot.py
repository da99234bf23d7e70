"""Plots of training: loss curves, decision boundaries, activations and gradients of layers. Needs matplotlib.

Every function draws into the given Axes, or into a new figure, and returns the Axes, so that everything else about the
plot can be changed:

    ax = chainrule.plot.loss(history)
    ax.set_title("moons")
    ax.figure.savefig("loss.png")

Colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; points of different
classes also differ in shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.core.arguments import setting, whole_number
from chainrule.core.value import Value
from chainrule.data import Dataset
from chainrule.debug.layers import FAR, LayerReport, gradients_by_layer, outputs_by_layer, report, saturation
from chainrule.nn import Module
from chainrule.training import History
from chainrule.training.inference import answers, compiled_answers

try:
    from matplotlib.colors import LinearSegmentedColormap, to_rgb
except ImportError:
    raise ImportError("chainrule.plot needs matplotlib: install it with `pip install 'chainrule[plot]'`") from None

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LayerReport", "activations", "boundary", "gradients", "health", "loss", "report"]


def __dir__() -> list[str]:
    return __all__


BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = "os^Dvp"
INK, PALE = "#333333", "#bbbbbb"
DIVERGING = LinearSegmentedColormap.from_list("chainrule", [BLUE, "#9ecae8", "#f7f7f7", "#f2b48c", VERMILION])

Run = History | Sequence[float]


def loss(
    *runs: Run | Mapping[str, Run],
    labels: Sequence[str] = (),
    ema: float = 0.0,
    log: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Loss curves, one for each run, on a logarithmic axis.

    A run is the history that `fit` returns, or a list of numbers; pass several one by one, or as a dict by name.
    `ema`, such as 0.9, adds an exponential moving average with that weight and fades the curve itself. A single
    history is drawn with its validation loss, if it has one.

    >>> ax = loss({"tanh": [1.0, 0.1, 0.01], "relu": [1.0, 0.5, 0.4]})
    >>> ax.get_yscale()
    'log'
    """
    weight = setting(ema, "ema", "0.9", below=1.0)
    curves = _curves(runs, labels)
    ax = _axes(ax)
    lowest, reaches_zero = np.inf, False
    for colour, (label, numbers) in zip(cycle(COLOURS), curves.items(), strict=False):
        epochs = np.arange(len(numbers))
        shown = np.where(np.isfinite(numbers), numbers, np.nan)
        lowest = min(lowest, shown[shown > 0.0].min(initial=np.inf))
        reaches_zero |= bool((shown <= 0.0).any())
        if weight:
            ax.plot(epochs, shown, color=colour, linewidth=1.0, alpha=0.3)
            ax.plot(epochs, moving_average(shown, weight), color=colour, linewidth=2.0, label=label)
        else:
            ax.plot(epochs, shown, color=colour, linewidth=1.8, label=label)
    if log and lowest < np.inf:
        ax.set_yscale("log", nonpositive="clip")
        if reaches_zero:  # a loss of 0 is below any logarithmic axis
            ax.set_ylim(bottom=lowest / 2.0)
    ax.set(xlabel="epoch", ylabel="loss" if not weight else f"loss, and its moving average ({weight:g})")
    ax.margins(x=0.02)
    ax.grid(True, which="major", color=PALE, alpha=0.4, linewidth=0.6)
    if len(curves) > 1:
        ax.legend(frameon=False)
    return ax


def moving_average(numbers: Any, weight: float) -> np.ndarray:
    """The exponential moving average: each step multiplies the weight of past entries by `weight`; NaNs are skipped.

    >>> moving_average([1.0, 1.0, 4.0], 0.5).round(3).tolist()
    [1.0, 1.0, 2.714]
    """
    total = count = 0.0
    averages = []
    for number in numbers:
        if not np.isnan(number):
            total, count = weight * total + number, weight * count + 1.0
        averages.append(total / count if count else np.nan)
    return np.array(averages)


def boundary(
    model: Callable[[Any], Any],
    inputs: Any,
    targets: Sequence[Any] | None = None,
    *,
    threshold: float = 0.0,
    classes: Sequence[str] = (),
    resolution: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The decision boundary of a model with two inputs, with the data on top.

    A model that returns one number divides the plane where that number crosses `threshold`; one that returns a list,
    by its largest entry. Stronger colour means more certainty: a larger number, or a larger softmax probability.
    `inputs` may be a Dataset, which includes targets; if these are class indices, `classes` names them. The grid has
    `resolution` points in each direction, and is computed by compiled code if the model can be compiled.

    >>> from chainrule import data, nn
    >>> ax = boundary(nn.MLP(2, [4, 1], rng=1), data.moons(n=20))
    >>> ax.get_aspect()
    1.0
    """
    points, labels = _points(inputs, targets)
    across, up, scores = _grid(model, points, resolution)
    ax = _axes(ax)
    picture, leads = _two_sides(scores - threshold) if scores.ndim == 2 else _regions(scores)
    width, height = (across[0], across[-1]), (up[0], up[-1])
    ax.imshow(picture, extent=(*width, *height), origin="lower", interpolation="bilinear", zorder=0)
    for lead in map(np.ma.masked_invalid, leads):
        if lead.count() and lead.min() < 0.0 < lead.max():
            ax.contour(across, up, lead, [0.0], colors=[INK], linewidths=1.5, zorder=1)
    _scatter(ax, points, labels, classes)
    similar = 1 / 3 < np.ptp(across) / np.ptp(up) < 3  # a table's columns may differ in units
    ax.set(aspect="equal" if similar else "auto", xlim=width, ylim=height)
    return ax


def activations(model: Module, inputs: Any, *, bins: int = 60, ax: Axes | None = None) -> Axes:
    """The activations over the inputs, as one histogram per layer with the first on top.

    >>> from chainrule import data, nn
    >>> ax = activations(nn.MLP(2, [8, 8, 1], activation="tanh", rng=1), data.moons())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['layer 1, tanh', 'layer 2, tanh', 'layer 3, linear']
    """
    layers = outputs_by_layer(model, inputs)
    numbers = {f"{name}, {kind}": outputs[np.isfinite(outputs)] for name, (kind, outputs) in layers.items()}
    everything = np.concatenate(list(numbers.values()))
    if not len(everything):
        raise ValueError("`model` returns no finite number for these inputs: look at its parameters")
    notes = [_about(kind, outputs) for kind, outputs in layers.values()]
    low, high = float(everything.min()), float(everything.max())
    margin = 0.05 * (high - low) or 0.5
    edges = np.linspace(low - margin, high + margin, whole_number(bins, "bins") + 1)
    return _ridges(ax, numbers, edges, notes, BLUE, xlabel="activation")


def gradients(model: Module, *, bins: int = 60, ax: Axes | None = None) -> Axes:
    """The absolute gradients of the parameters, as one histogram per layer on a logarithmic axis.

    Layers whose gradients lie far to the left of the others learn much more slowly. Call `backward()` first.

    >>> from chainrule import nn
    >>> model = nn.MLP(2, [8, 1], rng=1)
    >>> model([1.0, 2.0]).backward()
    >>> ax = gradients(model)
    >>> ax.get_xscale()
    'log'
    """
    layers = {name: np.abs(numbers) for name, numbers in gradients_by_layer(model).items()}
    sizes = {name: numbers[np.isfinite(numbers) & (numbers > 0.0)] for name, numbers in layers.items()}
    everything = np.concatenate(list(sizes.values()))
    if not len(everything):
        raise ValueError("`model` holds no gradient other than 0: call backward() on a loss first")
    notes = []
    for name, numbers in layers.items():
        lost = 1.0 - len(sizes[name]) / len(numbers)
        notes.append(f"rms {np.sqrt(np.mean(numbers**2)):.1e}" + (f"\n{lost:.0%} are 0" if lost else ""))
    low, high = np.log10(everything.min()) - 0.2, np.log10(everything.max()) + 0.2
    edges = np.logspace(low, high, whole_number(bins, "bins") + 1)
    return _ridges(ax, sizes, edges, notes, GREEN, xscale="log", xlabel="|gradient|")


def health(
    model: Module,
    inputs: Any,
    targets: Sequence[Any] | None = None,
    loss: Callable[[list[Any], list[Any]], Any] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Each layer's dead and saturated units as bars, its gradient's size beside them, and the findings below.

    `report` returns the same in words, and takes the same arguments.

    >>> from chainrule import data, losses, nn
    >>> ax = health(nn.MLP(2, [8, 1], rng=1), data.moons(n=20), loss=losses.hinge)
    >>> ax.get_xlabel()
    'share of the layer'
    """
    found = report(model, inputs, targets, loss)
    ax = _axes(ax, len(found.rows))
    dead, saturated = np.array([(row.dead, row.saturated) for row in found.rows]).T
    for label, colour, left, width in (
        ("dead units", VERMILION, 0.0 * dead, dead),
        ("saturated outputs", ORANGE, dead, saturated),
        ("at work", SKY, dead + saturated, 1.0 - dead - saturated),
    ):
        ax.barh(range(len(dead)), width, left=left, color=colour, height=0.55, label=label)
    for place, row in enumerate(found.rows):
        small = row.relative < 1.0 / FAR
        note = f"gradient {row.gradient:.1e}" + (", vanishing" if small else "")
        ax.text(1.02, place, note, va="center", fontsize=8, color=VERMILION if small else INK)
    _name_rows(ax, [f"{row.name}, {row.activation}" for row in found.rows])
    ax.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "25%", "50%", "75%", "100%"])
    ax.set(xlim=(0.0, 1.0), xlabel="share of the layer")
    _legend_above(ax)
    below: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, -42), "textcoords": "offset points"}
    text = "\n".join(fill(finding, 88) for finding in found.findings) or "nothing wrong"
    ax.annotate(text, (0.0, 0.0), fontsize=8, color=INK, va="top", **below)
    return ax


def _axes(ax: Axes | None, rows: int = 0) -> Axes:
    """The given Axes, or new ones that are high enough for `rows` rows of text."""
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, max(4.8, 1.5 + 0.55 * rows)), layout="constrained")
    elif not hasattr(ax, "plot") or not hasattr(ax, "figure"):
        raise TypeError(f"`ax` must be matplotlib Axes, such as plt.subplots() returns, got {type(ax).__name__}")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _curves(runs: Sequence[Any], labels: Sequence[str]) -> dict[str, np.ndarray]:
    """The losses to draw, by label."""
    named = _named(runs, labels)
    first, *others = named.values()
    if not others and isinstance(first, History) and "validation_loss" in first.columns:
        named = {"training": first.loss, "validation": first["validation_loss"]}
    return {name: _losses(run, name) for name, run in named.items()}


def _named(runs: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
    if len(runs) == 1 and isinstance(runs[0], Mapping):
        labels, runs = list(runs[0]), list(runs[0].values())
    if not runs:
        raise ValueError("`runs` is empty: give the history that fit returned, or a list of losses")
    if labels and len(labels) != len(runs):
        raise ValueError(f"`labels` must have a name for each of the {len(runs)} runs, got {len(labels)}")
    named = dict(zip(labels or [f"run {k}" for k in range(1, len(runs) + 1)], runs, strict=True))
    if len(named) < len(runs):
        raise ValueError(f"`labels` must differ from one another, got {list(labels)}")
    return named


def _losses(run: Any, name: str) -> np.ndarray:
    numbers = run.loss if isinstance(run, History) else run
    if not hasattr(numbers, "__len__") or isinstance(numbers, str) or not len(numbers):
        raise TypeError(f"a run must be a History or a list of losses, got {run!r:.60} for {name!r}")
    return np.array([_bare(number) for number in numbers], dtype=np.float64)


def _points(inputs: Any, targets: Any) -> tuple[np.ndarray, list[Any] | None]:
    if isinstance(inputs, Dataset):
        inputs, targets = inputs.inputs, inputs.targets if targets is None else targets
    points = np.array(inputs, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise ValueError(
            f"`inputs` must be points in the plane, pairs of numbers; got an array of shape {points.shape}"
        )
    if targets is not None and len(targets) != len(points):
        raise ValueError(f"`targets` must have an entry for each of the {len(points)} points, got {len(targets)}")
    return points, None if targets is None else [_bare(target) for target in targets]


def _bare(number: Any) -> Any:
    return number._data if isinstance(number, Value) else number


def _grid(model: Any, points: np.ndarray, resolution: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The grid's two axes and the model's outputs on it: one matrix, or one for each entry of a list."""
    if not callable(model):
        raise TypeError(f"`model` must be a network or a function of two numbers, got {type(model).__name__}")
    low, high = points.min(axis=0), points.max(axis=0)
    spans = high - low
    margins = 0.15 * np.where(spans > 0.0, spans, spans.max() or 1.0)
    size = whole_number(resolution, "resolution", 2) if resolution is not None else 300

    def axes(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        across, up = (np.linspace(low[k] - margins[k], high[k] + margins[k], size) for k in (0, 1))
        return across, up, np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)

    across, up, places = axes(size)
    scores = compiled_answers(model, places)
    if scores is None:
        if resolution is None:  # one call per point, so use fewer points
            across, up, places = axes(size := 80)
        scores = answers(model, places)
    if scores.ndim > 2:
        raise ValueError(f"`model` must return a number or a list of numbers, got an array of shape {scores.shape[1:]}")
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    return across, up, np.moveaxis(scores.reshape(size, size, *scores.shape[1:]), (0, 1), (-2, -1))


def _two_sides(scores: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The colours of the plane, and what is 0 on the line that divides it."""
    sizes = np.abs(scores[np.isfinite(scores)])
    span = (float(np.quantile(sizes, 0.95)) if len(sizes) else 0.0) or 1.0
    colours = np.array(DIVERGING(0.5 + 0.5 * np.nan_to_num(scores / span)))[..., :3]
    return 1.0 - 0.6 * (1.0 - colours), [scores]


def _regions(scores: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The same for several classes: a class leads where its score is above that of every other."""
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(scores - scores.max(axis=0))
        sureness = exponentials.max(axis=0) / exponentials.sum(axis=0)
        leads = [scores[k] - np.delete(scores, k, axis=0).max(axis=0) for k in range(len(scores))]
    least = 1.0 / len(scores)
    strength = 0.1 + 0.4 * np.nan_to_num((sureness - least) / (1.0 - least))
    colours = np.array([to_rgb(COLOURS[k % len(COLOURS)]) for k in range(len(scores))])
    return 1.0 - strength[..., None] * (1.0 - colours[scores.argmax(axis=0)]), leads


def _scatter(ax: Axes, points: np.ndarray, labels: list[Any] | None, names: Sequence[str]) -> None:
    style: dict[str, Any] = {"s": 26, "edgecolors": "white", "linewidths": 0.7, "zorder": 2}
    if labels is None:
        ax.scatter(*points.T, color=INK, **style)
        return
    classes = list(range(len(names))) if names else sorted(set(labels))
    if unknown := set(labels) - set(classes):
        raise ValueError(f"`classes` names {len(names)} classes, but `targets` has {unknown.pop()!r}: name every one")
    for k, target in enumerate(classes):
        of_class = np.array([label == target for label in labels])
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[(k + k // len(COLOURS)) % len(MARKERS)]
        label = names[k] if names else f"{target:g}" if isinstance(target, float) else str(target)
        ax.scatter(*points[of_class].T, color=colour, marker=marker, label=label, **style)
    if len(classes) <= 10:
        _legend_above(ax)


def _legend_above(ax: Axes) -> None:
    """A legend above the frame, where it hides nothing."""
    style = {"frameon": False, "fontsize": 8, "borderpad": 0.2, "handletextpad": 0.3, "columnspacing": 1.2}
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=10, **style)


def _ridges(
    ax: Axes | None, layers: Mapping[str, np.ndarray], edges: np.ndarray, notes: list[str], colour: str, **axis: str
) -> Axes:
    """A row for each layer, with its histogram standing on the row's line, scaled to its own peak."""
    ax = _axes(ax, len(layers))
    ax.set(**axis)
    for row, (numbers, note) in enumerate(zip(layers.values(), notes, strict=True)):
        counts, _ = np.histogram(numbers, edges)
        heights = 0.85 * counts / max(counts.max(), 1)
        ax.stairs(row - heights, edges, baseline=row, fill=True, color=colour, alpha=0.45)
        ax.stairs(row - heights, edges, baseline=None, color=colour, linewidth=1.2)
        ax.annotate(note, (1.02, row), xycoords=("axes fraction", "data"), fontsize=8, color=INK, va="bottom")
    _name_rows(ax, list(layers), verticalalignment="bottom")
    ax.set(xlim=(edges[0], edges[-1]), ylim=(len(layers) - 0.8, -1.0))
    ax.grid(True, axis="x", color=PALE, alpha=0.4, linewidth=0.6)
    return ax


def _name_rows(ax: Axes, names: list[str], **style: Any) -> None:
    ax.set_yticks(range(len(names)), names, **style)
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.spines["left"].set_visible(False)


def _about(activation: str, outputs: np.ndarray) -> str:
    """Mean and standard deviation, and the share that is 0 or saturated where that can be a bad sign."""
    with np.errstate(invalid="ignore"):
        words = [f"mean {outputs.mean():.2g}", f"sd {outputs.std():.2g}"]
    if activation == "relu":
        words.append(f"{(outputs == 0.0).mean():.0%} are 0")
    elif activation in ("tanh", "sigmoid"):
        words.append(f"{saturation(activation, outputs):.0%} saturated")
    return "\n".join(words)
