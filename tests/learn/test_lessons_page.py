"""The lessons in a real browser: every exercise, question and widget; endless code; progress; access for all.

The tests are made from the course itself, so they grow with it. Python in a page takes seconds to load: tests of the
course share one page. Tests of what may break a page share another one, or open their own.
"""

import json
import re
import textwrap
import threading
import time
from contextlib import contextmanager

import pytest

from browser import stop_the_clock
from chainrule.learn.course import Exercise, Quiz
from chainrule.learn.server import make_server, site_folder
from learner import OWN
from lesson_pages import (
    COURSE,
    EXERCISES,
    PATIENCE,
    PLACES,
    as_if_new,
    check,
    exercise_called,
    go,
    have_passed,
    lasting_page,
    open_exercise,
    paste_code,
    serious_violations,
    tab_of,
    text_of,
    type_code,
    until,
    wait_for_python,
    without_python,
)
from lesson_texts import DOUBLE

QUIZZES = [(lesson.id, block) for lesson in COURSE.lessons for block in lesson.blocks if isinstance(block, Quiz)]


def bare(text):
    """Text without the marks of Markdown, and without spaces."""
    return re.sub(r"[`*\s]", "", text)


# The course.


@pytest.mark.parametrize("name", ["add", "backward"])
def test_the_solution_typed_by_keyboard_passes(page, site, name):
    exercise = exercise_called(name)
    body = open_exercise(page, site, exercise)
    type_code(page, exercise.solution)
    assert text_of(body) == "\n".join(line.rstrip() for line in exercise.solution.splitlines())
    assert check(page, body) == "right"


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_the_solution_passes_and_authored_wrong_answers_get_their_message(page, site, exercise: Exercise):
    """Two wrong answers of each exercise: all of them get their message in test_grading.py, from the same code."""
    body = open_exercise(page, site, exercise)
    paste_code(page, exercise.solution)
    assert check(page, body) == "right"
    assert body.locator(".rows tr.wrong").count() == 0
    assert body.locator(".cr-marked").count() == 0
    for wrong in dict.fromkeys((exercise.wrong[0], exercise.wrong[-1])) if exercise.wrong else ():
        paste_code(page, wrong.code)
        assert check(page, body) == "wrong", wrong.code
        shown = bare(body.locator(".message").text_content())
        before_math, dollar, _ = wrong.message.partition("$")
        assert shown.startswith(bare(before_math)) if dollar else shown == bare(wrong.message)
        page.keyboard.press("Escape")


@pytest.mark.parametrize(("lesson", "quiz"), QUIZZES, ids=[quiz.name for _, quiz in QUIZZES])
def test_every_choice_is_explained(page, site, lesson, quiz):
    go(page, site, lesson)
    view = page.locator(f"[data-quiz='{quiz.name}']")
    buttons = view.locator(".choice").all()
    assert len(buttons) == len(quiz.choices)
    for choice, button, explanation in zip(quiz.choices, buttons, view.locator(".explanation").all(), strict=True):
        assert not explanation.is_visible()
        button.focus()
        page.keyboard.press("Enter")
        assert explanation.is_visible()
        words = explanation.text_content()
        assert words.startswith("Right" if choice.right else "Not this one. ")
        assert words.count("Right") <= 1
        assert button.get_attribute("data-outcome") == ("right" if choice.right else "wrong")


@pytest.mark.parametrize("place", PLACES)
def test_every_page_opens_and_its_live_parts_come_alive(page, site, place):
    go(page, site, place)
    assert page.locator("h1").count() == 1
    for part in page.locator(".stepper-block, .order-block, .predict").all():
        part.locator(".cr-graph").first.wait_for()
    assert page.locator(".widget p.error").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# Feedback.


def test_a_wrong_node_lights_up_in_the_learners_own_graph(page, site):
    exercise = exercise_called("add")
    body = open_exercise(page, site, exercise)
    paste_code(page, "def _backward():\n    self.grad += out.grad")
    assert check(page, body) == "wrong"
    marked = body.locator(".cr-marked")
    assert marked.count() >= 1
    assert "expected 1" in marked.first.get_attribute("aria-label")


