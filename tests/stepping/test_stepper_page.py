"""The stepper's page in a real browser, opened as a file: steps, keys, narration, looks, notebooks, other pages."""

import json
import math
import re
import time
from pathlib import Path

import pytest
from test_stepper import cube, final_grads, overwriting, worked_expression

import chainrule
from browser import PATIENCE, noted, stop_the_clock, watch
from chainrule import nn, stepper
from chainrule.stepping.page import page as make_page
from chainrule.stepping.steps import describe

WEB = Path(chainrule.__file__).parent / "stepping" / "web"


def diamond(Value):
    a = Value(2.0, label="a")
    b = a + 1
    c = a * 3
    b.label, c.label = "b", "c"
    d = b * c
    d.label = "d"
    return d


def square(Value):
    x = Value(3.0, label="x")
    y = x * x
    y.label = "y"
    return y


def neuron(Value):
    x1, x2 = Value(2.0, label="x1"), Value(0.0, label="x2")
    w1, w2 = Value(-3.0, label="w1"), Value(1.0, label="w2")
    b = Value(6.881373587019543, label="b")
    return (x1 * w1 + x2 * w2 + b).tanh()


def micrograd_readme(Value):
    a, b = Value(-4.0, label="a"), Value(2.0, label="b")
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    f = (c - d) ** 2
    return f / 2.0 + 10.0 / f


def overwritten(Value):
    x = Value(2.0, label="x")
    return cube(x, overwriting) + x * 10.0


def not_a_number(Value):
    return Value(0.0, label="x").log() * math.inf - math.inf


EXPRESSIONS = [worked_expression, diamond, square, neuron, micrograd_readme, overwritten, not_a_number]


@pytest.fixture(scope="module")
def offline(chromium):
    """A function that gives a window without a network. Pages keep nothing there, so that tests may share it."""
    contexts = {}

    def window(**settings):
        key = json.dumps(settings, sort_keys=True)
        if key not in contexts:
            contexts[key] = chromium.new_context(offline=True, **settings)
            contexts[key].set_default_timeout(PATIENCE)
        return contexts[key]

    yield window
    for context in contexts.values():
        context.close()


@pytest.fixture
def show(offline, open_page, tmp_path):
    """A function that saves the stepper of a Value and opens the file in a browser without a network.

    A page whose clock is stopped must be alone in its window: the clock is that of all pages there.
    """
    used, problems = [], []

    def show_one(root, alone=False, **settings):
        if alone:
            page = open_page(offline=True, **settings)
        else:
            used.append(context := offline(**settings))
            page = context.new_page()
            watch(page, problems)
        stepper(root).save(tmp_path / "stepper.html")
        page.goto((tmp_path / "stepper.html").as_uri())
        return page

    yield show_one
    found = noted(used, problems)
    for page in [page for context in used for page in context.pages]:
        page.close()
    assert found == [], "\n".join(found)


@pytest.fixture
def worked(show):
    return show(worked_expression(chainrule.Value), reduced_motion="reduce")


def position(page):
    return page.evaluate("document.querySelector('#stepper').stepper.position")


def steps(page):
    return page.evaluate("document.querySelector('#stepper').stepper.length")


def go_to(page, i):
    page.evaluate("i => document.querySelector('#stepper').stepper.goTo(i)", i)


def table(page):
    """The gradients in the table: exact, by name."""
    return dict(
        page.eval_on_selector_all(
            "tbody tr", "rows => rows.map(r => [r.cells[0].textContent, r.cells[3].dataset.exact])"
        )
    )


def at_every_step(page, check):
    """Whether a check, a function in JavaScript, holds at all positions."""
    return page.evaluate(
        """() => {
            const { stepper } = document.querySelector("#stepper");
            return Array.from(stepper.graph.steps, (_, i) => (stepper.goTo(i), CHECK())).every(Boolean);
        }""".replace("CHECK", f"({check})")
    )


