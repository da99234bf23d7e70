"""Errors in a learner's code, explained to the learner: what happened, on which of their lines, and what may help."""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
import keyword
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FrameType, TracebackType

from chainrule.learn.course import Source

FILE = "your_code.py"  # the learner's code in tracebacks
MOST_TEXT = 200  # characters of one value or message
METHODS = ("exp", "log", "tanh")  # of a learner's Value, among the functions of `math`
FIELDS = ("data", "grad", "label", "backward", "relu", "_backward", "_op", "_prev", *METHODS)
TYPE_ADVICE = {  # by what Python says
    r" \^: ": " A power is written `**` in Python.",
    r"must be real number, not": " The functions of `math` take plain numbers; "
    "a Value has methods of its own, as in `x.tanh()`.",
    r"^'(int|float)' object is not callable": " Brackets right behind a value call it as a function, "
    "and this one is a number.",
}
SYNTAX = ("SyntaxError", "IndentationError", "TabError")
SHORT = 3  # letters: every short name resembles a builtin function
LIKENESS = 0.7  # from which on a name counts as a misspelling


@dataclass(frozen=True)
class Error:
    """What stopped the code, for a learner; `line` and `column` count in what they wrote, from 1."""

    kind: str
    text: str
    line: int | None = None
    column: int | None = None


ADVICE = {
    "EOFError": "Your code asks for input(), and nobody can type any here: write the value into the code.",
    "KeyboardInterrupt": "Your code was stopped because it took too long: is there a loop that does not end?",
    "MemoryError": "Your code ran out of memory: is there a list that grows without end?",
    "RecursionError": "A function calls itself again and again without an end (RecursionError).",
    "SystemExit": "Your code called exit(), so nothing could be checked: leave that out.",
}


def explain(error: BaseException, source: Source | None = None) -> Error:
    """An exception in the learner's code, with the line of theirs where it happened.

    >>> explain(ZeroDivisionError("division by zero")).text
    'ZeroDivisionError: division by zero.'
    """
    kind = type(error).__name__
    frames = list(_frames(error.__traceback__))
    own = [line for _, line in frames if source and source.first <= line < source.first + source.count]
    text = ADVICE.get(kind) or f"{kind}: {_sentence(error)}"
    around = _place(source, frames, own)
    if kind not in ADVICE and not around:  # learners cannot change other lines
        text += _advice(error, frames, source)
    if isinstance(error, (AttributeError, TypeError)) and "NoneType" in text:
        text += " Where does the None come from: a function without `return`?"
    return Error(kind, text + around, own[-1] - source.first + 1 if source and own else None)


def _place(source: Source | None, frames: list[tuple[FrameType, int]], own: list[int]) -> str:
    """Where it happened, if not on a line of the learner's."""
    if source is None or not frames or own[-1:] == [frames[-1][1]]:
        return ""
    return f" It happened in the code around yours, at `{source.text.splitlines()[frames[-1][1] - 1].strip()}`."


def moved(error: Error, lines: int) -> Error:
    """The error in a file in which the learner's code begins that many lines further down."""
    text = _moved(error.text, lines) if error.kind in SYNTAX else error.text
    return replace(error, text=text, line=error.line + lines if error.line else None)


def explain_syntax(error: BaseException, source: Source, code: str) -> Error:
    """Why Python could not parse the code, on its own or in its place in `source`."""
    if not isinstance(error, SyntaxError):
        too_deep = isinstance(error, (RecursionError, MemoryError))
        text = "this is nested too deeply to be read" if too_deep else _sentence(error).rstrip(".")
        return Error("SyntaxError", f"Python cannot read this: {text}.")
    line, column, text = error.lineno, error.offset, error.msg
    try:
        ast.parse(code, FILE)
    except SyntaxError:
        pass
    else:  # only wrong in its place
        line = line - source.first + 1 if line else None
        column, text = column - source.indent if column else None, _moved(text, 1 - source.first)
        if line is None or not 1 <= line <= source.count:
            line, column = source.count, None
    column = column if column and column > 0 else None
    text = text if text.endswith("?") else f"{text}."
    return Error(type(error).__name__, f"Python cannot read line {line}: {text}{_syntax_advice(error)}", line, column)


def _moved(text: str, lines: int) -> str:
    """Python's words about its syntax, which name lines, for other line numbers; without those that nobody sees."""

    def other(found: re.Match[str]) -> str:
        line = int(found[2]) + lines
        return f"{found[1]} {line}" if line >= 1 else ""

    return re.sub(r"((?: on|\bread) line) (\d+)\b", other, text)