def test_errors_point_at_the_learners_line(page, site):
    body = open_exercise(page, site, exercise_called("add"))
    paste_code(page, "def _backward():\n    self.grad += out.grad\n    other.grad += = 1")
    assert check(page, body) == "wrong"
    assert "Line 3" in body.locator(".error").text_content()
    assert body.locator(".cm-wrong-line").text_content() == "    other.grad += = 1"
    paste_code(page, "def _backward():\n    self.grad += out.gradd")
    assert check(page, body) == "wrong"
    assert "Line 2" in body.locator(".error").text_content()
    assert "Did you mean grad?" in body.locator(".error").text_content()
    assert body.locator(".error code").text_content() == "grad"


def test_printed_text_is_shown_and_cut(page, site):
    exercise = exercise_called("add")
    body = open_exercise(page, site, exercise)
    paste_code(page, exercise.solution + "\nprint('hello', 'x' * 100_000)")
    assert check(page, body) == "right"
    output = body.locator(".output pre").text_content()
    assert output.startswith("hello xxx")
    assert len(output) < 20_000


def test_the_full_class_shows_the_slot(page, site):
    body = open_exercise(page, site, exercise_called("add"))
    paste_code(page, "def _backward():\n    marker = 1")
    body.get_by_role("button", name="Show the full class").click()
    slot = body.locator(".full-class .cm-slot-line").all_text_contents()
    assert [line.strip() for line in slot] == ["def _backward():", "marker = 1"]
    assert "class Value" in body.locator(".full-class").text_content()


def test_the_ladder_goes_from_hint_to_puzzle_to_solution(page, site):
    exercise = exercise_called("add")
    body = open_exercise(page, site, exercise)
    ladder = body.locator(".ladder")
    for _ in exercise.hints:
        ladder.locator(".ladder-next button").click()
    assert ladder.locator(".rung").count() == len(exercise.hints)
    ladder.locator(".ladder-next button").click()
    assert sorted(ladder.locator(".puzzle-lines code").all_text_contents()) == sorted(exercise.puzzle)
    for target, line in enumerate(exercise.puzzle):  # by keyboard
        while (place := ladder.locator(".puzzle-lines code").all_text_contents().index(line)) > target:
            ladder.locator(".puzzle-lines li").nth(place).get_by_role("button").first.focus()
            page.keyboard.press("Enter")
    ladder.get_by_role("button", name="Is this the order?").click()
    until(page, "e => e.textContent.startsWith('Yes')", ladder.locator(".puzzle-status").element_handle())
    assert text_of(body) == "\n".join(exercise.puzzle)
    ladder.locator(".ladder-next button").click()
    assert exercise.solution.splitlines()[-1].strip() in ladder.locator(".rung").last.text_content()
    assert not ladder.locator(".ladder-next button").is_visible()


def test_what_was_written_in_one_exercise_is_used_by_others(page, site):
    add = exercise_called("add")
    body = open_exercise(page, site, add)
    paste_code(page, textwrap.indent(add.solution + "\nprint('my own addition')", "    "))  # as found in a class
    assert check(page, body) == "right"
    other = next(e for e in EXERCISES if "add" in e.parts and e.name != "add")
    body = open_exercise(page, site, other)
    body.get_by_role("button", name="Show the full class").click()
    body.locator(".full-class .cm-content").press("Control+Home")
    shown = body.locator(".full-class .cm-scroller")
    shown.evaluate("element => element.scrollTo(0, 0)")
    paste = page.evaluate(
        """async place => {
            const seen = new Set();
            for (let top = 0; top <= place.scrollHeight; top += 150) {
                place.scrollTop = top;
                await new Promise(requestAnimationFrame);
                await new Promise(requestAnimationFrame);
                for (const line of place.querySelectorAll('.cm-line')) seen.add(line.textContent.trim());
            }
            return [...seen];
        }""",
        shown.element_handle(),
    )
    assert "print('my own addition')" in paste