def until(condition):
    """Wait for something that takes its time. (The page's policy forbids playwright's own way, which is `eval`.)"""
    deadline = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def text(page, selector):
    return page.locator(selector).text_content()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_stepping_gives_exactly_the_gradients_of_backward(show, Value, expression):
    root = expression(Value)
    page = show(root, reduced_motion="reduce")
    nodes = [node["name"] for node in describe(root)["nodes"]]
    for _ in range(steps(page) - 1):
        page.keyboard.press("ArrowRight")
    root.backward()
    values = sorted(graph(root), key=lambda node: node._serial)
    expected = {name: None if v._constant else repr(v.grad) for name, v in zip(nodes, values, strict=True)}
    assert table(page) == expected


def graph(root):
    found = {root}
    pending = [root]
    while pending:
        for operand in pending.pop()._operands:
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return found


def test_the_picture_shows_the_numbers_of_every_step(worked):
    description = describe(worked_expression(chainrule.Value))
    grads = [node["grad"]["text"] for node in description["nodes"]]
    computed = [node["kind"] != "result" for node in description["nodes"]]
    for step in description["steps"]:
        if step["kind"] == "forward":
            computed[step["node"]] = True
        if "after" in step:
            grads[step.get("to", step["node"])] = step["after"]["text"]
        data = [node["data"]["text"] if done else "" for node, done in zip(description["nodes"], computed, strict=True)]
        assert worked.locator(".cr-node .cr-data").all_text_contents() == data
        assert worked.locator(".cr-node .cr-grad").all_text_contents() == grads
        worked.keyboard.press("ArrowRight")


def test_the_chain_rule_is_written_out(worked):
    equations = []
    for i in range(steps(worked)):
        go_to(worked, i)
        equations.append(text(worked, ".cr-equation"))
    assert equations == [
        "a = 2,  b = -3,  c = 10,  f = -2",
        "e = a · b = 2 · (-3) = -6",
        "d = e + c = -6 + 10 = 4",
        "L = d · f = 4 · (-2) = -8",
        "L.grad = ∂L/∂L = 1",
        "d.grad += L.grad · ∂L/∂d = 1 · (-2) = -2",
        "f.grad += L.grad · ∂L/∂f = 1 · 4 = 4",
        "e.grad += d.grad · ∂d/∂e = -2 · 1 = -2",
        "c.grad += d.grad · ∂d/∂c = -2 · 1 = -2",
        "a.grad += e.grad · ∂e/∂a = -2 · (-3) = 6",
        "b.grad += e.grad · ∂e/∂b = -2 · 2 = -4",
        "a.grad = 6,  b.grad = -4,  c.grad = -2,  f.grad = 4",
    ]
    go_to(worked, 9)
    assert worked.locator(".cr-details code").all_text_contents() == ["∂e/∂a = b = -3", "a.grad = 0 + 6 = 6"]


def test_accumulation_is_shown_as_it_happens(show):
    page = show(diamond(chainrule.Value), reduced_motion="reduce")
    seen = []
    for i in range(steps(page)):
        go_to(page, i)
        if "cr-target" in (page.locator(".cr-node").first.get_attribute("class") or ""):
            seen.append((text(page, ".cr-factor text"), text(page, ".cr-outcome text"), text(page, ".cr-details")))
    assert [(factor, outcome) for factor, outcome, _ in seen] == [("× 3", "0 + 9 = 9"), ("× 1", "9 + 6 = 15")]
    assert "the first of 2 contributions" in seen[0][2]
    assert "the second of 2 contributions: += keeps the 9 that came before" in seen[1][2]


def test_two_edges_to_one_operand_are_two_steps(show):
    page = show(square(chainrule.Value), reduced_motion="reduce")
    paths = page.eval_on_selector_all(".cr-edge", "lines => lines.map(line => line.getAttribute('d'))")
    assert len(set(paths)) == 2
    go_to(page, 4)
    assert text(page, ".cr-outcome text") == "3 + 3 = 6"
    assert "the second of its 2 uses there" in text(page, ".cr-details")


