"""`grade(exercise, code)`: runs a learner's code and the exercise's check, and returns a report.

`running` runs it; its transcript is judged here, one from an untrusted process by comparison with what the solution's
own run expected, the `reference`. A wrong answer gets an authored message on two conditions. Its *fingerprint*, that is
its rows and how it failed, must be that of the authored wrong answer; and the signs of the mistake that the message is
about must be in its code (see `matching`), because different mistakes can compute the same numbers. Everything else is
told the facts: what was got where, and what was expected.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
import re
import symtable
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, wraps
from typing import Any, TypeVar

from chainrule.learn.code_reading import silent
from chainrule.learn.course import Block, Course, Exercise, Wrong, clean, exercise_data, exercise_from, fill
from chainrule.learn.explaining import Error
from chainrule.learn.matching import parse
from chainrule.learn.running import Comparison, Task, Transcript, agree, run

VERSION = 1  # of the course's JSON
MOST_ROWS = 200
UNCHANGED = "This is still the code you started with: write your answer in it, then check again."
POSITIONS = ("label", "got", "expected", "node", "tolerance")  # the arguments of `expect`
NEEDED = ("label", "got", "node", "site")  # those that say nothing about the expected value
SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.FunctionDef)  # imports stay: the learner's code sees them too
BUILTINS = frozenset(dir(builtins))
CALLED_AMISS = {
    "AttributeError": "no attribute '{}'",
    "NameError": r"\b{}\b",
    "TypeError": r"\b{}\b",
}  # errors about a name
SKIPPED = "Not all that is checked was compared. Does your code change `expect`, or end the check before its time?"


@dataclass(frozen=True)
class Row:
    """One comparison of a check."""

    label: str
    got: str
    expected: str
    right: bool
    node: str | None  # which node of the graph it is about
    graph: int | None = None  # which of the graphs
    about: str = ""  # that graph's label, also where it could not be drawn
    print: str = ""  # `got`, for the fingerprint


@dataclass(frozen=True)
class Report:
    """The result of a learner's code."""

    passed: bool
    rows: tuple[Row, ...] = ()
    message: str | None = None
    error: Error | None = None
    output: str = ""
    graphs: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    fingerprint: str = ""

    def data(self) -> dict[str, Any]:
        """As data for JSON, without fingerprints."""
        rows = [{key: value for key, value in vars(row).items() if key != "print"} for row in self.rows]
        data = vars(self) | {"rows": rows, "error": self.error and asdict(self.error), "graphs": list(self.graphs)}
        return {key: value for key, value in data.items() if key != "fingerprint"}


def grade(exercise: Exercise, code: str, codes: Mapping[str, str] | None = None) -> Report:
    """The report on `code` as an answer to `exercise`; `codes` are the learner's other answers, by name.

    >>> from chainrule.learn.lesson_files import load_course
    >>> add = load_course().exercises["add"]
    >>> grade(add, add.solution).passed
    True
    """
    return judge(exercise, run(task_for(exercise, code, codes)))


def grade_json(course: str, name: str, code: str, codes: str = "{}") -> str:
    """`grade` for the page, JSON to JSON: `course` is what `course_json` returned, or one exercise of it.

    >>> from chainrule.learn.lesson_files import load_course
    >>> json.loads(grade_json(course_json(load_course()), "add", "oops("))["error"]["kind"]
    'SyntaxError'
    """
    return json.dumps(grade(_exercise(course, name), code, json.loads(codes)).data())


def run_json(course: str, name: str, code: str, codes: str = "{}") -> str:
    """What `code` prints in its template, and the error that stops it, for the page: nothing is checked.

    >>> from chainrule.learn.lesson_files import load_course
    >>> run_json(course_json(load_course()), "slope", "print(1 + 1)")
    '{"output": "2\\\\n", "error": null}'
    """
    task = task_for(_exercise(course, name), code, json.loads(codes))
    transcript = run(replace(task, check="", signs=()))
    return json.dumps({"output": transcript.output, "error": transcript.error and asdict(transcript.error)})


def _exercise(course: str, name: str) -> Exercise:
    exercises = _exercises(course)
    if name not in exercises:
        raise ValueError(f"there is no exercise {name!r} in this course: it has {', '.join(exercises)}")
    return exercises[name]


@lru_cache(maxsize=2)
def _exercises(course: str) -> dict[str, Exercise]:
    data = json.loads(course)
    found = [block for lesson in data["lessons"] for block in lesson["blocks"]] if "lessons" in data else [data]
    return {block["name"]: exercise_from(block) for block in found if block["type"] == "exercise"}


