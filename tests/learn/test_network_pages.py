"""Drawn networks in a real browser: lines, neurons and formulas show the numbers that Python computes."""

import json
import re
from itertools import pairwise

import pytest

from chainrule.learn.demonstrations import Playground, Training, Untrained
from learner import COURSE, OWN, PROGRAM
from lesson_pages import go, have_passed, until

NETWORK = PROGRAM | {"template": COURSE.templates["Network"]}
WIDEST = 6


def number(text):
    return float(text.replace("−", "-"))


def numbers(text):
    return [number(each) for each in re.findall(r"(?<![\w.])[−-]?\d+\.?\d*(?:e[−-]?\d+)?", text)]


def lines_of(widget):
    script = "lines => lines.map(line => [line.classList.contains('below'), Number(line.getAttribute('stroke-width'))])"
    return widget.locator(".wiring line").evaluate_all(script)


def neurons_of(widget):
    return [number(text) for text in widget.locator(".neuron").all_text_contents()]


def widest_of(widget):
    said = widget.locator(".scale").text_content()
    return number(re.search(r"The widest line is a [\w/]+ of size ([\d.e−]+?)[.:]? ", said)[1])


def check_lines(widget, expected):
    """That each line has the sign of its number, and its share of the largest one's width."""
    found, most = lines_of(widget), max(map(abs, expected))
    assert [below for below, _ in found] == [each < 0 for each in expected]
    widths = [max(0.4, WIDEST * abs(each) / most) for each in expected]
    assert [width for _, width in found] == pytest.approx(widths, abs=6e-3)
    assert widest_of(widget) == pytest.approx(most, rel=6e-3)


def check_picture(widget, network, gradients=False):
    """That a picture shows the numbers of a network, as Python has read them."""
    on_lines, in_neuron = ("weightGradients", "gradient") if gradients else ("weights", "output")
    layers = network["layers"]
    check_lines(widget, [each for layer in layers for neuron in layer for each in neuron[on_lines]])
    inputs = [each[gradients] for each in network["inputs"]]
    expected = inputs + [neuron[in_neuron] for layer in layers for neuron in layer]
    assert neurons_of(widget) == pytest.approx(expected, abs=6e-3)


@pytest.fixture
def widget(page, site):
    """The network of lesson 7, drawn, all of it the learner's own."""
    have_passed(page, OWN)
    go(page, site, "07-network")
    widget = page.locator("[data-widget=network]")
    widget.locator(".neuron").first.wait_for()
    return widget


def test_the_picture_is_the_learners_network(page, widget):
    own = Untrained({"program": NETWORK})
    check_picture(widget, own.state()["network"])
    widget.get_by_role("radio", name="gradients").check()
    check_picture(widget, own.state()["network"], gradients=True)
    assert "L is the network's output, " in widget.locator(".scale").text_content()
    whose = "Every line that computes here is yours: Value, Neuron, Layer and MLP."
    assert widget.locator(".whose").text_content().strip() == whose


def test_inputs_and_the_start_can_be_changed(page, widget):
    widget.get_by_role("slider", name="input 2").fill("-1.5")
    until(page, "w => w.querySelectorAll('.neuron')[1].textContent === '−1.50'", widget.element_handle())
    check_picture(widget, Untrained({"program": NETWORK, "inputs": [2, -1.5, -1]}).state()["network"])
    before = widget.locator(".scale").text_content()
    widget.get_by_role("slider", name="random start").fill("3")
    until(page, "([w, before]) => w.querySelector('.scale').textContent !== before", [widget.element_handle(), before])
    check_picture(widget, Untrained({"program": NETWORK, "inputs": [2, -1.5, -1], "seed": 3}).state()["network"])


def test_gradients_that_are_all_zero_have_no_widest_line(page, widget):
    for k in (1, 2, 3):
        widget.get_by_role("slider", name=f"input {k}").fill("0")
    have_passed(page, OWN | {"neuron": OWN["neuron"].replace("random.uniform(-1, 1)", "0.0")})
    widget.get_by_text("Every weight is 0. In each neuron is its output.").wait_for()


