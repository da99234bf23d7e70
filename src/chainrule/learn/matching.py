"""What a message says about a learner's code must be true of that code, not only of what it computed.

A wrong answer in a lesson therefore names what it `has` and what it `lacks`: snippets of Python, separated by `;`, that
are looked for in the learner's syntax tree. In a snippet `_` stands for anything, and a block for what it contains
somewhere, so `for _ in _: return` is a loop with a return in it. Personal style does not count: `x = x + y` is
`x += y`, `a, b = c, d` is two assignments, `y < x` is `x > y`, and factors and summands may change places.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

ANYTHING = "_"
SYMMETRIC = (ast.Add, ast.Mult)
MIRRORED = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}


@dataclass(frozen=True)
class Signs:
    """What is in the code of an answer, in this order, and what is not."""

    has: str = ""
    lacks: str = ""

    def fit(self, code: ast.Module) -> bool:
        """Whether all this is true of the code, which `parse` returned.

        >>> Signs("_.grad = _", lacks="out.data").fit(parse("self.grad = out.grad"))
        True
        """
        excluded = (_in_order([snippet], [code]) for snippet in snippets(self.lacks))
        return _in_order(snippets(self.has), [code]) and not any(excluded)


def parse(code: str) -> ast.Module:
    """The syntax tree without personal style."""
    tree: ast.Module = _Plain().visit(ast.parse(code))
    return tree


@lru_cache(maxsize=512)
def snippets(text: str) -> list[ast.stmt]:
    """The snippets in `has` or `lacks`, or a SyntaxError."""
    return [statement for part in text.split(";") for statement in parse(part.strip()).body]


def _in_order(snippets: list[ast.stmt], code: Iterable[ast.AST]) -> bool:
    """Whether the code contains the snippets, one after the other."""
    nodes = _nodes(code)
    return all(any(_alike(_wanted(snippet), node) for node in nodes) for snippet in snippets)


def _wanted(snippet: ast.stmt) -> ast.AST:
    return snippet.value if isinstance(snippet, ast.Expr) else snippet


def _nodes(code: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes, in the order of the text."""
    for node in code:
        yield node
        yield from _nodes(ast.iter_child_nodes(node))


def _alike(wanted: Any, found: Any) -> bool:
    """Whether `found` is what the snippet describes. What a snippet leaves out does not matter."""
    if wanted is None or wanted == ANYTHING or _is_anything(wanted):
        return True
    if isinstance(wanted, list):
        if wanted and isinstance(wanted[0], ast.stmt):
            return _in_order(wanted, found)
        return len(wanted) == len(found) and all(map(_alike, wanted, found))
    if not isinstance(wanted, ast.AST):
        return bool(wanted == found)
    if type(wanted) is not type(found):
        return False
    if _fields_alike(wanted, found):
        return True
    if isinstance(wanted, ast.BinOp) and isinstance(wanted.op, SYMMETRIC):
        return _fields_alike(ast.BinOp(wanted.right, wanted.op, wanted.left), found)
    return False


def _is_anything(wanted: Any) -> bool:
    """`_`, or the `...` of a block that may contain anything."""
    if isinstance(wanted, ast.Expr):
        return _is_anything(wanted.value)
    if isinstance(wanted, ast.arguments):  # `def f(): …` leaves them out
        return not wanted.args
    return (isinstance(wanted, ast.Name) and wanted.id == ANYTHING) or (
        isinstance(wanted, ast.Constant) and wanted.value is ...
    )


def _fields_alike(wanted: ast.AST, found: ast.AST) -> bool:
    names = (name for name in wanted._fields if name not in ("ctx", "orelse"))
    return all(_alike(getattr(wanted, name), getattr(found, name)) for name in names)


class _Plain(ast.NodeTransformer):
    """Rewrites what can be written in several ways."""

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self.generic_visit(node)
        pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
        return [_assignment(target, value) for target, value in pairs]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        return _assignment(node.target, node.value) if node.value else node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        self.generic_visit(node)
        if len(node.ops) == 1 and type(node.ops[0]) in MIRRORED:
            return ast.Compare(node.comparators[0], [MIRRORED[type(node.ops[0])]()], [node.left])
        return node


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """`a, b = c, d` is `a = c` and `b = d`."""
    targets, values = (part.elts if isinstance(part, ast.Tuple) else [part] for part in (target, value))
    return list(zip(targets, values, strict=True)) if len(targets) == len(values) else [(target, value)]


def _assignment(target: ast.expr, value: ast.expr) -> ast.stmt:
    """`x = x + y` is `x += y`."""
    if isinstance(value, ast.BinOp) and isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
        sides = [(value.left, value.right), (value.right, value.left)]
        for own, other in sides if isinstance(value.op, SYMMETRIC) else sides[:1]:
            if ast.unparse(own) == ast.unparse(target):
                return ast.AugAssign(target, value.op, other)
    return ast.Assign([target], value)