def course_json(course: Course) -> str:
    """The course for the page. Runs the wrong answers to find their fingerprints."""

    def data(block: Block) -> dict[str, Any]:
        return exercise_data(with_fingerprints(block)) if isinstance(block, Exercise) else asdict(block)

    lessons = [vars(lesson) | {"blocks": [data(block) for block in lesson.blocks]} for lesson in course.lessons]
    whole = {"version": VERSION, "lessons": lessons, "templates": dict(course.templates)}
    return json.dumps(whole, ensure_ascii=False, allow_nan=False)


def task_for(exercise: Exercise, code: str, codes: Mapping[str, str] | None = None) -> Task:
    """What to run to find out what `code` does as an answer."""
    code = clean(code)
    source, original = (
        fill(exercise.template, own, {**exercise.parts, **(codes or {})}) for own in (code, exercise.starter)
    )
    signs = tuple(wrong.signs for wrong in exercise.wrong)
    return Task(code, source, original.text, numbered(exercise.check), exercise.starter, signs)


def judge(exercise: Exercise, transcript: Transcript, reference: Transcript | None = None) -> Report:
    """The report on a run. With a `reference`, the transcript has no say in what was expected."""
    rows = _rows(transcript, reference)
    right = all(row.right for row in rows)
    ended = transcript.error is not None or transcript.message is not None
    complete = reference is None or _sites(transcript) == _sites(reference)
    shared = {key: getattr(transcript, key) for key in ("message", "error", "output", "graphs", "seconds")}
    shown = tuple(rows[:MOST_ROWS])
    report = Report(right and complete and not ended, shown, **shared, fingerprint=_fingerprint(shown, transcript))
    if report.passed:
        return report
    if transcript.reading.unchanged:
        return replace(report, message=UNCHANGED, error=None)
    skipped = SKIPPED if right and not ended else None
    return replace(report, message=_message(exercise, transcript, report) or skipped)


def _message(exercise: Exercise, transcript: Transcript, report: Report) -> str | None:
    """What to tell a learner whose answer did not pass, if there is more to say than the error does."""
    found = _authored(exercise, transcript, report.fingerprint) or report.message
    reading = transcript.reading
    no_return = not set(reading.silent) <= set(silent(exercise.solution))
    return found or reading.inside or _called_as_it_was(transcript) or _fact(report.rows, no_return)


def _called_as_it_was(transcript: Transcript) -> str | None:
    """What the code has instead of the starter's first line, if an error from outside is about that."""
    name, error = transcript.reading.first_line_of, transcript.error
    if not name or not error or error.line is not None or error.kind not in CALLED_AMISS:
        return None
    text = error.text.replace("() takes no arguments", ".__init__() is missing")  # Python does not name it
    about = re.search(CALLED_AMISS[error.kind].format(re.escape(name)), text)
    return transcript.reading.first_line if about else None


def _rows(transcript: Transcript, reference: Transcript | None) -> list[Row]:
    """One row per comparison; with a reference, the expected value is the one it has at the same visit."""
    known = dict(_visits(transcript if reference is None else reference))
    return [_row(made, known.get(visit, made)) for visit, made in _visits(transcript)]


def _visits(transcript: Transcript) -> Iterator[tuple[tuple[int | None, int], Comparison]]:
    """Each comparison, keyed by its site and how often the check had been there before."""
    visits: Counter[int | None] = Counter()
    for comparison in transcript.comparisons:
        yield (comparison.site, visits[comparison.site]), comparison
        visits[comparison.site] += 1


def _sites(transcript: Transcript) -> list[int | None]:
    return [comparison.site for comparison in transcript.comparisons]


def _row(made: Comparison, known: Comparison) -> Row:
    expected, got = known.expected, made.got
    right = expected is not None and agree(got.value, expected.value, known.tolerance)
    text = expected.text if expected else "nothing more"
    return Row(made.label, got.text, text, right, made.node, made.graph, made.about, got.print)


_ONE_AT_A_TIME = threading.RLock()  # running the author's answers redirects standard output for all threads
Found = TypeVar("Found")


def _once(find: Callable[[Exercise], Found]) -> Callable[[Exercise], Found]:
    """Calls the function once per exercise, by identity: an exercise holds a dict, so it has no hash."""
    kept: dict[int, tuple[Exercise, Found]] = {}

    @wraps(find)
    def found(exercise: Exercise) -> Found:
        with _ONE_AT_A_TIME:
            if id(exercise) not in kept or kept[id(exercise)][0] is not exercise:
                kept[id(exercise)] = exercise, find(exercise)
            return kept[id(exercise)][1]

    return found