def _syntax_advice(error: SyntaxError) -> str:
    if error.msg.startswith("invalid decimal literal"):
        return " Is a `*` missing between a number and a name?"
    if sign := re.search(r"(\+\+|--)\s*$", error.text or ""):
        return f" Python has no `{sign[1]}`: write `{sign[1][0]}= 1`."
    return ""


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """The frames of the learner's program, and the line that each had reached."""
    while traceback:
        if traceback.tb_frame.f_code.co_filename == FILE:
            yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _sentence(error: BaseException) -> str:
    try:
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    except BaseException:  # the learner's __str__
        text = ""
    text = " ".join(text.split())[:MOST_TEXT] or "no more is known"
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _advice(error: BaseException, frames: list[tuple[FrameType, int]], source: Source | None) -> str:
    """What beginners usually mean when they get this error, or a known name that is spelled similarly."""
    name = _wanted_name(error)
    if isinstance(error, TypeError):
        return next((words for sign, words in TYPE_ADVICE.items() if re.search(sign, _sentence(error))), "")
    if isinstance(error, UnboundLocalError):
        return _unbound_advice(_sentence(error), frames, source)
    if isinstance(error, AttributeError) and isinstance(error.obj, (int, float)):
        only = f": only a Value has `{name}`" if name in FIELDS else ""
        return f" It is a plain number{' already' if name == 'data' else ''}{only}."
    if isinstance(error, NameError) and source and (elsewhere := _elsewhere(name, source.text, frames)):
        return f" {elsewhere}"
    if name in FIELDS:  # it is spelled as it should be
        return ""
    with suppress(Exception):  # the learner's __dir__
        if close := difflib.get_close_matches(name, _known_names(error, frames, source), 1, LIKENESS):
            return f" Did you mean `{close[0]}`?"
    return ""


def _unbound_advice(text: str, frames: list[tuple[FrameType, int]], source: Source | None) -> str:
    (frame, line), found = frames[-1], re.search(r"variable '(\w+)'", text)
    name = found[1] if found else ""
    outer = _enclosing_names(ast.parse(source.text), line, frame.f_code.co_firstlineno) if source else []
    if name in outer or name in frame.f_globals or name in FIELDS:
        return " A name that a function assigns to is its own, and empty at first. Is a field meant, as in `self.grad`?"
    return f" Give `{name}` a value before this line." if name else ""


def _elsewhere(name: str, program: str, frames: list[tuple[FrameType, int]]) -> str:
    """Where a name is that is not known here."""
    if hasattr(math, name) and "import math" in program:
        return _from_math(name)
    if _in_class_body(name, program, frames):
        return f"`{name}` stands in the body of the class, where its methods do not see it: move it into the method."
    return f"`self` has something of that name: `self.{name}`." if _self_has(name, frames) else ""


def _self_has(name: str, frames: list[tuple[FrameType, int]]) -> bool:
    """Whether the object whose method failed has a field or a method of this name."""
    functions = (frame for frame, _ in reversed(frames) if not frame.f_code.co_name.startswith("<"))  # no <genexpr>
    frame = next(functions, None)
    with suppress(Exception):  # the learner's __getattribute__
        return frame is not None and "self" in frame.f_locals and name in dir(frame.f_locals["self"])
    return False


def _from_math(name: str) -> str:
    if not callable(getattr(math, name)):
        return f"The number is `math.{name}`."
    method = f"; a Value has a method of that name, `….{name}()`" if name in METHODS else ""
    return f"For a number it is `math.{name}(…)`{method}."


def _wanted_name(error: BaseException) -> str:
    return (isinstance(error, (NameError, AttributeError)) and error.name) or ""


def _known_names(error: BaseException, frames: list[tuple[FrameType, int]], source: Source | None) -> list[str]:
    known, wanted = list[str](), _wanted_name(error)
    if isinstance(error, AttributeError):
        known = dir(error.obj)
    elif isinstance(error, NameError) and frames:
        frame, line = frames[-1]
        known = [*frame.f_locals, *frame.f_globals, *(name for name in vars(builtins) if len(name) > SHORT)]
        known += _enclosing_names(ast.parse(source.text), line) if source else []
    known = [name for name in known if not name.startswith("__") and not keyword.iskeyword(name)]
    return [name for name in known if name.strip("_") != wanted.strip("_")]  # `backward` is no slip for `_backward`


def _in_class_body(name: str, program: str, frames: list[tuple[FrameType, int]]) -> bool:
    """Whether the body of the class around a method that failed defines or imports this name, and it is no method."""
    if not frames or not frames[-1][0].f_code.co_flags & inspect.CO_OPTIMIZED:  # not in a function
        return False
    line = frames[-1][1]
    classes = (node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ClassDef))
    around = (node for node in classes if node.lineno <= line <= (node.end_lineno or 0))
    return any(name in _bound_by(statement) for owner in around for statement in owner.body)


def _bound_by(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in statement.names]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    is_method = isinstance(statement, ast.FunctionDef) and [arg.arg for arg in statement.args.args[:1]] == ["self"]
    return [statement.name] if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and not is_method else []


def _enclosing_names(tree: ast.Module, line: int, inner: int = 0) -> list[str]:
    """The arguments and variables of the functions around a line, except of one that begins at the line `inner`."""
    names: list[str] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.lineno <= line <= (function.end_lineno or 0):
            if function.lineno == inner:
                continue
            own = list(_own_nodes(function))
            names += [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
            names += [node.id for node in own if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
            names += [node.name for node in own if isinstance(node, ast.FunctionDef)]
    return names


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, but not in functions inside it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp)):
            yield from _own_nodes(node)
