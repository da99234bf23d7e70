"""The progress of a run as one bar that moves: in a terminal by rich, in a notebook as an output that is replaced.

rich has a bar for notebooks too, but it needs ipywidgets, which a plain JupyterLab does not have.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from html import escape
from importlib.util import find_spec
from typing import Any

from chainrule.training.task import Columns

Show = Callable[[Columns], None]

BAR = 12  # characters
BETWEEN = 0.1  # seconds, at least, from one picture in a notebook to the next
NO_BREAK = "\N{NO-BREAK SPACE}"


def progress_bar(epochs: int, wanted: bool) -> AbstractContextManager[Show]:
    """A bar of `epochs`; what the block gets is to be called with the columns of those that have just ended."""
    if not wanted:
        return _no_bar()
    if _in_notebook():
        return _notebook_bar(epochs)
    return _terminal_bar(epochs) if find_spec("rich") else _no_bar()  # in a browser there is no rich


@contextmanager
def _no_bar() -> Iterator[Show]:
    yield lambda columns: None


@contextmanager
def _terminal_bar(epochs: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    words = TextColumn("{task.description}", table_column=Column())  # by default it takes the room of the others
    console = Console()  # rich's own may have been made in another window
    with Progress(BarColumn(BAR), MofNCompleteColumn(), TimeElapsedColumn(), words, console=console) as bar:
        task = bar.add_task("", total=epochs)
        taken = BAR + len(f" {epochs}/{epochs} {timedelta()} ")

        def show(columns: Columns) -> None:
            text = _wrapped(_numbers(columns), bar.console.width - taken)
            bar.update(task, advance=len(columns["loss"]), description=text)

        yield show


def _wrapped(numbers: list[str], width: int) -> str:
    """The numbers in lines of `width` characters, none of them apart from its name."""
    text = "  ".join(number.replace(" ", NO_BREAK) for number in numbers)
    return textwrap.fill(text, max(1, width), break_long_words=False).replace(NO_BREAK, " ")


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this, rather than a terminal, be it one of IPython's."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


@contextmanager
def _notebook_bar(epochs: int) -> Iterator[Show]:
    from IPython.display import display

    started, done, shown, numbers = time.monotonic(), 0, 0.0, list[str]()

    def bundle() -> dict[str, str]:
        return _bundle(done, epochs, timedelta(seconds=int(time.monotonic() - started)), numbers)

    output: Any = display(bundle(), raw=True, display_id=True)

    def show(columns: Columns) -> None:
        nonlocal done, shown, numbers
        done, numbers = done + len(columns["loss"]), _numbers(columns)
        if time.monotonic() - shown > BETWEEN:
            output.update(bundle(), raw=True)
            shown = time.monotonic()

    try:
        yield show
    finally:  # the last numbers, also of a run that is interrupted
        output.update(bundle(), raw=True)


def _bundle(done: int, epochs: int, elapsed: timedelta, numbers: list[str]) -> dict[str, str]:
    """The bar as HTML and as text. The percentage is written out, for viewers that leave the bar itself away."""
    words = f"{done / epochs:.0%}  {done}/{epochs}  {elapsed}  {'  '.join(numbers)}".rstrip()
    filled = BAR * done // epochs
    bar = f'<progress value="{done}" max="{epochs}" style="width: {BAR}ch; vertical-align: middle"></progress>'
    return {
        "text/html": f'<div style="font-family: monospace">{bar} {escape(words).replace("  ", " &ensp;")}</div>',
        "text/plain": f"{'━' * filled}{'─' * (BAR - filled)} {words}",
    }


def _numbers(columns: Columns) -> list[str]:
    """The newest of each column, with its name."""
    return [f"{name} {numbers[-1]:.4g}" for name, numbers in columns.items()]