@_once
def reference_of(exercise: Exercise) -> Transcript:
    """What the check expects. Runs the solution once per exercise."""
    transcript = run(task_for(exercise, exercise.solution))
    if not judge(exercise, transcript).passed:
        wrong = f"the solution of {exercise.name!r} does not pass its own check"
        raise ValueError(f"{wrong}, so nothing can be compared with it: `chainrule lessons` says more")
    return transcript


def without_answers(task: Task, reference: Transcript) -> Task:
    """The task for a process that must not know the expected values."""
    sites = frozenset(comparison.site for comparison in reference.comparisons if comparison.site is not None)
    return replace(task, check=without_expected(task.check, sites))


# Wrong answers.


def with_fingerprints(exercise: Exercise) -> Exercise:
    """The exercise with the fingerprint of each wrong answer. Runs those that have none yet."""

    def found(wrong: Wrong) -> Wrong:
        transcript = run(task_for(exercise, wrong.code))
        return replace(wrong, fingerprint=_fingerprint(_rows(transcript, None)[:MOST_ROWS], transcript))

    return replace(exercise, wrong=tuple(wrong if wrong.fingerprint else found(wrong) for wrong in exercise.wrong))


@_once
def _fingerprinted(exercise: Exercise) -> tuple[Wrong, ...]:
    return with_fingerprints(exercise).wrong


def _fingerprint(rows: Sequence[Row], transcript: Transcript) -> str:
    error = transcript.error
    behaviour = [[row.label, row.print] for row in rows], error.kind if error else None, transcript.message
    return hashlib.sha256(json.dumps(behaviour).encode()).hexdigest()[:16]


def _authored(exercise: Exercise, transcript: Transcript, fingerprint: str) -> str | None:
    """The message of the authored wrong answer that behaves the same and has the same fault."""
    known = exercise.wrong if all(wrong.fingerprint for wrong in exercise.wrong) else _fingerprinted(exercise)
    read = zip(known, transcript.reading.fits, strict=False)
    return next((wrong.message for wrong, fits in read if fits and wrong.fingerprint == fingerprint), None)


NO_LIST = ("(Value(", "<generator", "<map object", "<zip object", "{Value(", "dict_")  # how they are spelled


def _fact(rows: Sequence[Row], no_return: bool) -> str | None:
    """What the first wrong row shows: for code that no author has foreseen, nothing else is known to be true.

    `no_return` says that a function which should return something has no `return`.
    """
    row = next((row for row in rows if not row.right), None)
    if row is None:
        return None
    place = f", in `{row.about}`" if row.node and row.about else ""
    got = row.got.replace("`", "'")  # it stands between backquotes
    fact = f"`{row.label}`{place}: got `{got}`, expected `{row.expected}`."
    if row.got == "None" and not row.node and no_return:
        return f"{fact} A function without `return` gives `None`."
    if row.got.startswith("Value(") and not row.expected.startswith(("[", "(", "Value")):
        return f"{fact} The number of a Value is in `.data`."
    if row.got.startswith(NO_LIST) and row.expected.startswith("["):
        return f"{fact} A list is asked for: write `[…]`, or `list(…)`."
    return fact


def verify(course: Course) -> list[str]:
    """What is wrong with the course's exercises, one sentence each: only solutions may pass."""
    return [problem for exercise in course.exercises.values() for problem in _problems(exercise)]


def _problems(exercise: Exercise) -> Iterator[str]:
    where, name = f"{exercise.file}, line {exercise.line}", exercise.name
    report, solution = grade(exercise, exercise.solution), parse(exercise.solution)
    if not report.passed:
        yield f"{where}: the solution of {name!r} does not pass: {_first_fault(report)}"
    if grade(exercise, exercise.starter).passed:
        yield f"{where}: the starter of {name!r} passes already: leave something to do, or check more"
    for wrong in exercise.wrong:
        place = f"{exercise.file}, line {wrong.line}"
        report = grade(exercise, wrong.code)
        if report.passed:
            yield f"{place}: this wrong answer to {name!r} passes: check more, or leave it out"
        elif report.message != wrong.message:
            other = f"gets another message: {report.message!r}"
            yield f"{place}: this wrong answer to {name!r} {other}; let `has` or `lacks` tell them apart, or drop one"
        if wrong.signs.fit(solution):
            yield f"{place}: what this wrong answer to {name!r} `has` or `lacks` is true of the solution too: say more"


def _first_fault(report: Report) -> str:
    wrong = (f"{row.label} is {row.got}, expected {row.expected}" for row in report.rows if not row.right)
    return report.error.text if report.error else next(wrong, report.message or "it failed")


# Checks that do not say what they expect, for the process that runs a learner's answer. The expected values come from a
# run of the solution, matched call by call through the numbers of the `expect`s.


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
