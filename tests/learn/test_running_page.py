"""The button Run in a real browser, and lesson 10, which asks for a failing test before anything is given away."""

import pytest

from browser import stop_the_clock
from chainrule.learn.planted_bugs import TOO_WEAK
from lesson_pages import check, exercise_called, open_exercise, paste_code, text_of, until

BUG = exercise_called("bug-one")
CATCHING = BUG.starter.replace("(a * b).tanh() + b", "a.tanh() * b + a")


def wait_for(page, body, words, ticks=0):
    status = body.locator(".exercise-status").element_handle()
    until(page, f"e => e.textContent.startsWith('{words}')", status, ticks)


def run(page, body, words="Your code ran to its end."):
    body.get_by_role("button", name="Run").click()
    wait_for(page, body, words)


def test_nothing_is_given_away_before_a_test_fails(page, site):
    body = open_exercise(page, site, BUG)
    run(page, body)
    assert "2 of 2 derivatives agree" in body.locator(".output pre").text_content()
    assert body.locator(".rows, .own-graph, .message").count() == 0

    body.locator(".cm-content").click()
    paste_code(page, BUG.starter.replace("at = 0.5", "at = 0.75"))
    assert check(page, body) == "wrong"
    assert body.locator(".message").text_content()[:40] == TOO_WEAK.replace("`", "")[:40]
    assert body.locator(".rows tbody th").all_text_contents() == ["your test, on the engine as it was"]
    assert body.locator(".own-graph").count() == 0

    paste_code(page, CATCHING)
    run(page, body)
    printed = body.locator(".output pre").text_content()
    assert "WRONG" in printed
    assert "_backward (your_code.py:34) overwrites the gradient" in printed
    assert body.locator(".rows, .own-graph, .message").count() == 0

    body.locator(".cm-content").click()
    assert check(page, body) == "wrong"
    assert "Your test catches the bug" in body.locator(".message").text_content()
    assert body.locator(".rows tbody tr").count() > 5
    assert body.locator(".cr-marked").count() > 0

    body.locator(".cm-content").click()
    paste_code(page, CATCHING.replace("self.grad = (1 -", "self.grad += (1 -"))
    assert check(page, body) == "right"


def test_a_run_solves_nothing_and_changes_nothing(page, site):
    body = open_exercise(page, site, BUG)
    paste_code(page, BUG.solution)
    before = text_of(body)
    run(page, body)
    assert text_of(body) == before
    assert "solved" not in page.locator(".tabs").inner_html()
    kept = "JSON.parse(localStorage.getItem('chainrule-learn')).exercises['bug-one']"
    assert page.evaluate(kept) == {"code": BUG.solution}


def test_a_run_shows_the_error_and_its_line(page, site):
    body = open_exercise(page, site, BUG)
    paste_code(page, "print('so far')\nprint(1 / 0)")
    run(page, body, "Your code stopped with an error.")
    assert "Line 2: ZeroDivisionError" in body.locator(".error").text_content()
    assert body.locator(".cm-wrong-line").text_content() == "print(1 / 0)"
    assert body.locator(".output pre").text_content() == "so far\n"
    body.locator(".cm-content").click()
    paste_code(page, "x = 1")
    run(page, body, "Your code ran to its end. Nothing was printed.")
    assert body.locator(".error, .output, .cm-wrong-line").count() == 0


@pytest.mark.slow
def test_a_run_without_end_is_stopped(own_page, site):
    page = own_page()
    body = open_exercise(page, site, BUG)
    paste_code(page, "while True:\n    pass")
    stop_the_clock(page)
    body.get_by_role("button", name="Run").click()
    page.clock.run_for(4900)
    assert page.locator(".python").get_attribute("data-state") == "busy"
    page.clock.run_for(200)
    wait_for(page, body, "Your code ran for more than 5 seconds", ticks=1)  # code that is not running yet has grace
    body.get_by_role("button", name="Run").click()
    waiting = body.get_by_role("button", name="Check")
    assert waiting.get_attribute("aria-disabled") == "true"
    waiting.click(force=True)  # one thing at a time
    assert waiting.text_content() == "Check"
    body.get_by_role("button", name="Stop").click()
    wait_for(page, body, "Stopped.", ticks=1)
    assert body.get_by_role("button", name="Run").is_visible()
    body.locator(".cm-content").click()
    paste_code(page, BUG.solution)
    assert check(page, body) == "right"


def test_the_keyboard_alone_runs_a_program(page, site):
    body = open_exercise(page, site, BUG)
    before = text_of(body)
    page.keyboard.press("Shift+Enter")
    wait_for(page, body, "Your code ran to its end.")
    assert text_of(body) == before
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Run"
    body.locator(".exercise-status").evaluate("element => element.textContent = ''")
    page.keyboard.press("Enter")
    wait_for(page, body, "Your code ran to its end.")
    assert page.evaluate("document.activeElement.textContent") == "Run"


def test_a_program_that_prints_nothing_has_no_button(page, site):
    body = open_exercise(page, site, exercise_called("add"))
    assert body.get_by_role("button", name="Run").count() == 0
    paste_code(page, "x = 1")
    page.keyboard.press("Shift+Enter")
    assert text_of(body) == "x = 1\n"