# Predict, then reveal.


def predictions():
    return [(lesson.id, block) for lesson in COURSE.lessons for block in lesson.blocks if block.type == "predict"]


@pytest.mark.parametrize(("lesson", "block"), predictions(), ids=[block.name for _, block in predictions()])
def test_gradients_are_predicted_then_revealed(page, site, lesson, block):
    go(page, site, lesson)
    view = page.locator(f"[data-predict='{block.name}']")
    field = view.get_by_role("textbox")
    field.wait_for()
    field.fill("12345.6")
    page.keyboard.press("Enter")
    assert "Not 12345.6" in view.locator(".predict-status").text_content()
    field.fill("1")  # the result by itself
    page.keyboard.press("Enter")
    assert view.locator(".predict-status").text_content().startswith("Yes")
    for _ in range(100):
        if not field.is_visible():
            break
        view.get_by_role("button", name="Reveal").click()
    assert not field.is_visible()
    assert view.locator(".cr-phase").text_content() == "Complete"


# Code that will not stop, and code that ends Python.

ENDLESS = "while True:\n    pass"
RESISTING = "while True:\n    try:\n        while True:\n            pass\n    except:\n        pass"
KILLERS = {
    "os._exit": ("import os\nos._exit(1)", r"ended Python itself|exit"),
    "js.close": ("import js\njs.close()", r"closed the worker"),
    "SystemExit": ("raise SystemExit", r"exit"),
    "recursion": ("def f():\n    return f()\nf()", r"calls itself|so deeply"),
    "endless recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f():\n    return f()\nf()",
        r"calls itself|so deeply|ended Python|memory|ran for more than",
    ),
    "memory": ("kept = []\nwhile True:\n    kept.append(bytearray(10**8))", r"out of memory|ran for more than"),
    "input": ("input('your name? ')", r"asks for input\(\)"),
    "postMessage": ("import js\njs.self.postMessage = None", r"_backward is missing"),
}


def everything_said(body):
    return " ".join([body.locator(".exercise-status").text_content(), body.locator(".results").text_content()])


@pytest.fixture(scope="module")
def second(chromium, site):
    with lasting_page(chromium, site) as lasting:
        yield lasting


@pytest.fixture
def breakable(second, site):
    """A page for code that may break it, and whose clock may be stopped. What one test breaks is broken in the next."""
    with as_if_new(second, site) as page:
        yield page
        page.clock.resume()


def assert_stopped_in_time(page, address, grace):
    """Loops end after five seconds on the page's clock; those that resist it, after the milliseconds of grace.

    So does code that was not yet running when it was interrupted, as on a busy machine.
    """
    exercise = exercise_called("add")
    body = open_exercise(page, address, exercise)
    stop_the_clock(page)
    for code, more in ((ENDLESS, 0), (RESISTING, grace)):
        paste_code(page, code)
        status = body.locator(".exercise-status")
        status.evaluate("element => element.removeAttribute('data-outcome')")
        page.keyboard.press("Control+Enter")
        page.clock.run_for(4900)
        assert page.locator(".python").get_attribute("data-state") == "busy"
        page.clock.run_for(200)
        page.clock.run_for(more)
        until(page, "element => element.dataset.outcome === 'wrong'", status.element_handle(), ticks=1)
        assert "ran for more than 5 seconds" in status.text_content()
        paste_code(page, exercise.solution)
        assert check(page, body) == "right"


@pytest.mark.slow
def test_loops_without_end_are_stopped(breakable, site):
    assert breakable.evaluate("crossOriginIsolated")
    assert_stopped_in_time(breakable, site, grace=300)


@pytest.mark.slow
def test_loops_without_end_are_stopped_on_a_plain_host(serve, own_page):  # the page goes before its server
    address = f"{serve(site_folder())}/"
    page = own_page(address)
    assert not page.evaluate("crossOriginIsolated")  # so code cannot be interrupted, and Python is replaced at once
    assert_stopped_in_time(page, address, grace=0)


