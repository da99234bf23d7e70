"""Prepares the code of a check: numbers every `expect`, and removes the expected values.

The process that runs a learner's answer gets a check that says only what to compute. The expected values come from a
run of the solution, matched call by call through these numbers.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator, Sequence
from functools import lru_cache

POSITIONS = ("label", "got", "expected", "node", "tolerance")
NEEDED = ("label", "got", "node", "site")  # arguments that say nothing about the expected value
SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.FunctionDef)  # imports stay: the learner's code sees them too
BUILTINS = frozenset(dir(builtins))


@lru_cache(maxsize=64)
def numbered(check: str) -> str:
    """The check with `site=N` added to every statement `expect(…)`, so that its calls can be told apart.

    >>> numbered('expect("x", x, 1)')
    "expect('x', x, 1, site=0)"
    """
    tree = ast.parse(check)
    for site, call in enumerate(_expectations(tree)):
        call.keywords.append(ast.keyword("site", ast.Constant(site)))
    return ast.unparse(tree)


@lru_cache(maxsize=64)
def without_expected(check: str, sites: frozenset[int]) -> str:
    """A numbered check without the expected values at `sites`, and without statements that only compute them.

    >>> print(without_expected("y = 6.0\\nexpect('f(3)', f(3), y, site=0)", frozenset({0})))
    expect(label='f(3)', got=f(3), site=0)
    """
    tree = ast.parse(check)
    own = _own_names(tree.body)
    for call in _expectations(tree):
        arguments = dict(zip(POSITIONS, call.args, strict=False)) | {str(key.arg): key.value for key in call.keywords}
        if ast.literal_eval(arguments["site"]) in sites:
            left = {name: arguments[name] for name in NEEDED if name in arguments}
            expected = arguments.get("expected")
            if expected is not None and not _mentioned(expected) <= own:  # it can raise an error, so it must run
                left["expected"] = ast.Subscript(ast.Tuple([expected, ast.Constant(...)]), ast.Constant(-1))
            call.args, call.keywords = [], [ast.keyword(name, value) for name, value in left.items()]
    tree.body = _of_use(tree.body, own)
    return ast.unparse(ast.fix_missing_locations(tree))


def _expectations(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls of `expect` that are statements and spell out their arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            spread = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
            if isinstance(call.func, ast.Name) and call.func.id == "expect" and not spread:
                yield call


def _own_names(body: Sequence[ast.stmt]) -> set[str]:
    """Builtins, and names bound to the check's own numbers and functions: no learner's code is behind them."""
    steps = list(_steps(body))
    own = {name for step in steps for name in _bound(step)} | BUILTINS
    while foreign := own & {name for step in steps if not _mentioned(step) <= own for name in _bound(step)}:
        own -= foreign
    return own


def _steps(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The statements, with loops flattened: `for x in y` binds x as `x = y` does."""
    for statement in body:
        if isinstance(statement, ast.For):
            yield ast.fix_missing_locations(ast.Assign([statement.target], statement.iter, lineno=0))
            yield from _steps([*statement.body, *statement.orelse])
        else:
            yield statement


def _of_use(body: Sequence[ast.stmt], own: set[str]) -> list[ast.stmt]:
    """The statements that are more than a calculation, or that these depend on."""

    def is_calculation(statement: ast.stmt) -> bool:
        return all(isinstance(step, SIMPLE) and _mentioned(step) <= own for step in _steps([statement]))

    needed = {statement for statement in body if not is_calculation(statement)}
    while True:
        names = {name for statement in needed for name in _mentioned(statement)}
        more = {statement for statement in body if statement not in needed and _changed(statement) & names}
        if not more:
            return [statement for statement in body if statement in needed]
        needed |= more


def _changed(statement: ast.stmt) -> set[str]:
    """The names that a statement binds or calls a method of, as in `expected.append(…)`."""
    called = {node.func for node in ast.walk(statement) if isinstance(node, ast.Call)}
    asked = {f.value.id for f in called if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name)}
    return asked | {name for step in _steps([statement]) for name in _bound(step)}


def _bound(node: ast.AST) -> set[str]:
    symbols = _table(node).get_symbols()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()}


def _mentioned(node: ast.AST) -> set[str]:
    """The names that are not local to a function or a comprehension."""
    table = _table(node)
    found, inner = {symbol.get_name() for symbol in table.get_symbols()}, table.get_children()
    while inner:
        scope = inner.pop()
        found |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
        inner += scope.get_children()
    return found


def _table(node: ast.AST) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(node), "<check>", "exec")