def test_pointing_at_a_neuron_shows_its_formula(page, widget):
    network = Untrained({"program": NETWORK}).state()["network"]
    widget.locator(".neuron").nth(4).hover()
    name, formula, gradients = widget.locator(".numbers p").all_text_contents()
    neuron = network["layers"][0][1]
    assert name.startswith("Neuron 2 of layer 1")
    *terms, total, output = numbers(formula.replace("- ", "-").replace("− ", "−"))
    assert terms == pytest.approx([*sum(zip(neuron["weights"], [2, 3, -1], strict=True), ()), neuron["bias"]], rel=6e-3)
    assert (total, output) == pytest.approx((neuron["sum"], neuron["output"]), rel=6e-3)
    expected = [neuron["gradient"], neuron["biasGradient"], *neuron["weightGradients"]]
    assert numbers(gradients) == pytest.approx(expected, rel=6e-3)
    assert widget.locator("line.lit").count() == 3


def test_pointing_at_a_line_shows_its_weight(page, widget):
    neuron = Untrained({"program": NETWORK}).state()["network"]["layers"][2][0]
    box = widget.locator(".neurons").bounding_box()
    halfway = {"x": 0.75 * box["width"], "y": (0.125 + 0.5) / 2 * box["height"]}
    widget.locator(".neurons").hover(position=halfway)
    said = widget.locator(".numbers p").all_text_contents()
    assert said[0].startswith("From neuron 1 of layer 2 to the output neuron: weight ")
    assert number(said[0].split()[-1]) == pytest.approx(neuron["weights"][0], rel=6e-3)
    assert numbers(said[2])[-1] == pytest.approx(neuron["weightGradients"][0], rel=6e-3)


def test_arrow_keys_go_along_the_lines(page, widget):
    widget.locator(".neurons").focus()
    heard = []
    for key in ("Left", "Down", "Left", "Up", "Left", "Left", "Right", "Down", "Right"):
        page.keyboard.press(f"Arrow{key}")
        heard.append(widget.locator("[role=status].unseen").text_content().split(":")[0].split(" is ")[0])
    assert heard == [
        "From neuron 1 of layer 2 to the output neuron",
        "From neuron 2 of layer 2 to the output neuron",
        "Neuron 2 of layer 2",
        "Neuron 1 of layer 2",
        "From neuron 1 of layer 1 to neuron 1 of layer 2",
        "Neuron 1 of layer 1",
        "From neuron 1 of layer 1 to neuron 1 of layer 2",
        "From neuron 1 of layer 1 to neuron 2 of layer 2",
        "Neuron 2 of layer 2",
    ]


def test_code_that_passes_is_drawn_at_once(page, widget):
    have_passed(page, {})
    until(page, "w => w.querySelector('.whose').textContent.startsWith('Lent')", widget.element_handle())
    halves = OWN["neuron"].replace("random.uniform(-1, 1)", "0.5")
    have_passed(page, OWN | {"neuron": halves})
    until(page, "w => w.querySelector('.scale').textContent.includes('size 0.5.')", widget.element_handle())
    assert {width for _, width in lines_of(widget)} == {WIDEST}


def test_a_network_of_another_shape_is_not_drawn(page, widget):
    doubled = OWN["mlp"].replace("return answers[0]", "return answers[0] * 2")
    have_passed(page, OWN | {"mlp": doubled})
    widget.get_by_text("it cannot be drawn, because it does more than to hand").wait_for()
    assert not widget.locator(".neuron").count()
    have_passed(page, OWN)
    widget.locator(".neuron").first.wait_for()