@pytest.mark.slow
def test_a_loop_is_stopped_by_hand(breakable, site):
    page = breakable
    exercise = exercise_called("add")
    body = open_exercise(page, site, exercise)
    paste_code(page, ENDLESS)
    stop_the_clock(page)  # else it would end by itself
    body.get_by_role("button", name="Check").click()
    body.get_by_role("button", name="Stop").click()
    until(page, "e => e.textContent === 'Stopped.'", body.locator(".exercise-status").element_handle())
    body.locator(".cm-content").click()
    paste_code(page, exercise.solution)
    assert check(page, body) == "right"


@pytest.mark.slow
def test_nothing_that_code_does_ends_the_page(breakable, site):
    page = breakable
    exercise = exercise_called("add")
    body = open_exercise(page, site, exercise)
    for name, (code, said) in KILLERS.items():
        paste_code(page, code)
        assert check(page, body) == "wrong", name
        assert re.search(said, everything_said(body)), (name, everything_said(body))
        paste_code(page, exercise.solution)
        assert check(page, body) == "right", name


def test_a_check_that_waits_for_python_can_be_called_off(open_page, site):
    page = open_page()
    without_python(page)
    page.goto(f"{site}#/{COURSE.lesson_of('add').id}")
    body = page.locator("[data-exercise=add]")
    body.get_by_role("button", name="Check").click()
    assert body.locator(".exercise-status").text_content() == "Waiting for Python …"
    body.get_by_role("button", name="Stop").click()
    until(page, "e => e.textContent === 'Stopped.'", body.locator(".exercise-status").element_handle())
    assert body.get_by_role("button", name="Check").is_visible()


def test_a_page_that_is_left_takes_its_loop_along(breakable, site):
    page = breakable
    open_exercise(page, site, exercise_called("add"))
    paste_code(page, ENDLESS)
    stop_the_clock(page)
    page.keyboard.press("Control+Enter")
    page.clock.run_for(1000)  # the five seconds after which it would end are never over
    assert page.locator(".python").get_attribute("data-state") == "busy"
    body = open_exercise(page, site, exercise_called("relu"))
    paste_code(page, exercise_called("relu").solution)
    assert check(page, body) == "right"


def test_graders_that_code_has_changed_are_made_anew(breakable, site):
    page = breakable
    exercise = exercise_called("add")
    body = open_exercise(page, site, exercise)
    paste_code(page, "from chainrule.learn import grading\ngrading.grade = None")
    assert check(page, body) == "wrong"
    paste_code(page, exercise.solution)
    assert check(page, body) == "wrong"
    assert "has changed Python itself" in everything_said(body)
    assert check(page, body) == "right"


# Loading.


def test_the_first_lesson_can_be_read_before_python_is_there(open_page, site):
    page = open_page()
    without_python(page)
    page.goto(f"{site}#/{COURSE.lessons[0].id}")
    page.wait_for_selector("h1")
    assert page.locator(".prose").first.is_visible()
    status = page.locator(".python")
    page.wait_for_selector(".python[data-state=loading]")
    assert re.search(r"\d+ MB", status.text_content())


def test_elsewhere_python_is_loaded_when_it_is_wanted(chromium, serve, site):
    address = serve(site_folder()).replace("127.0.0.1", "lessons.localhost")  # a name as of another host
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.clock.install()
    wanted = []
    page.on("request", lambda request: "pyodide" in request.url and wanted.append(request.url))
    page.goto(f"{address}/#/{COURSE.lesson_of('add').id}")
    page.wait_for_selector(".exercise")
    page.clock.run_for(10_000)
    assert re.search(r"Python: \d+ MB to load", page.locator(".python").text_content())
    assert wanted == []
    page.locator(".cm-content").first.click()
    page.wait_for_selector(".python[data-state=loading]")
    context.close()