def test_a_contribution_travels_and_is_then_added(show):
    page = show(worked_expression(chainrule.Value), alone=True, reduced_motion="no-preference")
    stop_the_clock(page)
    go_to(page, 8)
    page.keyboard.press("ArrowRight")  # e passes on to a
    token = page.locator(".cr-token")
    seen = []
    for _ in range(6):
        page.clock.run_for(200)
        seen.append((text(page, ".cr-node[data-node='0'] .cr-grad"), token.is_visible() and token.text_content()))
    assert seen == [("0", "-2"), ("0", "-2"), ("0", "6"), ("0", "6"), ("6", False), ("6", False)]
    assert text(page, ".cr-node[data-node='0'] .cr-grad") == "6"
    assert text(page, ".cr-outcome text") == "0 + 6 = 6"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")  # in the middle of the way: nothing is left behind
    assert table(page)["b"] == "0.0"
    assert page.locator(".cr-token").get_attribute("visibility") == "hidden"


def test_without_motion_nothing_moves(worked):
    go_to(worked, 8)
    worked.keyboard.press("ArrowRight")
    assert worked.evaluate("document.getAnimations().length") == 0
    assert worked.locator(".cr-token").get_attribute("visibility") == "hidden"
    assert text(worked, ".cr-node[data-node='0'] .cr-grad") == "6"


def test_a_backward_written_by_hand_shows_what_it_did(show):
    page = show(overwritten(chainrule.Value), reduced_motion="reduce")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert text(page, ".cr-title") == "out runs its own _backward"
    assert text(page, ".cr-outcome text") == "10 → 12"
    assert "met out.grad = 1 and changed x.grad by 2." in text(page, ".cr-details")  # 12 would be right


def test_gradients_that_nobody_zeroed(open_page, tmp_path):
    y = square(chainrule.Value)
    y.backward()
    stepper(y, keep_grads=True).save(tmp_path / "kept.html")
    page = open_page(reduced_motion="reduce")
    page.goto((tmp_path / "kept.html").as_uri())
    go_to(page, 2)
    assert "Leaves start from the gradients they hold" in text(page, ".cr-details")
    page.keyboard.press("End")
    assert table(page) == {"x": "12.0", "y": "1.0"}
    assert page.locator("tbody .cr-reading").all_text_contents() == ["", ""]  # 12 is not how fast y rises


# Keys and controls.


def test_keys(worked):
    press = worked.keyboard.press
    keys = ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowLeft"]
    for key, expected in zip(keys, [1, 2, 1, 11, 11, 0, 0], strict=True):
        press(key)
        assert position(worked) == expected
    go_to(worked, 5)  # the first step of L's turn
    for key, expected in [("Shift+ArrowRight", 7), ("Shift+ArrowRight", 9), ("Shift+ArrowLeft", 7)]:
        press(key)
        assert position(worked) == expected
    go_to(worked, 8)
    press("Shift+ArrowLeft")
    assert position(worked) == 7


def test_space_plays_and_pauses(show):
    page = show(square(chainrule.Value), alone=True, reduced_motion="reduce")
    stop_the_clock(page)
    page.keyboard.press("Space")
    assert page.get_by_role("button", name="Pause").is_visible()
    page.clock.run_for(1300)
    assert position(page) == 1
    page.keyboard.press("Space")
    page.clock.run_for(60_000)
    assert position(page) == 1
    page.keyboard.press("Space")
    page.clock.run_for(60_000)
    assert position(page) == steps(page) - 1
    assert page.get_by_role("button", name="Play").is_visible()
    page.keyboard.press("Space")  # from the end it starts over
    assert position(page) == 0
    page.keyboard.press("ArrowRight")  # stepping by hand stops it
    page.clock.run_for(60_000)
    assert position(page) == 1