def test_a_network_is_drawn_while_it_trains(page, site):
    have_passed(page, OWN)
    go(page, site, "08-training")
    widget = page.locator("[data-widget=training]").first
    widget.locator(".neuron").first.wait_for()
    own = Training({"program": PROGRAM, "hidden": [4, 4]})
    check_picture(widget, own.state()["network"])
    for steps in (1, 2):
        widget.get_by_role("button", name="One step").click()
        until(
            page, f"w => w.querySelector('.chart').ariaLabel.includes('In step {steps - 1} ')", widget.element_handle()
        )
        own.step()
        check_picture(widget, own.state()["network"])
    widget.get_by_role("radio", name="gradients").check()
    row = widget.locator("tbody tr").nth(2)
    row.locator("td").last.click()
    row.locator("[aria-pressed=true]").wait_for()
    own.adjust({"example": 2})
    check_picture(widget, own.state()["network"], gradients=True)
    assert "L is the loss of all examples, " in widget.locator(".scale").text_content()
    gradients = widget.locator(".numbers p").last.text_content()
    assert re.fullmatch(r"dL/doutput = \S+ for this example, dL/dbias = .* for all examples together", gradients)
    widget.get_by_role("radio", name="weights").check()
    assert neurons_of(widget)[-1] == pytest.approx(number(row.locator("td").last.text_content()), abs=6e-3)


def test_what_is_written_on_the_page_trains(page, site):
    """The network is drawn before one begins, and still the program is the one that was written last."""
    go(page, site, "08-training")
    widget = page.locator("[data-widget=training]").first
    widget.locator(".neuron").first.wait_for()
    have_passed(page, {"loss": OWN["loss"].replace("return total", "return total * 2")})
    widget.get_by_role("button", name="One step").click()
    until(page, "w => w.querySelector('.chart').ariaLabel.includes('In step 0 ')", widget.element_handle())
    said = float(re.search(r"it is ([\d.e-]+)", widget.locator(".chart").get_attribute("aria-label"))[1])
    lent = Training({"program": PROGRAM | {"own": {}}, "hidden": [4, 4]})
    lent.step()
    assert said == pytest.approx(2 * lent.run.losses[0], rel=1e-4)


def test_the_playgrounds_lines_show_gradients(page, site):
    have_passed(page, OWN)
    go(page, site, "about")
    go(page, site, "playground?neurons=3&layers=1")
    playground = page.locator(".playground")
    until(page, "document.querySelector('.playground').dataset.steps === '0'")
    playground.get_by_role("radio", name="gradients").check()
    playground.get_by_text("There are no gradients yet").wait_for()
    assert {width for _, width in lines_of(playground)} == {0.4}
    playground.get_by_role("button", name="One step").click()
    until(page, "document.querySelector('.playground').dataset.steps === '1'")
    own = Playground({"program": PROGRAM, "hidden": [3], "lr": 0.01})
    own.advance(1, 60.0)
    check_lines(playground, [each for layer in own.state()["gradients"] for neuron in layer for each in neuron[:-1]])


def test_many_neurons_fit_on_a_phone(open_page, site):
    page = open_page(viewport={"width": 390, "height": 800})

    def wider(route):
        answer = route.fetch()
        course = answer.json()
        for block in (block for lesson in course["lessons"] for block in lesson["blocks"]):
            if block.get("name") == "network":
                block["attributes"]["hidden"] = "16,16"
        route.fulfill(response=answer, body=json.dumps(course))

    page.route("**/course.json", wider)
    page.goto(f"{site}#/07-network")
    widget = page.locator("[data-widget=network]")
    widget.locator(".neuron").first.wait_for()
    assert widget.locator(".wiring line").count() == 3 * 16 + 16 * 16 + 16
    boxes = [each.bounding_box() for each in widget.locator(".neuron").all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    column = sorted((box for box in boxes if box["x"] == boxes[3]["x"]), key=lambda box: box["y"])
    assert len(column) == 16
    assert all(a["y"] + a["height"] <= b["y"] for a, b in pairwise(column))
    assert widget.locator(".neuron").evaluate_all("all => all.every(e => e.scrollWidth <= e.clientWidth)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