def test_python_that_does_not_come_is_told(chromium, site):
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.clock.install()
    without_python(page)
    page.goto(site)
    page.wait_for_selector(".python[data-state=loading]")
    deadline = time.monotonic() + PATIENCE / 1000
    while page.locator(".python").get_attribute("data-state") != "failed":  # the other files may still be coming
        assert time.monotonic() < deadline
        page.clock.fast_forward(61_000)
        page.wait_for_timeout(100)
    assert "nothing happened for 60 seconds" in page.locator(".toast").text_content()
    page.unroute("**/pyodide.asm.wasm")
    page.get_by_role("button", name="Try again to load Python").click()
    wait_for_python(page)
    context.close()


# Progress.


def test_progress_survives_a_reload_and_travels_as_a_file(page, site, tmp_path):
    exercise = exercise_called("add")
    lesson = COURSE.lesson_of("add")
    body = open_exercise(page, site, exercise)
    paste_code(page, exercise.solution + "  # mine")
    assert check(page, body) == "right"
    body.locator(".ladder-next button").click()
    page.reload()
    body = page.locator("[data-exercise=add]")
    page.wait_for_selector(".exercise")
    tab_of(page, body).click()
    assert text_of(body).endswith("# mine")
    assert body.locator(".exercise-status").text_content() == "You solved this one."
    assert body.locator(".rung").count() == 1
    assert "✓" in tab_of(page, body).text_content()
    go(page, site, "about")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save to a file").click()
    file = tmp_path / "progress.json"
    download.value.save_as(file)
    assert json.loads(file.read_text())["exercises"]["add"]["passed"].endswith("# mine")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget everything").click()
    assert "0 of" in page.locator(".about").text_content()
    page.locator("input[type=file]").set_input_files(file)
    until(page, "document.querySelector('.progress-status').textContent.startsWith('Read')")
    assert "1 of" in page.locator(".about").text_content()
    go(page, site, lesson.id)
    tab_of(page, page.locator("[data-exercise=add]")).click()
    assert text_of(page.locator("[data-exercise=add]")).endswith("# mine")


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"version": 2}', '{"version": 1, "exercises": 3}'])
def test_a_file_of_something_else_is_refused(page, site, tmp_path, text):
    go(page, site, "about")
    (tmp_path / "other.json").write_text(text)
    page.locator("input[type=file]").set_input_files(tmp_path / "other.json")
    until(page, "document.querySelector('.progress-status').textContent.includes('does not hold progress')")


# Widgets.


def widgets(name):
    return [(lesson.id, b) for lesson in COURSE.lessons for b in lesson.blocks if b.type == "widget" and b.name == name]


def find_widget(page, site, name):
    places = widgets(name)
    if not places:
        pytest.skip(f"no lesson has the widget {name}")
    go(page, site, places[0][0])
    widget = page.locator(f"[data-widget='{name}']").first
    widget.scroll_into_view_if_needed()
    return widget


def reading(page, widget, wanted):
    place = widget.locator(".reading").element_handle()
    until(page, "([e, wanted]) => e.textContent.includes(wanted)", [place, wanted])
    return widget.locator(".reading").text_content()


def test_the_nudge_approaches_the_derivative(page, site):
    widget = find_widget(page, site, "nudge")
    before = widget.locator(".reading").text_content()
    slider = widget.get_by_role("slider", name="nudge h")
    slider.focus()
    page.keyboard.press("Home")
    after = widget.locator(".reading").text_content()
    assert after != before
    slope, exact = (float(re.search(rf"{word} is (-?[\d.]+)\.", after)[1]) for word in ("slope", "derivative"))
    assert slope == pytest.approx(exact, rel=1e-4)


def test_the_error_of_a_numerical_derivative_is_a_u(page, site):
    widget = find_widget(page, site, "ucurve")
    slider = widget.get_by_role("slider", name="step h")
    errors = []
    for power in ("-1", "-5", "-13"):
        slider.fill(power)
        errors.append(
            float(re.search(r"two-sided ([\d.e-]+)", widget.locator(".reading").text_content())[1].rstrip(":"))
        )
    assert errors[1] < errors[0]
    assert errors[1] < errors[2]


