"""CSV files and formulas as an enemy would write them, and what must hold of whoever reads them."""

import math
import sys

from hypothesis import strategies as st

from chainrule import Value, ops
from chainrule.cli.formula_parser import FormulaError
from hostile_files import cut, flipped

# CSV files.

# fmt: off
CELLS = [
    "1", "-2.5", "1e3", "a", "b", "y", "", " ", "NA", "nan", "inf", "-inf", "1e400", "-1e-400", "0x10", "1_000", "1,5",
    "\x1b[2J", "\x9b31m", "\x1b]0;owned\x07",
    "1.", ".5", "+-1", "1e", "1" * 400, "９", "١٢", "½", "\0", "\x1a", "\u2028", "\x85", "\ufeff", "é", "𝟏", "\u202e1",
    '"', '""', '"1"', '"a\nb"', '"a,b"', '"1"2', "'1'", "=1+1", "=cmd|' /C calc'!A0", "../../etc/passwd", "x" * 5000,
    '"' + "q" * 200_000 + '"', "z" * 131_073, "True", "None", "[1]", "1;2", "1\t2", "#", "\\", "\\,", "$1", "1%",
]
# fmt: on
VALID_TABLES = [b"a,b,y\n1,2,3\n4,5,6\n", b'5.1;3.5;setosa\r\n4.9;3.0;"virgin\nica"\r\n', "é\tü\n1\t2\n".encode()]
ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "utf-7"]


