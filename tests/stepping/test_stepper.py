"""The stepper's data: every step, number and formula that the page shows, and the page as a file."""

import html
import json
import math
import os
import re
import webbrowser

import pytest
from hypothesis import given, settings

import chainrule
from chainrule import closures, nn, ops, stepper
from chainrule.stepping.formula_text import FormulaText, show
from chainrule.stepping.page import SCRIPTS, Page, classic_script
from chainrule.stepping.steps import describe, explain
from engines import ENGINES
from expressions import programs, run


def worked_expression(Value):
    a, b, c, f = (Value(x, label=n) for x, n in [(2.0, "a"), (-3.0, "b"), (10.0, "c"), (-2.0, "f")])
    e = a * b
    d = e + c
    L = d * f
    e.label, d.label, L.label = "e", "d", "L"
    return L


def final_grads(description):
    """The gradients that stepping through to the end leaves, by name, as Python writes them."""
    grads = [node["grad"] for node in description["nodes"]]
    for step in description["steps"]:
        if "after" in step:
            grads[step.get("to", step["node"])] = step["after"]
    return {n["name"]: g["exact"] for n, g in zip(description["nodes"], grads, strict=True) if g is not None}


def backward_steps(description):
    return [step for step in description["steps"] if step["kind"] == "backward"]


def test_the_worked_expression(Value):
    description = describe(worked_expression(Value))
    assert [node["name"] for node in description["nodes"]] == ["a", "b", "c", "f", "e", "d", "L"]
    grads = {name: float(grad) for name, grad in final_grads(description).items()}
    assert grads == {"L": 1, "d": -2, "f": 4, "e": -2, "c": -2, "a": 6, "b": -4}  # the published figures
    kinds = [step["kind"] for step in description["steps"]]
    assert kinds == ["start", *["forward"] * 3, "seed", *["backward"] * 6, "end"]


def test_a_step_is_the_chain_rule_written_out(Value):
    description = describe(worked_expression(Value))
    names = [node["name"] for node in description["nodes"]]
    steps = {(names[step["node"]], names[step["to"]]): step for step in backward_steps(description)}
    assert list(steps) == [("L", "d"), ("L", "f"), ("d", "e"), ("d", "c"), ("e", "a"), ("e", "b")]
    assert steps["d", "e"]["multiplication"] == "-2 · 1"
    assert steps["d", "e"]["formula"] == {"names": "1", "numbers": "1"}
    assert steps["e", "a"]["formula"] == {"names": "b", "numbers": "-3"}
    assert steps["e", "a"]["multiplication"] == "-2 · (-3)"
    assert steps["e", "a"]["sum"] == "0 + 6"
    assert description["nodes"][4]["expression"] == {"names": "a · b", "numbers": "2 · (-3)"}


def test_contributions_add_up(Value):
    a = Value(2.0, label="a")
    description = describe((a + 1) * (a * 3))
    assert [step["sum"] for step in backward_steps(description) if step["to"] == 0] == ["0 + 9", "9 + 6"]
    x = Value(3.0, label="x")
    description = describe(x * x)
    assert [(step["operand"], step["after"]["text"]) for step in backward_steps(description)] == [(0, "3"), (1, "6")]


def results_of(program, Value):
    return run(program, Value, lambda row, operands: Value._apply(row, tuple(operands)))[1]


def same_number(a, b):
    return (a == b and math.copysign(1.0, a) == math.copysign(1.0, b)) or (a != a and b != b)


@given(programs(most_nodes=40))
@settings(deadline=None, max_examples=150)
def test_stepping_gives_the_gradients_of_backward_to_the_bit(program):
    for Value in ENGINES.values():
        results = results_of(program, Value)
        for i, node in enumerate(results):
            node.label = f"n{i}"
        root = results[-1]
        stepped = final_grads(describe(root))
        root.backward()
        reached = [node for node in results if node.label in stepped]
        assert root in reached
        assert all(same_number(float(stepped[node.label]), node.grad) for node in reached)


