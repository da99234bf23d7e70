"""Places in the user's code, as messages quote them."""

from __future__ import annotations

import os
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
    return f"{_short_path(file)}:{line}" + (f" (`{text}`)" if text else "")


def definition(function: Any) -> str:
    """Where the user wrote `function`, as " (demo.py:12)"; empty if the user did not."""
    code = getattr(function, "__code__", None)
    return f" ({_short_path(code.co_filename)}:{code.co_firstlineno})" if code and not is_ours(code) else ""


def _short_path(file: str) -> str:
    """Relative to the current folder if it lies below that."""
    return file.removeprefix(os.getcwd() + os.sep)