@pytest.mark.slow
def test_a_training_runs_with_the_learners_class(page, site):
    add = exercise_called("add")
    body = open_exercise(page, site, add)
    paste_code(page, add.solution)
    assert check(page, body) == "right"
    widget = find_widget(page, site, "training")
    assert "add" not in widget.locator(".whose").get_attribute("data-lent").split()
    widget.get_by_role("button", name="Train").click()
    said = reading(page, widget, "In step 49")
    assert float(re.search(r"In step 49, the last one, the loss is ([\d.e-]+)\.", said)[1]) < 0.1


def first_loss(page, site):
    """What the first training's chart says after one step, and whose code the page says it was."""
    widget = find_widget(page, site, "training")
    widget.get_by_role("button", name="Start over").click()
    widget.get_by_role("button", name="One step").click()
    chart = widget.locator(".chart")
    until(page, "e => e.ariaLabel.includes('In step 0')", chart.element_handle())
    said = float(re.search(r"it is ([\d.e-]+)", chart.get_attribute("aria-label"))[1])
    return said, widget.locator(".whose").text_content().strip()


def test_the_figures_run_the_learners_network_loss_and_loop_and_say_so(page, site):
    lent, words = first_loss(page, site)
    assert words == "Lent until you write it: Value, Neuron, Layer, MLP, loss_of and train."
    own = OWN | {"loss": OWN["loss"].replace("return total", "return total * 2")}
    have_passed(page, own)
    doubled, words = first_loss(page, site)
    assert words == "Every line that computes here is yours: Value, Neuron, Layer, MLP, loss_of and train."
    assert doubled == pytest.approx(2 * lent, rel=1e-4)
    have_passed(page, {name: own[name] for name in ("neuron", "layer", "loss")})
    assert (
        first_loss(page, site)[1] == "Yours: Neuron, Layer and loss_of. Lent until you write it: Value, MLP and train."
    )


def test_code_that_fails_is_lent_and_named(page, site):
    lent, _ = first_loss(page, site)
    have_passed(page, OWN | {"train": "def train(model, xs, ys, steps, rate):\n    return [1.0] * steps"})
    loss, words = first_loss(page, site)
    assert words.endswith("Lent because the program does not train with yours: train.")
    assert loss == lent


def test_the_playground_runs_the_learners_class_unless_told_otherwise(page, site):
    have_passed(page, OWN)
    go(page, site, "playground")
    until(page, "document.querySelector('.playground').dataset.steps === '0'")
    whose = page.locator(".playground .whose").first
    assert whose.get_attribute("data-lent") == ""
    page.get_by_role("button", name="One step").click()
    until(page, "document.querySelector('.playground').dataset.steps === '1'")
    until(page, "JSON.parse(localStorage.getItem('chainrule-learn')).built?.steps === 1")
    page.get_by_label("Gradients by").select_option("chainrule")
    assert "by chainrule's Value" in whose.text_content()


@pytest.mark.slow
def test_a_forgotten_zero_is_seen(page, site):
    widget = find_widget(page, site, "forgotten-zero")
    widget.get_by_role("button", name="Train both").click()
    said = reading(page, widget, "pile up")
    with_zero, without = (float(n) for n in re.search(r"is ([\d.e-]+) with zero_grad and ([\d.e-]+)", said).groups())
    assert with_zero < without


@pytest.mark.slow
def test_tanh_and_relu_are_compared_on_xor(page, site):
    widget = find_widget(page, site, "xor-compare")
    widget.get_by_role("button", name="Train them all").click()
    until(page, "e => e.textContent === 'Train them all'", widget.locator(".primary").element_handle())
    tanh, relu = (int(n) for n in re.search(r"in (\d+) of \d+ runs, relu in (\d+)", widget.text_content()).groups())
    assert tanh > relu


