"""How many lines the user of a contestant wrote: code, without imports, comments, docstrings and empty lines."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from pathlib import Path
from textwrap import dedent
from typing import Any

from contest import Contestant, Workload

LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of(contestant: Contestant, workload: Workload) -> int:
    """Those of the file in the workload's folder, what it names as part of it, and the loop around it in `peers`."""
    peer, solution = contestant.load(workload)
    if hasattr(solution, "sources"):  # it only fetches what the user wrote
        return sum(count(source) for source in solution.sources(**contestant.options))
    return sum(count(source) for source in (solution, *getattr(solution, "SOURCES", []), *peer.LOOPS[workload.kind]))


def count(source: Any) -> int:
    """Of a module, a function, or the path of a source in C."""
    if isinstance(source, Path):
        return _count_c(source.read_text())
    function = getattr(source, "py_func", getattr(source, "__wrapped__", source))  # numba's or JAX's wrapping aside
    return _count_python(dedent(inspect.getsource(function)))


def _count_c(text: str) -> int:
    bare = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return sum(1 for line in bare.splitlines() if line.strip() and not line.startswith("#include"))


def _count_python(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in LAYOUT for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)) or _is_docstring(node):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
