"""Wrong answers that nobody wrote: `mutants(code)` makes one small slip in a solution, of every kind, in every place.

As a program, grades the slips in the solutions of the course and prints them in groups, by what the learner is told.
Reading the groups shows which message is false for some code: `make mutants EXERCISES="add mul"`.
"""

from __future__ import annotations

import ast
import copy
import difflib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from chainrule.learn.course import Exercise, Wrong
from chainrule.learn.grading import Report, grade
from chainrule.learn.lesson_files import load_course
from lesson_oracles import is_right

OTHER_OPERATORS = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Mult),
    ast.Mult: (ast.Add, ast.Div, ast.Pow),
    ast.Div: (ast.Mult, ast.FloorDiv, ast.Sub),
    ast.Pow: (ast.Mult, ast.BitXor),
    ast.Gt: (ast.Lt, ast.GtE, ast.NotEq),
    ast.Lt: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq, ast.Gt),
    ast.NotIn: (ast.In,),
    ast.In: (ast.NotIn,),
}
OTHER_FIELDS = {"data": ("grad",), "grad": ("data",), "_backward": ("backward",), "backward": ("_backward",)}
EMPTY_BODIES = ("pass", "...", "return ...", "return 0", "return None")
KNOWN_NAMES = ("self", "other", "out")  # of the code around an answer
SECONDS = 2.0  # for code that does not end


def mutants(code: str) -> list[str]:
    """Every slip in `code`, each once, in a fixed order; those that are not Python are left out."""
    tree = ast.parse(code)
    right = ast.unparse(tree)
    found: dict[str, None] = {}
    places = _places(tree)
    for node in ast.walk(tree):
        for other in [*_other_expressions(node, tree), *_other_statements(node), *_other_blocks(node)]:
            with suppress(SyntaxError, ValueError):
                text = ast.unparse(_with(places, node, other))
                ast.parse(text)
                found[text] = None
    found.pop(right, None)
    return list(found)


def _places(tree: ast.Module) -> dict[ast.AST, tuple[ast.AST, str]]:
    """Where each node of the tree is: its parent, and the name of the parent's field."""
    places: dict[ast.AST, tuple[ast.AST, str]] = {}
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            nodes = value if isinstance(value, list) else [value]
            places |= {node: (parent, name) for node in nodes if isinstance(node, ast.AST)}
    return places


def _with(
    places: dict[ast.AST, tuple[ast.AST, str]], node: ast.AST, other: ast.AST | list[ast.stmt]
) -> ast.AST | list[ast.stmt]:
    """The tree with `other` in the place of `node`. What is above it is copied; the rest is shared with the tree."""
    while node in places:
        parent, name = places[node]
        value = getattr(parent, name)
        if isinstance(value, list):
            at = value.index(node)
            value = [*value[:at], *(other if isinstance(other, list) else [other]), *value[at + 1 :]]
            if name == "body" and not value:
                value = [ast.Pass()]
        else:
            value = other
        node, other = parent, _changed(parent, **{name: value})
    return other


def _changed(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


# Expressions.


def _other_expressions(node: ast.AST, tree: ast.Module) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp):
        yield from (_changed(node, op=op()) for op in OTHER_OPERATORS.get(type(node.op), ()))
        yield _changed(node, left=node.right, right=node.left)
        yield from (node.left, node.right, ast.UnaryOp(ast.USub(), node))
        yield from _regrouped(node)
    elif isinstance(node, ast.Compare):
        yield from (_changed(node, ops=[op()]) for op in OTHER_OPERATORS.get(type(node.ops[0]), ()))
        yield _changed(node, left=node.comparators[0], comparators=[node.left])
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node)
    elif isinstance(node, ast.Attribute):
        yield from (_changed(node, attr=attr) for attr in OTHER_FIELDS.get(node.attr, ()))
        if isinstance(node.ctx, ast.Load):
            yield node.value
    elif isinstance(node, ast.Name):
        yield from (_changed(node, id=name) for name in _names(tree) if name != node.id)
        if isinstance(node.ctx, ast.Load):
            yield ast.Attribute(node, "data", ast.Load())
    else:
        yield from _other_compounds(node)


def _regrouped(node: ast.BinOp) -> Iterator[ast.AST]:
    """Brackets that were forgotten: `(a - b) / c` is not `a - b / c`."""
    if isinstance(node.left, ast.BinOp):
        yield _changed(node.left, right=ast.BinOp(node.left.right, node.op, node.right))
    if isinstance(node.right, ast.BinOp):
        yield _changed(node.right, left=ast.BinOp(node.left, node.op, node.right.left))


def _other_constants(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        yield from (_changed(node, value=value) for value in (node.value + 1, node.value - 1, 2 * node.value))
        yield ast.UnaryOp(ast.USub(), node)


def _other_compounds(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call):
        yield from (node.func, *node.args)
        if len(node.args) == 2:
            yield _changed(node, args=node.args[::-1])
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse, _changed(node, body=node.orelse, orelse=node.body))
    elif isinstance(node, (ast.Tuple, ast.List)) and node.elts:
        yield from (_changed(node, elts=node.elts[:k] + node.elts[k + 1 :]) for k in range(len(node.elts)))
        yield _changed(node, elts=node.elts[::-1])
        yield node.elts[0]
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield node.elt
        if len(node.generators) == 2:
            yield _changed(node, generators=node.generators[::-1])
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield _changed(node, ifs=[])
    elif isinstance(node, ast.Subscript):
        yield node.value


