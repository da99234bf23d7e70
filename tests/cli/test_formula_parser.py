"""Formulas as text mean what Python means by them, and are never run as code."""

import ast
import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from chainrule import Value, ops
from chainrule.cli.formula_parser import MOST_CHARACTERS, Formula, FormulaError, Instruction, parse
from chainrule.cli.formula_slips import first_slip
from hostile_texts import ATTACKS, formula_is_read, hostile_formulas

NAMES = {"a": 0.7, "b": -1.3, "c": 2.5, "x_1": 10.0}
FUNCTIONS = {"tanh": math.tanh, "exp": math.exp, "sin": math.sin, "sqrt": math.sqrt, "atan2": math.atan2, "abs": abs}


def calls(inner):
    one = st.sampled_from(["tanh", "exp", "sin", "sqrt", "abs"])
    return st.one_of(
        st.builds("{}({})".format, one, inner),
        st.builds("atan2({}, {})".format, inner, inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*", "/", "**"]), inner),
        st.builds("({})".format, inner),
        st.builds("{}{}".format, st.sampled_from("-+"), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner),
    )


numbers = st.floats(0, 100).map(lambda x: repr(round(x, 3)))
texts = st.recursive(st.one_of(st.sampled_from(list(NAMES)), numbers), calls, max_leaves=20)


def python(text):
    """What Python makes of it; None where it raises, or leaves the real numbers."""
    try:
        number = eval(text, {"__builtins__": {}}, {**NAMES, **FUNCTIONS})
    except (ArithmeticError, ValueError, TypeError):
        return None
    return None if isinstance(number, complex) else float(number)


def at(formula):
    return {name: NAMES[name] for name in formula.inputs}


@given(texts)
def test_a_formula_has_the_value_that_python_gives_it(text):
    formula = parse(text)
    expected = python(text)
    number = formula.evaluate(at(formula))
    if expected is not None and not math.isnan(expected):
        assert number == expected
    assert isinstance(number, float)


@given(texts)
def test_the_graph_of_values_has_that_value_too(text):
    formula = parse(text)
    result, named = formula.build(at(formula))
    number = formula.evaluate(at(formula))
    assert result.data == number or math.isnan(number)
    assert [name for name, value in named.items() if value.label == name] == list(formula.inputs)


@pytest.mark.parametrize("row", ops.TABLE.values(), ids=lambda row: row.name)
def test_every_op_of_the_table_can_be_called(row):
    names = [f"v{k}" for k in range(row.arity)]
    formula = parse(f"{row.name}({', '.join(names)})")
    given = {name: sum(interval) / 2 for name, interval in zip(names, row.domain, strict=True)}
    assert formula.evaluate(given) == row(*given.values())
    assert formula.build(given)[0]._rule is row


def test_operands_with_names_and_defaults():
    assert parse("leaky_relu(a)").evaluate({"a": -1.0}) == -0.01
    assert parse("leaky_relu(a, slope=b)").evaluate({"a": -1.0, "b": 0.5}) == -0.5
    assert parse("clip(high=1, x=a, low=-1)").evaluate({"a": 7.0}) == 1.0


def test_named_steps_are_labels():
    result, named = parse("e = a*b; d = e + c; L = d*f").build({"a": 2.0, "b": -3.0, "c": 10.0, "f": -2.0})
    result.backward()
    assert list(named) == ["a", "b", "c", "f", "e", "d", "L"]
    assert result is named["L"]
    assert result.label == "L"
    assert [value.grad for value in named.values()] == [6.0, -4.0, -2.0, 4.0, -2.0, -2.0, 1.0]  # Karpathy's example


def test_a_number_with_a_name_is_an_input_that_needs_none():
    result, named = parse("a = 3\nb = a\nb**2").build({})
    result.backward()
    assert result.data == 9.0
    assert named["b"] is named["a"]
    assert named["a"].grad == 6.0
    assert named["a"].label == "a"
    assert isinstance(parse("2*3").build({})[0], Value)


def test_results_are_those_of_ieee_arithmetic():
    assert parse("1/0").evaluate({}) == math.inf
    assert parse("10**1000").evaluate({}) == math.inf
    assert math.isnan(parse("log(-1)").evaluate({}))


WRONG = {
    "a + foo(b)": (4, "there is no function `foo`"),
    "tanhh(a)": (0, "did you mean tanh?"),
    "a +": (3, "something is missing"),
    "(a": (0, "'(' was never closed"),
    "b*a ^ 2": (0, "`^` has no meaning here: write b*a ** 2"),
    "a < b < c": (0, "write a < b < c as (a < b) * (b < c)"),
    "2 * tanh": (4, "`tanh` is a function: write tanh(x)"),
    "tanh = 3; tanh": (0, "`tanh` is an op: choose another name"),
    "tanh(a, b)": (0, "the call should look like tanh(x)"),
    "leaky_relu(a, b, slope=c)": (0, "the call should look like leaky_relu(x, slope=0.01)"),
    "relu(*a)": (0, "the call should look like relu(x)"),
    "relu(**a)": (0, "the call should look like relu(x)"),
    "e = a*b; a + c": (0, "`e` is never used"),
    "a*b; a + c": (0, "only the last statement is the result"),
    "a = 1; a = 2; a": (7, "`a` has a meaning already"),
    "b = a + b; b": (8, "`b` is used before it is defined"),
    "a = b = 3": (0, "give one result one name"),
    "2j + a": (0, "only real numbers"),
    "'text'": (0, "only real numbers"),
    "True": (0, "only real numbers"),
    "a + 1" + "0" * 400: (4, "too large for a float"),
    "import os": (0, "made of expressions and assignments"),
    "a += 1": (0, "made of expressions and assignments"),
    "é + ü.real": (4, "made of numbers, names"),  # the tree counts bytes; the caret counts characters
    **dict.fromkeys(["a.b", "[a]", "lambda: a", "a if b else c", "not a", "a @ b"], (0, "made of numbers, names")),
    "a + b[0]": (4, "made of numbers, names"),
    "tanh(a)(b)": (0, "only the ops of the table can be called"),
    "__import__('os').system('true')": (0, "only the ops of the table can be called"),
}


# As on paper: where the caret stands, how far it reaches, and what it says to write.
SLIPS = {
    "2x": (0, 2, "write 2*x"),
    "a + 1.5x": (4, 4, "write 1.5*x"),
    "2e": (0, 2, "write 2*e"),
    "0x": (0, 2, "write 0*x"),
    "1e5x": (0, 4, "write 1e5*x"),
    "a b": (0, 3, "write a*b"),
    "x 2": (0, 3, "write x*2"),
    "(2x)y": (1, 2, "write 2*x"),
    "(a + b)c": (0, 8, "write (a + b)*c"),
    "sin(a)b": (0, 7, "write sin(a)*b"),
    "2sin(x)": (0, 7, "write 2*sin(x)"),
    "1/2x": (2, 2, "write /(2*x) or /2*x, whichever you mean"),
    "a^2x": (2, 2, "write **(2*x) or **2*x, whichever you mean"),
    "3(x + 1)": (0, 8, "write 3*(x + 1)"),
    "3(x + 1)y": (0, 8, "write 3*(x + 1)"),
    "(a + b) (c + d)": (0, 15, "write (a + b)*(c + d)"),
    "x(y + 1)": (0, 1, "there is no function `x`: for a product write x*(y + 1)"),
    "pi(y + 1)": (0, 2, "there is no function `pi`: for a product write pi*(y + 1)"),
    "rate = 2*a; rate(b)": (12, 4, "there is no function `rate`: for a product write rate*(b)"),
    "sin x": (0, 5, "`sin` is a function: write sin(x)"),
    "sin a": (0, 5, "`sin` is a function: write sin(a)"),
    "2 sin a": (2, 5, "`sin` is a function: write sin(a)"),
    "sin 2a": (0, 5, "`sin` is a function: write sin(x)"),
    "maximum a b": (0, 9, "`maximum` is a function: write maximum(a, b)"),
    "maximum(a b)": (8, 3, "write `a, b` for two operands, a*b for a product"),
    "leaky_relu(a slope=3)": (11, 7, "put a comma before `slope`"),
    "e = a*b d = e + c": (6, 3, "put a semicolon before `d`"),
    "x²": (0, 2, "write x**2"),
    "10⁻³": (0, 4, "write 10**-3"),
    "tanh(a*b)²": (0, 10, "write tanh(a*b)**2"),
    "sin²(a)": (0, 4, "write sin(a)**2"),
    "√x": (0, 1, "write sqrt(x)"),
    "√(x + 1)": (0, 1, "write sqrt(x + 1)"),
    "∛x": (0, 1, "write x**(1/3)"),
    "a − b": (2, 1, "write a-b"),
    "−b": (0, 1, "write -b"),
    "a·b": (1, 1, "write a*b"),
    "2·b": (1, 1, "write 2*b"),
    "a × b": (2, 1, "write a*b"),
    "a ÷ b": (2, 1, "write a/b"),
    "a ≤ b": (2, 1, "write a<=b"),
    "x₁ + 2": (0, 2, "write x1"),
    "1 + |a - b|": (4, 7, "write abs(a - b)"),
    "2j*a": (0, 2, "only real numbers have a place in a formula, got 2j; for a product write 2*j"),
    "1,5*a": (0, 5, "a comma has no meaning here: write decimals with a point, as in 1.5"),
    "ln(a)": (0, 2, "there is no function `ln`: did you mean log?"),
    "arctan(a)": (0, 6, "there is no function `arctan`: did you mean atan?"),
    "max(a, b)": (0, 3, "there is no function `max`: did you mean maximum?"),
    "lambda*a": (0, 6, "`lambda` is a word of Python's own, not a name: choose another"),
    "e = 2*a  # 2a × b\ne b": (0, 3, "write e*b"),
    "2" + "x" * 60: (0, 61, "write 2*" + "x" * 39 + "…"),
}


@pytest.mark.parametrize("text", SLIPS, ids=lambda text: text[:20])
def test_a_habit_of_paper_is_refused_with_what_to_write(text):
    with pytest.raises(FormulaError) as caught:
        parse(text)
    column, width, advice = SLIPS[text]
    source, pointer = str(caught.value).split("\n")
    assert text.splitlines()[-1] == source
    assert pointer == " " * column + "^" * width + " " + advice


@pytest.mark.parametrize("text", [text for text in SLIPS if SLIPS[text][2].startswith("write ")])
def test_what_it_says_to_write_is_a_formula(text):
    """But for what is too long to be quoted, and for a slip in an operand, which is told of in its turn."""
    advice = SLIPS[text][2].removeprefix("write ").removesuffix(", whichever you mean")
    if "…" not in advice and "`" not in advice:
        for choice in advice.split(" or "):
            assert parse(f"a{choice}" if choice[0] in "*/" else choice).instructions


@pytest.mark.parametrize("text", ["'a b", "a + 'b c'd", "a = 3\nb = )", "(a", "a)b", "a\u2028b", "# 2x\n+"])
def test_other_mistakes_are_not_taken_for_such_habits(text):
    assert first_slip(text) is None
    with pytest.raises(FormulaError):
        parse(text)


@given(texts)
def test_a_formula_has_no_such_habits(text):
    assert first_slip(text) is None


def test_pi_and_e_are_constants():
    formula = parse("pi*r**2 + π - e")
    assert formula.inputs == ("r",)
    assert formula.constants == ("pi", "π", "e")
    assert formula.evaluate({"r": 2.0}) == math.pi * 4.0 + math.pi - math.e
    result, named = formula.build({"r": 2.0})
    result.backward()
    assert named["r"].grad == 4.0 * math.pi
    assert [named[name].requires_grad for name in formula.names] == [False, True, False, False]
    assert named["pi"].grad == 0.0
    assert named["pi"].label == "pi"


def test_another_meaning_of_e_wins():
    """Karpathy's example has an `e`, and whoever writes --at e=3 means it."""
    result, named = parse("a*e").build({"a": 2.0, "e": 3.0})
    result.backward()
    assert (result.data, named["e"].grad) == (6.0, 2.0)
    assert parse("a*e").evaluate({"a": 2.0, "e": 3.0}) == 6.0
    assert parse("e = a*b; e + 1").constants == ()
    with pytest.raises(FormulaError, match="`e` is used before it is defined"):
        parse("b = a*e; e = 2; b*e")
    with pytest.raises(ValueError, match="`at` has e, which the formula does not use: it needs a"):
        parse("a").build({"a": 1.0, "e": 3.0})


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_a_mistake_is_pointed_at(text):
    column, message = WRONG[text]
    with pytest.raises(FormulaError) as caught:
        parse(text)
    source, pointer = str(caught.value).split("\n")
    assert text.startswith(source)
    assert pointer.index("^") == column
    assert message in pointer


def test_a_mistake_far_along_a_long_line_is_shown_with_its_surroundings():
    with pytest.raises(FormulaError) as caught:
        parse("a + " * 100 + "foo(b)")
    source, pointer = str(caught.value).split("\n")
    assert len(source) < 110
    assert source[pointer.index("^") :].startswith("foo(b)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the formula is empty"),
        ("  # nothing", "the formula is empty"),
        ("a + " * MOST_CHARACTERS, "characters; at most 4,000 are read"),
        ("-" * 3900 + "a", "nested too deeply"),
        ("(" * 1000 + "a" + ")" * 1000, "too many nested parentheses"),
        ("9" * 3900, "too large for a float"),
        ("a\0b", r"the character '\\x00' has no place"),
        ("a +\n\ud800b", r"the character '\\ud800' has no place"),
    ],
    ids=lambda text: text[:10],
)
def test_hostile_input_is_refused(text, message):
    with pytest.raises(FormulaError, match=message):
        parse(text)


