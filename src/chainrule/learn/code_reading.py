"""What the text of an answer shows before it runs, compared with the starter's."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable

from chainrule.learn.course import clean

DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what ast.parse may raise


def normalised(code: str) -> str:
    """The code without comments, blank lines and personal style; unchanged if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.unparse(ast.parse(clean(code)))
    except UNREADABLE:
        return code.strip()


def first_line_changed(starter: str, code: str) -> tuple[str | None, str | None]:
    """What to say if a first line of the starter is gone, and of what: checks call functions as they were."""
    try:
        wanted, found = (_definitions(clean(text)) for text in (starter, code))
    except UNREADABLE:
        return None, None  # the error says so
    for name, line in wanted.items():
        if line and name not in found:
            return f"`{name}` is missing. Keep the line `{line}`, and write your code below it, indented.", name
        if line and found[name] not in (line, None):
            return f"The line `{line}` has become `{found[name]}`, and is called as it was. Put it back.", name
    return None, None


def inside_another(starter: str, code: str) -> str | None:
    """What to say if a function of the starter is there, but inside another one or a class, as in a pasted method.

    >>> print(inside_another("def f():\\n    ...", "class A:\\n    def f():\\n        pass"))
    Only `f` is asked for. Here it is inside `A`, where the code around yours does not find it: begin with `def f():`.
    """
    try:
        wanted, found = (_definitions(clean(text)) for text in (starter, code))
        outer = [node for node in ast.parse(clean(code)).body if isinstance(node, DEFINITIONS)]
    except UNREADABLE:
        return None
    for name, line in wanted.items():
        for around in outer if line and name not in found else ():
            if any(isinstance(node, DEFINITIONS) and node.name == name for node in ast.walk(around)):
                where = f"Here it is inside `{around.name}`, where the code around yours does not find it"
                return f"Only `{name}` is asked for. {where}: begin with `{line}`."
    return None


def _definitions(code: str) -> dict[str, str | None]:
    """The first line of each function and class, by name, as Python formats it; None for what is assigned to a name."""
    found: dict[str, str | None] = {}
    for node in ast.parse(code).body:
        if isinstance(node, DEFINITIONS):
            found[node.name] = ast.unparse(node).split("\n")[0]
        elif isinstance(node, ast.Assign):
            found |= {target.id: None for target in node.targets if isinstance(target, ast.Name)}
    return found


def silent(code: str) -> tuple[str, ...]:
    """The functions, and the methods of classes, without a `return` or `yield`; by name.

    >>> silent("def f(x):\\n    print(x)\\n\\nclass A:\\n    def g(self):\\n        return 1")
    ('f',)
    """
    try:
        body = ast.parse(clean(code)).body
    except UNREADABLE:
        return ()
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    named = [("", node) for node in body] + [(f"{owner.name}.", node) for owner in classes for node in owner.body]
    functions = [(owner, node) for owner, node in named if isinstance(node, ast.FunctionDef)]
    return tuple(owner + node.name for owner, node in functions if not _answers(node.body))


def _answers(body: Iterable[ast.AST]) -> bool:
    """Whether a function with this body has a `return` or a `yield` of its own."""
    return any(
        isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom))
        or (not isinstance(node, (*DEFINITIONS, ast.Lambda)) and _answers(ast.iter_child_nodes(node)))
        for node in body
    )
