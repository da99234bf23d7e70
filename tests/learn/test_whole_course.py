"""The whole course, from an empty profile to the last page, by a learner whose code looks different from ours."""

import re
import subprocess
import sys

import pytest

from browser import PATIENCE, watch
from chainrule.learn.course import Exercise, Predict, Quiz
from learner import OWN, OWN_GPT
from lesson_pages import COURSE, check, paste_code, tab_of, until, wait_for_python
from lesson_texts import answers

pytestmark = pytest.mark.slow

IN_OTHER_STYLES = dict(reversed(list(answers("right_answers.md"))))  # the first of each
BACKWARD = """
def backward(self):
    nodes = []  # a list in place of a set
    def walk(node):
        if node in nodes:
            return
        for child in node._prev:
            walk(child)
        nodes.append(node)
    walk(self)
    self.grad = 1.0
    for node in nodes[::-1]:
        node._backward()
"""
ANSWERS = IN_OTHER_STYLES | OWN | OWN_GPT | {"backward": BACKWARD.strip()}


def solve(page, exercise):
    body = page.locator(f"[data-exercise='{exercise.name}']")
    if not body.is_visible():
        tab_of(page, body).click()
    body.locator(".editor .cm-content").click()
    paste_code(page, ANSWERS.get(exercise.name, exercise.solution))
    assert check(page, body) == "right", (exercise.name, body.text_content())


def answer(page, quiz):
    view = page.locator(f"[data-quiz='{quiz.name}']")
    for choice, button in zip(quiz.choices, view.get_by_role("button").all(), strict=True):
        if choice.right:
            button.press("Enter")
    assert view.locator("[data-outcome=right]").count() == sum(choice.right for choice in quiz.choices)


def predict(page, prediction):
    view = page.locator(f"[data-predict='{prediction.name}']")
    view.locator(".cr-graph").wait_for()
    for _ in range(20):  # a first guess, then the answer is looked at
        if not view.locator("form").is_visible():
            return
        view.locator("form input").fill("0.123")
        view.locator("form input").press("Enter")
        assert "Not 0.123" in view.locator(".predict-status").text_content()
        view.get_by_role("button", name="Reveal").press("Enter")
    raise AssertionError("the questions do not end")


GPT_LOSS = "Number(document.querySelector('[data-widget=gpt] .chart')?.ariaLabel.match(/it is ([\\d.]+)/)?.[1] ?? 9)"
DEEDS = {Exercise: solve, Quiz: answer, Predict: predict}


def test_from_an_empty_profile_to_the_last_page(open_page, site, tmp_path):
    page = open_page(reduced_motion="reduce", viewport={"width": 1200, "height": 900})
    problems, foreign = [], []
    watch(page, problems)
    page.on("request", lambda request: request.url.startswith((site, "blob:", "data:")) or foreign.append(request.url))
    page.goto(site)
    wait_for_python(page)
    begin = page.locator("a.go")
    assert begin.text_content().startswith("Begin: ")
    begin.press("Enter")
    for lesson in COURSE.lessons:
        page.get_by_role("heading", level=1, name=lesson.title.replace("`", "")).wait_for()
        for block in lesson.blocks:
            if deed := DEEDS.get(type(block)):
                deed(page, block)
        if lesson is COURSE.lessons[-1]:
            train_the_gpt(page)
        page.locator(".ways .after").press("Enter")
    page.get_by_role("heading", level=1, name="What you built").wait_for()
    assert "Nothing in it is a black box" in page.locator(".lead").text_content()
    lines, nodes, steps = (int(text.replace(",", "")) for text in page.locator(".counts dd").all_text_contents())
    assert lines > 150
    assert nodes > 20_000
    assert steps > 25
    with page.expect_download() as download:
        page.locator(".built").get_by_role("button", name="Download my_engine.py").press("Enter")
    file = tmp_path / "my_engine.py"
    download.value.save_as(file)
    assert "Lent" not in file.read_text()
    assert "class GPT" in file.read_text()
    fewer = file.read_text().replace("moons(50)", "moons(12)")  # a list in place of a set takes its time
    file.write_text(fewer)
    run = subprocess.run([sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, timeout=300)
    assert run.stderr == ""
    losses = [float(loss) for loss in re.findall(r"loss +([\d.]+)", run.stdout)]
    assert losses[-1] < 0.2 * losses[0]
    page.locator("a[href='#/']").first.press("Enter")
    assert page.locator("a.go").text_content() == "You have finished: look at what you built"
    assert problems == []
    assert foreign == []


def train_the_gpt(page):
    widget = page.locator("[data-widget=gpt]")
    widget.get_by_role("button", name="Train", exact=True).press("Enter")
    until(page, f"({GPT_LOSS}) < 2.6", patience=4 * PATIENCE)  # a list in place of a set takes its time here too
    widget.get_by_role("button", name="Pause").press("Enter")
    assert widget.locator(".made-up li").count() > 3
    assert widget.locator(".attention td").count() > 10
    faster, slower = re.search(
        r"([\d,]+) names a second; .* learns (?:at most )?([\d,]*\.?\d+)", widget.text_content()
    ).groups()
    assert float(faster.replace(",", "")) > 5 * float(slower.replace(",", ""))
    assert "lent" not in widget.locator(".whose").text_content().lower()


def test_a_lesson_by_the_tab_key_alone(open_page, site):
    """Nothing is clicked, and nothing is focused but by the keys."""
    page = open_page(reduced_motion="reduce")
    page.goto(site)
    wait_for_python(page)

    def tab_to(description, most=120):
        for _ in range(most):
            page.keyboard.press("Tab")
            if page.evaluate(f"(() => {{ const e = document.activeElement; return {description}; }})()"):
                return
        raise AssertionError(f"no key leads to {description}")

    tab_to("e.classList.contains('go')")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="Nudge it").wait_for()
    tab_to("e.type === 'range'")
    before = page.evaluate("document.activeElement.value")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.value") != before
    tab_to("e.classList.contains('cm-content')")
    paste_code(page, IN_OTHER_STYLES["slope"])
    page.keyboard.press("Escape")
    tab_to("e.textContent === 'Check'", most=3)
    page.keyboard.press("Enter")
    page.locator("[data-exercise=slope] .exercise-status[data-outcome=right]").wait_for()
    for block in COURSE.lessons[0].blocks:
        if isinstance(block, Quiz):
            right = next(i for i, choice in enumerate(block.choices) if choice.right)
            tab_to(f"e.closest('[data-quiz={block.name}]')")
            for _ in range(right):
                page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            assert page.locator(f"[data-quiz={block.name}] [data-outcome=right]").count() == 1
    tab_to("e.classList.contains('after')")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="A number that remembers").wait_for()