@given(programs(most_nodes=20))
@settings(deadline=None, max_examples=50)
def test_every_step_follows_from_the_one_before(program):
    Value = chainrule.Value
    description = describe(results_of(program, Value)[-1])
    grads = [node["grad"] and float(node["grad"]["exact"]) for node in description["nodes"]]
    for step in description["steps"]:
        if step["kind"] == "seed":
            grads[step["node"]] = 1.0
        if step["kind"] != "backward":
            continue
        number = {key: float(step[key]["exact"]) for key in ("grad", "partial", "product", "before", "after")}
        assert description["nodes"][step["node"]]["operands"][step["operand"]] == step["to"]
        assert same_number(number["grad"], grads[step["node"]])
        assert same_number(number["before"], grads[step["to"]])
        assert same_number(number["product"], number["grad"] * number["partial"])
        assert same_number(number["after"], number["before"] + number["product"])
        grads[step["to"]] = number["after"]


def test_the_values_are_left_alone(Value):
    L = worked_expression(Value)
    L.backward()
    before = [(node.data, node.grad) for node in chain(L)]
    stepper(L)
    assert [(node.data, node.grad) for node in chain(L)] == before


def chain(root):
    found = [root]
    for node in found:
        found += [operand for operand in node._operands if operand not in found]
    return found


def test_gradients_start_at_zero_unless_they_are_kept(Value):
    x = Value(3.0, label="x")
    y = x * x
    y.backward()
    assert final_grads(describe(y))["x"] == "6.0"
    kept = final_grads(describe(y, keep_grads=True))
    y.backward()  # nobody zeroed
    assert kept == {"x": "12.0", "v1": "1.0"}
    assert x.grad == 12.0


def test_the_seed(Value):
    x = Value(3.0, label="x")
    assert final_grads(describe(x * x, seed=0.5))["x"] == "3.0"
    with pytest.raises(TypeError, match="`seed` must be a real number, got str"):
        describe(x, seed="1")


def test_a_leaf_alone(Value):
    assert final_grads(describe(Value(3.0, label="x"))) == {"x": "1.0"}


def test_special_numbers(Value):
    x = Value(0.0, label="x")
    description = describe(x.log() * math.nan)
    assert json.loads(json.dumps(description, allow_nan=False)) == description
    assert description["nodes"][1]["data"] == {"exact": "-inf", "text": "-inf"}
    assert final_grads(description)["x"] == "nan"
    (x.log() * math.nan).backward()
    assert math.isnan(x.grad)


def test_names_come_from_labels_and_variables(Value):
    weight, bias = Value(2.0), Value(1.0, label="b")
    total = weight * 3.0 + bias
    _1 = weight  # as notebooks do
    names = [node["name"] for node in describe(total, names=locals())["nodes"]]
    assert names == ["weight", "b", "3", "v1", "total"]


def test_names_are_never_shared(Value):
    first, second, third = Value(1.0, label="w"), Value(2.0, label="w"), Value(3.0, label="v1")
    names = [node["name"] for node in describe(first * second + third * first)["nodes"]]
    assert names == ["w_1", "w_2", "v1", "v2", "v3", "v4"]


def test_names_of_a_models_parameters():
    model = nn.Neuron(2, rng=1)
    names = [node["name"] for node in describe(model([1.0, 2.0]), names=dict(model.named_parameters()))["nodes"]]
    assert {"w.0", "w.1", "b"} <= set(names)


def test_constants_take_no_gradient_and_no_step(Value):
    x = Value(3.0, label="x")
    description = describe(x**2)
    assert [node["kind"] for node in description["nodes"]] == ["leaf", "constant", "result"]
    assert description["nodes"][1]["grad"] is None
    (step,) = backward_steps(description)
    assert step["formula"] == {"names": "2 · x", "numbers": "2 · 3"}


def cube(x, push):
    out = type(x)(x.data**3, (x,), "cube", label="out")
    out._backward = lambda: push(x, out)
    return out


def right(x, out):
    x.grad += 3 * x.data**2 * out.grad


def overwriting(x, out):
    x.grad = 3 * x.data**2 * out.grad


def test_a_backward_written_by_hand_is_asked(Value):
    x = Value(2.0, label="x")
    x.grad = 7.0
    y = cube(x, right) * 5.0
    description = describe(y)
    step = next(step for step in description["steps"] if step["kind"] == "handwritten")
    assert (step["before"]["text"], step["after"]["text"], step["grad"]["text"]) == ("0", "60", "5")
    assert description["nodes"][1]["expression"] == {"names": "cube(x)", "numbers": "cube(2)"}
    assert x.grad == 7.0