def test_speed(show):
    page = show(square(chainrule.Value), alone=True, reduced_motion="reduce")
    stop_the_clock(page)
    page.get_by_label("Speed").select_option("4")
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(301)
    assert position(page) == 1


def test_buttons(worked):
    for name, expected in [("Step forward", 1), ("Last step", 11), ("Step back", 10), ("First step", 0)]:
        worked.get_by_role("button", name=name, exact=True).click()
        assert position(worked) == expected
    assert worked.get_by_role("button", name="Step back").get_attribute("aria-disabled") == "true"


def test_everything_is_reached_with_the_tab_key_and_used_without_a_pointer(worked):
    reached = []
    for _ in range(12):
        worked.keyboard.press("Tab")
        reached.append(worked.evaluate("(e => e.getAttribute('aria-label') ?? e.textContent)(document.activeElement)"))
    wanted = [
        "Zoom out",
        "Zoom in",
        "L, =",
        "First step",
        "Step back",
        "Play",
        "Step forward",
        "Last step",
        "Step",
        "Speed",
        "All numbers",
    ]
    assert [name.startswith(want) for name, want in zip(reached, wanted, strict=False)] == [True] * len(wanted), reached
    worked.get_by_role("button", name="Step forward").focus()
    worked.keyboard.press("Enter")
    worked.keyboard.press("Space")  # presses the button, does not play
    assert position(worked) == 2
    worked.get_by_role("slider").focus()
    worked.keyboard.press("ArrowRight")
    assert position(worked) == 3
    worked.keyboard.press("End")
    assert position(worked) == 11
    worked.keyboard.press("PageDown")
    assert position(worked) < 11
    worked.locator("summary").focus()
    worked.keyboard.press("Enter")
    assert worked.get_by_role("table").is_visible()


def test_scrubbing(worked):
    slider = worked.get_by_role("slider", name="Step")
    slider.fill("7")
    assert position(worked) == 7
    assert slider.get_attribute("aria-valuetext") == "Step 7 of 11: d passes its gradient to e"
    box = slider.bounding_box()
    worked.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    assert position(worked) == 11


# For ears and for the pointer.


def test_every_step_is_told_to_screen_readers(worked):
    live = worked.locator("[aria-live=polite]")
    go_to(worked, 7)
    assert live.text_content() == (
        "Backward. d passes its gradient to e. The gradient of d, -2, times the local derivative, 1, is -2. "
        "The gradient of e goes from 0 to -2."
    )
    spoken = set()
    for i in range(steps(worked)):
        go_to(worked, i)
        spoken.add(live.text_content())
    assert len(spoken) == steps(worked)


def test_nodes_are_walked_with_up_and_down(worked):
    go_to(worked, 11)
    worked.locator(".cr-root").focus()
    worked.keyboard.press("ArrowUp")
    label = "document.activeElement.getAttribute('aria-label')"
    assert worked.evaluate(label) == "d, = e + c, data 4, grad -2, complete"
    for _ in range(9):
        worked.keyboard.press("ArrowUp")
    assert worked.evaluate(label) == "a, leaf, data 2, grad 6, complete"
    assert text(worked, ".cr-inspector .cr-what") == "a, a leaf"
    assert worked.locator(".cr-node[tabindex='0']").count() == 1
    worked.keyboard.press("ArrowLeft")  # stepping goes on from there
    assert position(worked) == 10
    worked.keyboard.press("Escape")
    assert text(worked, ".cr-inspector").startswith("Point at a node")