def test_gradients_vanish_with_sigmoids(page, site):
    widget = find_widget(page, site, "vanishing")
    widget.get_by_label("Activation").select_option("sigmoid")
    said = reading(page, widget, "times less")
    assert float(re.search(r"gets ([\d.,]+) times less", said)[1].replace(",", "")) > 100


def test_the_compilers_program_is_shown(page, site):
    widget = find_widget(page, site, "array-program")
    widget.get_by_label("Points").select_option("100")
    said = reading(page, widget, "array statements")
    nodes, statements = (int(n.replace(",", "")) for n in re.search(r"([\d,]+) scalar nodes are (\d+)", said).groups())
    assert (nodes, statements) == (65_818, 28)  # micrograd's demo, as the lesson says
    assert "Σ" in widget.locator("pre").text_content()
    widget.get_by_label("Point at").select_option("dv2")
    assert "dv2: the gradient of v2; in lines 22, 23, 24, 25." in widget.text_content()
    assert widget.locator(".lit").all_text_contents() == ["dv2"] * 4
    widget.locator("[data-name=v0]").first.hover()
    assert widget.locator(".lit").first.text_content() == "v0"


# The playground.


@pytest.mark.slow
def test_the_playground_separates_moons(page, site):
    go(page, site, "playground")
    playground = page.locator(".playground")
    until(page, "document.querySelector('.playground').dataset.steps === '0'")
    playground.get_by_role("button", name="Train").click()
    until(page, "Number(document.querySelector('.playground').dataset.accuracy) === 1")
    playground.get_by_role("button", name="Pause").click()
    assert playground.locator(".neuron-row canvas").count() == 12
    assert float(playground.get_attribute("data-accuracy")) >= 0.95  # one more step may have been under way
    canvas = playground.locator(".plane canvas")
    canvas.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    playground.locator(".cr-graph").wait_for()
    assert playground.locator(".cr-root .cr-name").text_content() == "loss"


def test_the_playground_keeps_its_state_in_the_address(page, site):
    go(page, site, "playground?data=circles&neurons=3&activation=relu&seed=4")
    playground = page.locator(".playground")
    until(page, "document.querySelectorAll('.neuron-row canvas').length === 6")
    assert playground.get_by_label("Data").input_value() == "circles"
    assert playground.get_by_label("Activation").input_value() == "relu"
    playground.get_by_role("slider", name="hidden layers").fill("1")
    until(page, "document.querySelectorAll('.neuron-row canvas').length === 3")
    assert "layers=1" in page.url
    assert "data=circles" in page.url


def test_an_address_can_be_pasted_and_the_lesson_keeps_it_too(page, site):
    for place in ("playground", "13-playground"):
        go(page, site, f"{place}?data=circles")
        assert page.get_by_label("Data").input_value() == "circles"
        go(page, site, f"{place}?data=xor&neurons=2")
        assert page.get_by_label("Data").input_value() == "xor"
        until(page, "document.querySelectorAll('.neuron-row canvas').length === 4")
        page.get_by_label("Activation").select_option("relu")
        assert page.url.endswith(f"#/{place}?data=xor&neurons=2&activation=relu")


def test_own_points_are_drawn_by_keyboard_and_pointer(page, site):
    go(page, site, "playground")
    playground = page.locator(".playground")
    until(page, "document.querySelector('.playground').dataset.steps === '0'")
    playground.get_by_role("button", name="Clear").click()
    assert playground.locator(".figures b, .neuron-row").count() == 0  # of the network that is gone
    playground.get_by_label("add ●").check()
    canvas = playground.locator(".plane canvas")
    canvas.click(position={"x": 60, "y": 60})
    playground.get_by_label("add ▲").check()
    canvas.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('points=')")
    points = re.search(r"points=([^&]*)", page.url)[1].split(";")
    assert [point.split(",")[2] for point in points] == ["1", "-1"]
    assert points[1].startswith("0.5,0,")


# Everybody.