def test_a_backward_that_overwrites_is_caught_in_the_act(Value):
    x = Value(2.0, label="x")
    y = cube(x, overwriting) + x * 10.0
    description = describe(y)
    y.backward()
    assert x.grad == float(final_grads(description)["x"]) == 12.0  # 22 would be right
    (step,) = [step for step in description["steps"] if step["kind"] == "handwritten"]
    assert (step["before"]["text"], step["after"]["text"]) == ("10", "12")


def test_a_backward_that_fails_leaves_the_values_alone(Value):
    def failing(x, out):
        x.grad = 99.0
        raise RuntimeError("no")

    x = Value(2.0)
    with pytest.raises(RuntimeError, match="no"):
        stepper(cube(x, failing))
    assert x.grad == 0.0


def test_a_node_made_by_hand_without_a_backward_passes_nothing_on(Value):
    x = Value(2.0, label="x")
    assert backward_steps(describe(Value(4.0, (x,), "square"))) == []


def test_a_rule_written_for_floats_only_has_no_formula():
    @chainrule.op(lambda out, x: math.cos(x))
    def wave(x):
        return math.sin(x)

    (step,) = backward_steps(describe(wave(chainrule.Value(0.0))))
    assert step["formula"] is None
    assert step["partial"]["text"] == "1"


def test_large_graphs_are_refused():
    x = chainrule.Value(1.0)
    y = x
    for _ in range(299):
        y = y.tanh()
    assert len(describe(y)["nodes"]) == 300
    with pytest.raises(ValueError, match=r"`root` depends on 301 nodes, .* more than 300 .*: step through a part"):
        stepper(y.tanh())


def test_what_is_not_a_value_is_refused():
    with pytest.raises(TypeError, match=r"`root` must be a chainrule Value, the result to differentiate; got float$"):
        stepper(3.0)
    with pytest.raises(TypeError, match="got Value of another class, which does not keep the order of operands"):
        stepper(closures.Value(3.0) * 2.0)
    with pytest.raises(
        TypeError, match=r"`names` must be a mapping from names to Values, such as locals\(\), got list"
    ):
        stepper(chainrule.Value(3.0), names=["x"])


# Formulas.


def evaluate(text, names):
    """A formula's text, read as Python."""
    text = re.sub("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "**" + m[0].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")), text)
    text = text.replace("·", "*").replace("^", "**").replace(" = ", " == ").replace("≤", "<=").replace("≥", ">=")
    text = text.replace("≠", "!=").replace("[", "float(").replace("]", ")")
    return eval(text, {"__builtins__": {"float": float}}, {**ops.TABLE, **names})


@pytest.mark.parametrize("name", ops.TABLE)
def test_every_formula_says_what_its_rule_computes(name):
    row = ops.TABLE[name]
    places = [(0.15, 0.4, 0.7), (0.5, 0.3, 0.6), (0.85, 0.6, 0.1)]
    for operands in [[low + (high - low) * at for (low, high), at in zip(row.domain, p, strict=False)] for p in places]:
        out = row.forward(*operands)
        values = dict(zip(["out", *row.parameters], [out, *operands], strict=True))
        carriers = [FormulaText(value, key) for key, value in values.items()]
        assert evaluate(FormulaText.of(row, out, tuple(carriers[1:])).text(), values) == pytest.approx(out, rel=1e-12)
        for partial in filter(None, row.partials):
            expected = partial(out, *operands)
            formula = partial(*carriers)
            text = formula.text() if isinstance(formula, FormulaText) else show(formula)
            literal = 1e-4 if re.search(r"\d[\d.]{5}", text) else 1e-12  # numbers in the text have five digits
            assert evaluate(text, values) == pytest.approx(expected, rel=literal), text