def test_details_on_hover(worked):
    go_to(worked, 11)
    details = worked.locator(".cr-inspector")
    worked.locator(".cr-node[data-node='0']").hover()
    assert "Raise a a little and L rises 6 times as fast." in details.text_content()
    assert "from e-2 · (-3) = 6" in details.text_content()
    worked.locator(".cr-node[data-node='1']").hover()
    assert "Raise b a little and L falls 4 times as fast." in details.text_content()
    worked.mouse.move(2, 2)
    go_to(worked, 9)
    assert "grad so far0.0" in details.text_content()
    assert worked.locator(".cr-node[data-node='0']").get_attribute("aria-describedby") == details.get_attribute("id")


def test_the_table_says_what_the_picture_says(worked):
    go_to(worked, 9)
    worked.locator("summary").click()
    rows = worked.eval_on_selector_all("tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.textContent))")
    assert rows[0] == ["a", "given", "2", "6", "raise a a little and L rises 6 times as fast"]
    assert rows[1] == ["b", "given", "-3", "0", ""]
    assert rows[4] == ["e", "a · b", "-6", "-2", "raise e a little and L falls 2 times as fast"]
    assert worked.locator("tr[aria-current=step] th").text_content() == "e"


def test_controls_and_nodes_have_names(worked):
    nameless = """() => [...document.querySelectorAll('button, input, select, [tabindex]')]
        .filter(e => !(e.getAttribute('aria-label') ?? e.textContent).trim()).map(e => e.outerHTML)"""
    assert worked.evaluate(nameless) == []
    assert worked.evaluate("document.documentElement.lang") == "en"
    assert worked.get_by_role("heading", level=1).text_content() == worked.title()
    ids = worked.eval_on_selector_all("[id]", "elements => elements.map(e => e.id)")
    assert len(ids) == len(set(ids))


# Looks.


TEXT_AND_GROUND = [
    (ink, ground) for ink in ("ink", "muted", "data", "grad") for ground in ("ground", "stage", "card")
] + [
    ("grad", "grad-soft"),
    ("muted", "grad-soft"),
    ("data", "data-soft"),
    ("card", "grad"),
    ("ground", "ink"),
    ("wrong", "stage"),
]


def contrast(one, other):
    """WCAG's contrast ratio of two colours."""

    def luminance(colour):
        channels = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(show, scheme):
    page = show(square(chainrule.Value), color_scheme=scheme)
    colours = page.evaluate(
        """names => Object.fromEntries(names.map(name => {
            const probe = document.createElement('i');
            probe.style.color = `var(--cr-${name})`;
            document.querySelector('.cr-stepper').append(probe);
            return [name, getComputedStyle(probe).color.match(/\\d+/g).map(Number)];
        }))""",
        sorted({name for pair in TEXT_AND_GROUND for name in pair}),
    )
    for ink, ground in TEXT_AND_GROUND:
        assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    assert (sum(colours["ground"]) > sum(colours["ink"])) == (scheme == "light")


@pytest.mark.parametrize("expression", [worked_expression, micrograd_readme])
def test_a_phone_shows_it_without_sideways_scrolling(show, expression):
    page = show(expression(chainrule.Value), viewport={"width": 360, "height": 740}, reduced_motion="reduce")
    assert at_every_step(page, "() => document.documentElement.scrollWidth <= innerWidth")
    for box in [button.bounding_box() for button in page.get_by_role("button").all()]:
        assert min(box["width"], box["height"]) >= 24


def overlapping(boxes):
    return [
        (i, j)
        for i, a in enumerate(boxes)
        for j, b in enumerate(boxes[:i])
        if a["left"] < b["right"] and b["left"] < a["right"] and a["top"] < b["bottom"] and b["top"] < a["bottom"]
    ]


def small_network(Value):
    model = nn.MLP(3, [4, 2, 1], activation="tanh", rng=3)
    return (model([1.0, 2.0, -1.0]) - 1.0) ** 2