def _names(tree: ast.Module) -> list[str]:
    """The variables and arguments of an answer. Functions and modules are not mixed up with them."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    around = set() if arguments - {"self", "node"} else set(KNOWN_NAMES)
    return sorted(bound | arguments | around)


# Statements.


def _other_statements(node: ast.AST) -> Iterator[ast.AST | list[ast.stmt]]:
    if not isinstance(node, ast.stmt):
        return
    yield []
    if isinstance(node, ast.AugAssign):
        yield from (_changed(node, op=op()) for op in (ast.Add, ast.Sub, ast.Mult) if not isinstance(node.op, op))
        yield ast.Assign([node.target], node.value, lineno=0)
        yield ast.Expr(ast.BinOp(node.target, node.op, node.value))
    elif isinstance(node, ast.Assign):
        yield ast.Expr(node.value)
        if len(node.targets) == 1 and not isinstance(node.targets[0], ast.Tuple):
            yield from (ast.AugAssign(node.targets[0], op(), node.value) for op in (ast.Add, ast.Sub))
    elif isinstance(node, ast.Return) and node.value:
        yield ast.Expr(node.value)
        yield ast.Expr(ast.Call(ast.Name("print", ast.Load()), [node.value], []))
        yield _changed(node, value=None)
    elif isinstance(node, ast.If):
        yield list(node.body)
        yield _changed(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.For):
        yield list(node.body)
        yield from (_changed(node, body=node.body[:-k]) for k in range(1, len(node.body)))
        for k in range(1, len(node.body)):  # the last lines are not indented enough
            yield [_changed(node, body=node.body[:-k]), *node.body[-k:]]
    if isinstance(node, ast.Expr):
        yield [node, node]


def _other_blocks(node: ast.AST) -> Iterator[ast.AST]:
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    for k in range(len(body) - 1):
        first, second = body[k], body[k + 1]
        yield _changed(node, body=[*body[:k], second, first, *body[k + 2 :]])
        if isinstance(first, (ast.For, ast.If, ast.FunctionDef)):  # the next line is indented too far
            yield _changed(node, body=[*body[:k], _changed(first, body=[*first.body, second]), *body[k + 2 :]])
    if isinstance(node, ast.FunctionDef):
        yield from (_changed(node, body=ast.parse(text).body) for text in EMPTY_BODIES)


# Grading them.


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Code that does not end is interrupted, after so many seconds of the processor's, however busy it is."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True)
class Graded:
    """A slip, what the learner is told, and what is true."""

    code: str
    report: Report
    authored: tuple[Wrong, ...]  # whose message it got
    right: bool  # as the oracle sees it

    @property
    def told(self) -> str:
        """How the report begins, in a few words that slips of one group share."""
        if self.report.passed:
            return "accepted"
        if self.authored:
            return self.authored[0].message
        message = self.report.message or ""
        facts = "the facts" if message.startswith("`") and ": got `" in message else message
        return " + ".join(part for part in (facts, self.report.error and self.report.error.text) if part)


def graded(exercise: Exercise, most: int | None = None) -> list[Graded]:
    """The slips in an exercise's solution; at most so many, evenly spread over the kinds and places."""
    if not (grade(exercise, exercise.solution).passed and is_right(exercise, exercise.solution)):
        raise ValueError(f"the solution of {exercise.name} is refused")  # and what is loaded once is loaded
    codes = mutants(exercise.solution)
    chosen = codes if most is None or len(codes) <= most else [codes[k * len(codes) // most] for k in range(most)]
    return [_graded(exercise, code) for code in chosen]


def _graded(exercise: Exercise, code: str) -> Graded:
    with time_limit(SECONDS):
        report = grade(exercise, code)
    with time_limit(SECONDS):
        right = is_right(exercise, code)
    authored = tuple(wrong for wrong in exercise.wrong if wrong.message == report.message)
    return Graded(code, report, authored, right)


def difference(right: str, code: str) -> str:
    """What was changed, in one line."""
    lines = difflib.ndiff(ast.unparse(ast.parse(right)).splitlines(), code.splitlines())
    return " | ".join(f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "+-")


def main() -> None:
    """Print the groups of every exercise, or of those that are named, and a table."""
    course = load_course()
    table = []
    for name in sys.argv[1:] or course.exercises:
        exercise = course.exercises[name]
        found = graded(exercise)
        groups: dict[str, list[Graded]] = {}
        for slip in found:
            groups.setdefault(slip.told, []).append(slip)
        for told, slips in groups.items():
            print(f"\n{name}, {len(slips)} slips: {told}")
            for slip in slips:
                verdict = "" if slip.report.passed == slip.right else "  [the oracle disagrees]"
                print(f"    {difference(exercise.solution, slip.code)}{verdict}")
        accepted, authored = sum(s.report.passed for s in found), sum(bool(s.authored) for s in found)
        disagreed = sum(s.report.passed != s.right for s in found)
        table.append((name, len(found), authored, len(found) - accepted - authored, accepted, disagreed))
    print(f"\n{'exercise':16}{'slips':>7}{'authored':>10}{'other':>7}{'accepted':>10}{'disputed':>10}")
    for name, *counts in table:
        print(f"{name:16}{counts[0]:7}{counts[1]:10}{counts[2]:7}{counts[3]:10}{counts[4]:10}")
    sys.exit(any(disputed for *_, disputed in table))


if __name__ == "__main__":
    main()