@pytest.mark.slow
def test_no_serious_accessibility_violation_on_any_page(page, site):
    found = []
    for place in PLACES:
        go(page, site, place)
        for part in page.locator(".stepper-block, .order-block, .predict").all():
            part.locator(".cr-graph").first.wait_for()
        for button in page.locator(".ladder-next button:visible, .choice, summary:visible").all():
            if button.is_visible():
                button.click()
        for exercise in page.locator(".exercise-body:visible").all():
            exercise.get_by_role("button", name="Check").click()
            exercise.locator(".exercise-status[data-outcome=wrong]").wait_for()
        found += [(place, *violation) for violation in serious_violations(page)]
    assert found == []


@pytest.mark.parametrize("place", PLACES)
def test_a_phone_needs_no_sideways_scrolling(shared, site, place):
    page, problems = shared
    page.set_viewport_size({"width": 360, "height": 740})
    try:
        go(page, site, place)
        for part in page.locator(".stepper-block, .order-block, .predict").all():
            part.locator(".cr-graph").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator(".menu summary").click()
        assert page.locator(".menu .contents").is_visible()
    finally:
        page.set_viewport_size({"width": 1200, "height": 900})
    assert problems == []


def test_one_can_tab_through_a_lesson_and_out_of_an_editor(page, site):
    open_exercise(page, site, exercise_called("add"))
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Check"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.matches('.cm-content')")


# Teachers' lessons.

OWN_LESSON = f"""---
title: A lesson of my own
summary: One exercise.
---
Some $x^2$ and **prose**.

```widget name=nudge function="x ** )"
```

{DOUBLE}"""


@contextmanager
def served(lessons):
    """The address of a site with these lessons."""
    server = make_server(lessons)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_teachers_own_lesson_is_served_and_reread(open_page, tmp_path):
    lesson = tmp_path / "01-mine.md"
    lesson.write_text(OWN_LESSON)
    with served(tmp_path) as address:
        page = open_page()
        page.goto(f"{address}#/01-mine")
        wait_for_python(page)
        assert page.locator(".prose code.math").text_content() == "x^2"
        assert "nudge cannot be shown: ) was not expected" in page.locator("p.error").text_content()
        body = page.locator("[data-exercise=double]")
        body.locator(".cm-content").click()
        type_code(page, "def double(x):\n    return x + x")
        assert check(page, body) == "right"
        without_python(page)  # which what follows does not need
        lesson.write_text(OWN_LESSON.replace("A lesson of my own", "Another title"))
        page.reload()
        page.wait_for_selector("h1")
        assert page.locator("h1").text_content() == "Another title"
        lesson.write_text(OWN_LESSON.replace("```solution", "```solutoin"))
        page.reload()
        page.wait_for_selector(".notice")
        assert "01-mine.md, line" in page.locator(".notice").text_content()
        page.close()  # before its server goes


HOSTILE_TEXTS = [
    '<img src="x" onerror="window.hit = 1">',
    "<script>window.hit = 1</script>",
    "[words](javascript:window.hit=1)",
    "[words](data:text/html,<script>window.hit=1</script>)",
    "<https://example.org>",
    "&lt;b&gt;",
]


def test_html_in_a_lesson_stays_text(open_page, tmp_path):
    texts = [*HOSTILE_TEXTS, "![far](https://example.org/far.png)", "$<b onclick=1>$", "`<i>`", "```\n</code><i>\n```"]
    front = "---\ntitle: Hostile\nsummary: A lesson.\n---\n"
    (tmp_path / "01-hostile.md").write_text(front + "\n\n".join(texts) + "\n")
    with served(tmp_path) as address:
        page = open_page()
        page.goto(f"{address}#/01-hostile")
        page.wait_for_selector(".prose")
        shown = page.locator(".prose")
        assert [text for text in HOSTILE_TEXTS if text not in shown.text_content()] == []
        assert shown.locator("img, script, b, i").count() == 0
        links = shown.locator("a").evaluate_all("links => links.map(({href, rel}) => [href, rel])")
        assert links == [["https://example.org/far.png", "noreferrer"]]  # no picture is asked for
        assert page.evaluate("window.hit") is None
        page.close()  # before its server goes