def largest(Value):
    leaves = [Value(0.01 * i) for i in range(60)]
    row = leaves
    while len(row) > 1:
        row = [a * b + a for a, b in zip(row, row[1:] + row[:1], strict=True)][: len(row) // 2]
    return row[0]


@pytest.mark.parametrize("expression", [*EXPRESSIONS, small_network, largest])
def test_nodes_do_not_overlap_and_edges_run_from_left_to_right(show, expression):
    root = expression(chainrule.Value)
    page = show(root)
    boxes = page.eval_on_selector_all(".cr-ground", "cards => cards.map(c => c.getBoundingClientRect().toJSON())")
    assert len(boxes) == len(graph(root))
    assert overlapping(boxes) == []
    nodes = describe(root)["nodes"]
    assert all(
        boxes[operand]["right"] < boxes[i]["left"] for i, node in enumerate(nodes) for operand in node["operands"]
    )


@pytest.mark.parametrize("expression", [micrograd_readme, small_network])
def test_what_happens_is_always_in_view(show, expression):
    page = show(expression(chainrule.Value), reduced_motion="reduce", viewport={"width": 900, "height": 700})
    inside = """() => {
        const view = document.querySelector('.cr-stage').getBoundingClientRect();
        const node = document.querySelector('.cr-target') ?? document.querySelector('.cr-active');
        if (node === null) return true;
        const { left, right, top, bottom } = node.getBoundingClientRect();
        return left >= view.left - 1 && right <= view.right + 1 && top >= view.top - 1 && bottom <= view.bottom + 1;
    }"""
    assert at_every_step(page, inside)


# Labels are the user's.


@pytest.mark.parametrize(
    "label",
    [
        "</script><script>window.hacked = 1</script>",
        "<img src=x onerror='window.hacked = 1'>",
        "${window.hacked = 1}",
        "a" * 500,
    ],
)
def test_labels_stay_text(show, label):
    x = chainrule.Value(2.0, label=label)
    page = show(x * x, reduced_motion="reduce")
    page.keyboard.press("End")
    page.locator(".cr-node").first.hover()
    assert page.evaluate("window.hacked") is None
    assert page.locator("tbody th").first.text_content() == label
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# Notebooks, and other pages.


HEAD = "<!doctype html><meta charset=utf-8><link rel=icon href=data:,>"


def test_in_a_notebook_what_needs_no_script_is_hidden(browser_page, serve, tmp_path):
    (tmp_path / "notebook.html").write_text(HEAD + stepper(diamond(chainrule.Value))._repr_html_())
    browser_page.goto(f"{serve(tmp_path)}/notebook.html")
    browser_page.frame_locator("iframe").get_by_role("button", name="Last step").click()
    assert browser_page.locator(".chainrule-static").is_hidden()
    assert browser_page.locator("iframe").bounding_box()["height"] > 300


@pytest.mark.parametrize("left_out", ["scripts", "frames"])
def test_a_viewer_without_scripts_shows_the_steps_once(open_page, serve, tmp_path, left_out):
    page = stepper(diamond(chainrule.Value))
    text = page._repr_html_()
    if left_out == "frames":  # as GitHub does, and JupyterLab with a notebook that is not trusted
        text = re.sub("<iframe.*?</iframe>", "", text, flags=re.DOTALL)
    (tmp_path / "notebook.html").write_text(HEAD + text)
    (tmp_path / "page.html").write_text(page.html)
    address, view = serve(tmp_path), open_page(java_script_enabled=left_out == "frames")
    view.goto(f"{address}/notebook.html")
    assert view.get_by_text("a.grad += c.grad · 3 = 3 · 3 = 9", exact=False).is_visible()
    assert [frame.bounding_box()["height"] for frame in view.locator("iframe").all()] in ([], [0])
    if left_out == "scripts":
        view.goto(f"{address}/page.html")  # the saved file, too
        assert view.get_by_text("a.grad += c.grad · 3 = 3 · 3 = 9", exact=False).is_visible()


def test_two_in_a_notebook(browser_page, serve, tmp_path):
    one, two = stepper(worked_expression(chainrule.Value)), stepper(square(chainrule.Value))
    head = "<!doctype html><link rel=icon href=data:,><body data-jp-theme-light=false>"
    (tmp_path / "notebook.html").write_text(head + one._repr_html_() + two._repr_html_())
    address = serve(tmp_path)
    browser_page.goto(f"{address}/notebook.html")
    frames = browser_page.frames[1:]
    assert len(frames) == 2
    for frame in frames:
        frame.wait_for_selector(".cr-graph")
        assert frame.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
        until(lambda frame=frame: frame.evaluate("document.scrollingElement.scrollHeight <= innerHeight"))
    frames[0].locator(".cr-play").focus()
    browser_page.keyboard.press("ArrowRight")
    assert [position(frame) for frame in frames] == [1, 0]
    browser_page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    until(lambda: frames[0].evaluate("getComputedStyle(document.documentElement).colorScheme") == "light")


HOST = """<!doctype html><link rel=icon href=data:,><link rel=stylesheet href=stepper.css>
<div id=one></div><div id=two></div><script type=module>
import { mountStepper } from "./stepper.js";
const [one, two] = DESCRIPTIONS;
window.steps = [];
window.one = mountStepper(document.querySelector("#one"), one);
window.two = mountStepper(document.querySelector("#two"), two, { position: 2 });
window.one.addEventListener("step", (event) => window.steps.push(event.detail.position));
</script>"""


def test_a_site_mounts_several_as_modules(open_page, serve, tmp_path):
    page = open_page(reduced_motion="reduce")
    for file in WEB.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    descriptions = [describe(worked_expression(chainrule.Value)), describe(square(chainrule.Value))]
    (tmp_path / "index.html").write_text(HOST.replace("DESCRIPTIONS", json.dumps(descriptions)))
    address = serve(tmp_path)
    page.goto(f"{address}/index.html")
    page.wait_for_function("window.two")
    assert page.evaluate("[one.position, two.position]") == [0, 2]
    page.locator("#one .cr-play").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert page.evaluate("[one.position, two.position, steps]") == [11, 2, [1, 11]]
    page.evaluate("one.highlight('e', 'should be -2')")
    marked = page.locator("#one .cr-marked")
    assert marked.get_attribute("aria-label") == "e, = a · b, data -6, grad -2, complete, should be -2"
    page.evaluate("one.clearHighlights()")
    assert marked.count() == 0
    assert "no node" in page.evaluate("(() => { try { one.highlight('z') } catch (e) { return e.message } })()")
    grads = final_grads(descriptions[0])
    assert page.evaluate("one.grads()") == [grads[node["name"]] for node in descriptions[0]["nodes"]]
    page.evaluate("one.destroy()")
    assert page.locator("#one > *").count() == 0
    page.keyboard.press("ArrowRight")
    assert page.evaluate("[one.position, two.position]") == [11, 2]


# The watch itself.


@pytest.mark.parametrize(
    "script", ["console.error('planted')", "throw new Error('planted')", "fetch('http://example.invalid/planted')"]
)
def test_a_planted_fault_is_noticed(chromium, script):
    context = chromium.new_context(offline=True)
    page = context.new_page()
    problems = []
    watch(page, problems)
    page.set_content("<p>")
    page.evaluate("code => setTimeout(code)", script)
    deadline = time.monotonic() + PATIENCE / 1000
    while not problems and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    context.close()
    assert any("planted" in problem for problem in problems)


def test_the_policy_stops_requests(open_page, chromium, tmp_path):
    page = make_page("probe", "stepper", describe(square(chainrule.Value)))
    (tmp_path / "page.html").write_text(page.html)
    context = chromium.new_context()
    probe = context.new_page()
    requests = []
    probe.on("request", lambda request: requests.append(request.url))
    probe.goto((tmp_path / "page.html").as_uri())
    outcome = probe.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.name)")
    context.close()
    assert outcome == "TypeError"
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
