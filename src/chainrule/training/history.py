"""`History`: what a training run recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chainrule.core import display
from chainrule.core.arguments import MOST_OF_A_MESSAGE, shown


class History:
    """What a training run recorded: columns with one entry per epoch.

    >>> history = History()
    >>> history.record({"loss": 0.9})
    >>> history.extend({"loss": [0.5, 0.1]})
    >>> history
    History(3 epochs, loss 0.9 → 0.1)
    >>> history.loss, history.last
    ([0.9, 0.5, 0.1], {'loss': 0.1})
    """

    def __init__(self) -> None:
        self.columns: dict[str, list[float]] = {}
        self.seconds = 0.0
        self.engine = ""  # what ran the steps, and why
        self.stopped = ""  # why training ended early; empty if it did not

    def record(self, row: Mapping[str, float]) -> None:
        """Append one epoch."""
        self.extend({name: [number] for name, number in row.items()})

    def extend(self, rows: Mapping[str, Sequence[float]]) -> None:
        """Append several epochs, column by column."""
        for name, numbers in rows.items():
            self.columns.setdefault(name, []).extend(numbers)

    def __getitem__(self, name: str) -> list[float]:
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns) or 'none yet'}")
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def loss(self) -> list[float]:
        """The training loss of each epoch, before its steps changed the parameters."""
        return self.columns.get("loss", [])

    @property
    def last(self) -> dict[str, float]:
        """The newest entry of each column."""
        return {name: column[-1] for name, column in self.columns.items()}

    def __repr__(self) -> str:
        ends = [f"{name} {column[0]:.4g} → {column[-1]:.4g}" for name, column in self.columns.items()]
        stopped = [f"stopped: {shown(self.stopped, MOST_OF_A_MESSAGE)}"] if self.stopped else []
        return f"History({', '.join([f'{len(self)} epochs', *ends, *stopped])})"

    _repr_html_ = display.shown("html_of_history")