@pytest.mark.parametrize(
    ("name", "operands", "texts"),
    [
        ("tanh", [0.5], ["1 - out²"]),
        ("sub", [1.0, 2.0], ["1", "-1"]),
        ("mul", [1.0, 2.0], ["b", "a"]),
        ("div", [1.0, 2.0], ["1 / b", "-out / b"]),
        ("exp", [0.5], ["out"]),
        ("relu", [0.5], ["1 - [out ≤ 0]"]),
        ("pow", [2.0, 3.0], ["exponent · base^(exponent - 1)", "out · log(base)"]),
        ("sigmoid", [0.5], ["out · (1 - out)"]),
        ("leaky_relu", [-1.0, 0.1], ["slope", "x"]),
    ],
)
def test_formulas_read_as_one_writes_them(name, operands, texts):
    row = ops.TABLE[name]
    carriers = [FormulaText(row.forward(*operands), "out"), *map(FormulaText, operands, row.parameters)]
    found = [partial(*carriers) for partial in row.partials]
    assert [f.text() if isinstance(f, FormulaText) else show(f) for f in found] == texts


# The page as a file.


def test_the_page_is_one_file_that_asks_for_nothing(Value):
    page = stepper(worked_expression(Value))
    assert set(re.findall(r"https?://[^\s\"']+", page.html)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "default-src 'none'" in page.html
    assert not re.search(r"<(?:link|script|img)[^>]+(?:src|href)=(?!\"data:)", page.html)
    assert "How L is computed and differentiated" in repr(page)


def test_modules_become_one_classic_script():
    script = classic_script()
    assert not re.search(r"^\s*(?:import|export)\b", script, flags=re.MULTILINE)
    assert "</" not in re.sub(r"^\s*//.*", "", script, flags=re.MULTILINE)  # nothing that could end the script element
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", script, flags=re.MULTILINE)
    assert len(names) == len(set(names)), "modules share one scope there"
    assert SCRIPTS[-1] == "page"


def test_labels_cannot_leave_the_data():
    label = "</script><script>alert(1)</script><!--"
    page = stepper(chainrule.Value(1.0, label=label) * 2.0)
    assert label not in page.html
    text = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page.html, re.DOTALL)[1]
    assert json.loads(text)["nodes"][0]["name"] == label


def test_in_a_notebook_the_page_is_a_frame():
    page = stepper(chainrule.Value(1.0, label='"quoted" & <odd>') * 2.0)
    frame = page._repr_html_()
    assert frame.startswith("<div><iframe srcdoc=")
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == page.html


def test_what_needs_no_script_says_every_step():
    root = worked_expression(chainrule.Value)
    page = stepper(root)
    shown = [html.unescape(line) for line in re.findall(r"<code>(.*?)</code>", page.static)]
    forward, backward = explain(root)
    assert shown == [*forward, *backward]
    assert page._repr_html_().endswith(f"{page.static}</div></div>")
    assert re.search(r'<div id="stepper">(.*)</div>\n</main>', page.html)[1] == page.static
    assert "<odd>" not in stepper(chainrule.Value(1.0, label="<odd>") * 2.0).static


def test_save_writes_the_page_whole(tmp_path, monkeypatch):
    page = stepper(chainrule.Value(1.0, label="é") * 2.0)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        Page("other", "other").save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    assert os.listdir(tmp_path) == ["page.html"]
    with pytest.raises(FileNotFoundError, match=r"folder that does not exist: .*nowhere'; create it first"):
        page.save(tmp_path / "nowhere" / "page.html")


def test_open_shows_the_page_in_the_browser(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    page = Page("title", "<p>")
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    path = page.open()
    assert opened == [path.as_uri()]
    assert path.read_text() == "<p>"
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    with pytest.raises(
        RuntimeError, match=r"no browser could be started; the page is in '.*': open that file yourself"
    ):
        page.open()


def test_a_frozen_leaf_is_passed_by(Value):
    L = worked_expression(Value)
    leaf = L._operands[0]._operands[1]
    leaf.requires_grad = False
    description = describe(L)
    assert final_grads(description)["c"] == "0.0"
    L.backward()
    assert (leaf.grad, L._operands[0].grad) == (0.0, -2.0)


def test_half_a_character_in_a_label_does_not_keep_the_page_from_being_written(tmp_path):
    root = chainrule.Value(2.0, label="a\ud800") * 3.0
    root.label = "\udfff"
    stepper(root).save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    content = re.search(r'id="stepper-data">(.*?)</script>', text)[1]
    assert [node["name"] for node in json.loads(content)["nodes"]] == ["a\ud800", "3", "\udfff"]