def test_a_long_sum_needs_no_recursion():
    formula = parse("a" + "+a" * 1990)
    assert formula.evaluate({"a": 1.0}) == 1991.0
    result, named = formula.build({"a": 1.0})
    result.backward()
    assert named["a"].grad == 1991.0


# Hostile texts. `tools/fuzz.py` runs the same many times over.

HOSTILE = settings(
    max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@HOSTILE
@given(hostile_formulas())
def test_nothing_is_ever_executed(text):
    formula_is_read(parse, text)


@pytest.mark.parametrize("text", ATTACKS, ids=lambda text: repr(text[:20]))
def test_attacks_are_refused_or_are_plain_formulas(text):
    formula_is_read(parse, text)


def evaluated(text):
    """A parser that asks Python: just what must not be."""
    try:
        eval(text, {"__builtins__": {}, "tanh": math.tanh}, dict.fromkeys("abx", 0.5))
    except Exception as error:
        raise FormulaError(f"the formula is wrong: {type(error).__name__}") from None
    return parse(text)


def unchecked(text):
    """A parser that trusts the tree, and so takes whatever has a name for an op."""
    tree = ast.parse(text.strip(), filename="", mode="eval").body
    return Formula(text, [], [Instruction("op", tree.func.id, len(tree.args))])


@pytest.mark.parametrize("careless", [evaluated, unchecked])
def test_the_hostile_texts_are_hostile_enough_for_a_careless_parser(careless):
    @settings(HOSTILE, phases=[Phase.generate])
    @given(hostile_formulas())
    def attempt(text):
        formula_is_read(careless, text)

    with pytest.raises((AssertionError, AttributeError, SyntaxError, ExceptionGroup)) as caught:
        attempt()
    if careless is evaluated:
        assert "('exec'" in str(caught.value) or "'exec'" in repr(getattr(caught.value, "exceptions", ""))


def test_a_file_with_the_name_that_python_gives_to_texts_is_not_looked_into(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hostile_texts.HARMLESS", [("compile", "")])
    for name in ("<unknown>", "<string>"):
        (tmp_path / name).write_text("secret")
    with pytest.raises(AssertionError) as caught:
        formula_is_read(parse, "a +")
    opened = str(caught.value)
    assert "<unknown>" not in opened
    assert "('open', \"('', 'rb', 0)\")" in opened


def test_the_caret_is_under_the_place_whatever_characters_are_before_it():
    for space in ("\x0c", "\t", " "):
        with pytest.raises(FormulaError) as caught:
            parse(f"a{space}+ foo(b)")
        assert str(caught.value).split("\n")[0] == "a + foo(b)"
        assert str(caught.value).split("\n")[1].startswith("    ^^^ there is no function `foo`")
    with pytest.raises(FormulaError) as caught:
        parse("e = a\r\ne + \x1b[31mfoo(b)")
    assert "\x1b" not in str(caught.value)


def test_numbers_for_other_names_than_the_formula_has():
    formula = parse("a*b")
    with pytest.raises(ValueError, match="`at` has no number for b: give one for each of a, b"):
        formula.build({"a": 1.0})
    with pytest.raises(ValueError, match="`at` has c, which the formula does not use: it needs a, b"):
        formula.build({"a": 1.0, "b": 1.0, "c": 1.0})
    with pytest.raises(TypeError, match="`text` must be a string, got int"):
        parse(3)
    assert repr(formula) == "<Formula 'a*b'>"
