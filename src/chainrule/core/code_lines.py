"""Places in the user's code, as messages quote them."""

from __future__ import annotations

import os
import sys
from types import CodeType
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_ours(code: CodeType) -> bool:
    """Whether the code is chainrule's own."""
    return code.co_filename.startswith(PACKAGE)


def quoted_line(file: str, line: int) -> str:
    """A line of code for people, as "demo.py:12 (`out = a * b`)"."""
    import linecache  # slow to load

    text = linecache.getline(file, line).strip()
    text = text if len(text) <= 60 else text[:57] + "..."
    return place(file, line) + (f" (`{text}`)" if text else "")


def definition(function: Any) -> str:
    """Where the user wrote `function`, as " (demo.py:12)"; empty if the user did not."""
    code = getattr(function, "__code__", None)
    return f" ({place(code.co_filename, code.co_firstlineno)})" if code and not is_ours(code) else ""


def place(file: str, line: int) -> str:
    """A line as "demo.py:12", relative to the current folder if it lies below that.

    >>> place(os.path.join(os.getcwd(), "demo.py"), 12)
    'demo.py:12'
    """
    return full_place(file.removeprefix(os.getcwd() + os.sep), line)


def full_place(file: str, line: int) -> str:
    """A line as "/home/ada/demo.py:12"; of a notebook's cell, as the notebook's own tracebacks have it."""
    ipython = sys.modules.get("IPython")
    compiler = getattr(ipython and ipython.get_ipython(), "compile", None)  # it knows cells by the files they stand for
    cell = getattr(compiler, "format_code_name", lambda file: None)(file)
    return f"cell {cell[1]}, line {line}" if cell else f"{file}:{line}"