@st.composite
def tables(draw):
    """Rows of nasty cells, often of one length, under all sorts of dialects and encodings."""
    plain, nasty = st.sampled_from(CELLS[:3]), st.sampled_from(CELLS) | st.text(max_size=6)
    share = draw(st.sampled_from([0, 1, 5, 20]))  # of nasty cells, in twenty
    width, rows = draw(st.integers(1, 4)), draw(st.integers(0, 5))
    ragged = draw(st.integers(0, 4)) == 0
    delimiter, end = (
        draw(st.sampled_from(",,,;\t|:")),
        draw(st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n", "\u2028"])),
    )
    lines = [
        delimiter.join(
            draw(nasty if draw(st.integers(1, 20)) <= share else plain)
            for _ in range(draw(st.integers(0, 6)) if ragged else width)
        )
        for _ in range(rows)
    ]
    text = (
        draw(st.sampled_from(["", "", "", "\ufeff", "\n", "#x\n", "\0"]))
        + end.join(lines)
        + draw(st.just(end) | st.just(""))
    )
    return text.encode(draw(st.sampled_from(ENCODINGS)), "replace")


@st.composite
def long_runs(draw):
    """A table with one thing in it many times over; seldom so often that whoever looks at each takes minutes."""
    piece = draw(st.sampled_from([b"\n", b"\r", b" \n", b"\r\n", b",", b'"', b" ", b"\t\n", b"\0", b"a"]))
    count = (1 << (27 if draw(st.integers(0, 39)) == 23 else draw(st.integers(0, 12)))) // len(piece)
    place = draw(st.sampled_from([b"%s", b"a,y\n%s", b"a,y\n1,2\n%s1,2\n", b"%s\na,y\n1,2\n"]))
    return place.replace(b"%s", piece * count)


def hostile_tables():
    """Files that may or may not be tables; reading one must give its numbers or a ValueError."""
    edited = [flipped(VALID_TABLES), cut(VALID_TABLES)]
    return st.one_of(tables(), tables(), tables(), *edited, long_runs(), st.binary(max_size=60))


def table_is_read(read, path, content):
    """Whether `read` finds examples in the content; if not, its error must say where it stopped."""
    path.write_bytes(content)
    try:
        examples = read(path)
    except ValueError as error:
        message = str(error)
    else:
        assert len(set(examples.columns)) == len(examples.columns) > 0
        assert all(len(x) == len(examples.columns) for x in examples.inputs)
        assert all(type(number) is float and math.isfinite(number) for x in examples.inputs for number in x)
        return True
    assert message.startswith(repr(str(path))), message
    place = message[len(repr(str(path))) :]
    assert place.startswith(
        (", row ", ", line ", " is empty", " has a header and no rows", " has the target", " is not a text in")
    ), message
    assert message.isprintable(), message
    assert len(place) < 300, message
    return False


# Formulas.

# fmt: off
ATTACKS = [
    "boom()", "boom", "__import__('os').system('boom')", "().__class__.__base__.__subclasses__()", "exec('boom()')",
    "eval('boom()')", "(lambda: boom())()", "[boom() for a in (1,)]", "{boom(): 1}", "(a := boom())", "f'{boom()}'",
    "f'{a.__class__}'", "a.__class__", "a.real", "a['b']", "tanh.forward", "tanh.__globals__", "getattr(a, 'b')",
    "open('/etc/passwd')", "print(a)", "globals()", "type(a)", "a if boom() else b", "boom() and a", "not a", "*a",
    "await a", "yield a", "assert boom()", "import os", "from os import system", "del a", "global a", "pass", "raise",
    "class A: boom()", "def f(): boom()", "while True: pass", "for a in boom(): pass", "with boom(): pass", "return a",
    "try: boom()\nexcept: pass", "match a:\n case b: boom()", "@boom\ndef f(): pass", "a: boom() = 1", "b''", "...",
    "9**9**9**9", "9" * 3000, "1e400", "0x" + "f" * 3000, "1_000", "0b1", "1j", "a" * 3000, "-" * 3000 + "a", "[" * 300,
    "(" * 100 + "a" + ")" * 100, "(" * 500 + "a", "tanh(" * 90 + "a" + ")" * 90, "a." * 1500 + "a", "a" + "+a" * 1500,
    "a(" * 300, "ｔａｎｈ(a)", "＿＿import＿＿('os')", "ехес('boom()')", "ªbs(a)", "tanh（a）", "a＋b", "\u202ea + b",
    "a\u200b", "𝐛𝐨𝐨𝐦()", "a\0b", "\ud800", "a\x0c+ boom(b)", "a\x1c+ boom(b)", "a\u2028boom(b)", "a\\\n+ b",
    "a # boom()", "'''", '"', "a\rb", "\ufeffa",
]
PIECES = [
    "a", "b", "x", "é", "1", "2.5", "1e9", "+", "-", "*", "/", "**", "(", ")", ",", "=", ";", "\n", "<", "==", " ", "^",
    "tanh", "where", "leaky_relu", "slope=", "tanh(", "e = ", ".x", "[0]", "lambda:", " if ", " else ", "(x:=", "%",
    "for x in ", "{", "}", "@", "~", "//", ">>", ":", "->", "!", "`", "$", "?", "\\", "\t", "\r", "\x0c", "\0", "#",
    "'", "'''", "𝟏",
]
# fmt: on
OUTSIDE = []  # what Python was asked to do while a formula was read: its auditing sees all code that runs
WATCHING = False
HARMLESS = [
    ("compile", ""),  # to a tree; code that is run is told of as "exec"
    ("object.__getattr__", ""),  # a look at frames, by hypothesis
    ("open", "('', "),  # for the line of a syntax error, in a file that cannot be
]


@sys.addaudithook
def _watch(event, arguments):
    if WATCHING and not any(event == known and str(arguments).startswith(start) for known, start in HARMLESS):
        OUTSIDE.append((event, str(arguments)[:100]))


def hostile_formulas():
    """Texts that may or may not be formulas; none may make anything happen."""
    soup = st.lists(st.sampled_from(PIECES) | st.sampled_from(PIECES) | st.sampled_from(ATTACKS), max_size=14)
    spread = st.tuples(st.sampled_from(PIECES), st.integers(0, 3000)).map(lambda pair: pair[0] * pair[1])
    return st.one_of(soup.map("".join), st.sampled_from(ATTACKS), soup.map(" + ".join), spread, st.text(max_size=40))


def formula_is_read(parse, text):
    """Whether `parse` takes the text for a formula, of numbers, names and ops then; if not, it must say why."""
    global WATCHING
    OUTSIDE.clear()
    WATCHING, message = True, ""
    try:
        formula = parse(text)
        numbers = dict.fromkeys(formula.inputs, 0.5)
        number, (value, _) = formula.evaluate(numbers), formula.build(numbers)
    except FormulaError as error:
        message = str(error)
    finally:
        WATCHING = False
        assert not OUTSIDE, (text, OUTSIDE)
    if message:
        shown, *pointer = message.split("\n")
        assert len(pointer) == 1 or (not pointer and shown.startswith("the formula ")), message
        assert all(0 <= line.index("^") <= len(shown) for line in pointer), message
        assert all(len(line) < 400 for line in (shown, *pointer)), message
        return False
    known = {"number": float, "name": str, "assign": str, "op": ops.Op}
    for instruction in formula.instructions:
        assert type(instruction.thing) is known[instruction.kind], (text, instruction)
        assert instruction.kind != "op" or ops.TABLE[instruction.thing.name] is instruction.thing
    assert type(number) is float
    assert isinstance(value, Value)
    assert number == value.data or math.isnan(number)
    return True
