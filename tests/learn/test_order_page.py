"""The order of the backward pass as a game, in a real browser: clicked, by keyboard, played, by one's own class."""

import pytest

from lesson_pages import go, have_passed, serious_violations

LESSON = "05-backward"
TEN_TIMES = "def _backward():\n    self.grad += 10 * out.grad\n    other.grad += 10 * out.grad"
FAILING = "def _backward():\n    self.grad += out.grad\n    raise ValueError('not today')"


def open_game(page, site):
    go(page, site, LESSON)
    view = page.get_by_role("region", name="Who speaks when")
    view.locator(".cr-graph").wait_for()
    return view


def node(view, name):
    return view.get_by_role("button", name=f"{name}, = ")


def grad_of_a(view):
    return view.get_by_role("img", name="a, leaf").get_attribute("aria-label")


def wait_until_spoken(view, names):
    view.get_by_text(f"Spoken: {', '.join(names)}", exact=True).wait_for()


def press(view, names):
    for k, name in enumerate(names, 1):
        node(view, name).click()
        wait_until_spoken(view, names[:k])


def said(view):
    """What screen readers are told."""
    return view.locator(".order-status[role=status]").inner_text()


def marks(view):
    return {mark.text_content() for mark in view.locator(".cr-marked .cr-mark").all()}


# What comes out.


@pytest.mark.parametrize(
    ("order", "grad", "verdict", "marked"),
    [
        ("Lsvu", "2", "a has 2, not 4.", {"too early", "should be 4"}),
        ("Lsvus", "6", "a has 6, not 4.", {"too early, twice", "should be 4"}),
        ("Lvus", "4", "every gradient is right. Of the 24 orders", set()),
    ],
    ids=["impatient", "twice", "right"],
)
def test_the_order_of_clicks_decides(page, site, order, grad, verdict, marked):
    view = open_game(page, site)
    assert "L begins with gradient 1" in said(view)
    assert "data 3, grad 0" in grad_of_a(view)
    press(view, order)
    assert f"data 3, grad {grad}" in grad_of_a(view)
    assert verdict in said(view)
    assert marks(view) == marked
    wrong = view.locator(".rows tr.wrong").all_text_contents()
    assert [row.split("✗")[0] for row in wrong] == ([] if grad == "4" else [f"a.grad{grad}4"])


def test_what_happened_is_said_after_the_fact(page, site):
    view = open_game(page, site)
    press(view, "Ls")
    assert said(view).strip() == "s passed its 1 on to a, twice. s has heard from L only: u has not spoken."
    assert "too early" in node(view, "s").get_attribute("aria-label")
    assert view.locator(".cr-target").count() == 1  # only what has changed
    assert view.locator(".rows").count() == 0
    view.get_by_role("button", name="Start over").click()
    assert "L begins with gradient 1" in said(view)
    assert marks(view) == set()
    assert "grad 0" in grad_of_a(view)


def test_by_keyboard_alone(page, site):
    view = open_game(page, site)
    node(view, "s").focus()

    def tab_to(name, key="Tab"):
        for _ in range(10):
            if page.evaluate("document.activeElement.getAttribute('aria-label') ?? ''").startswith(f"{name}, = "):
                return
            page.keyboard.press(key)
        raise AssertionError(f"{name} is not in the tab order")

    for k, (name, way) in enumerate([("L", "Tab"), ("v", "Shift+Tab"), ("u", "Shift+Tab"), ("s", "Shift+Tab")], 1):
        tab_to(name, way)
        page.keyboard.press("Enter" if k % 2 else "Space")
        wait_until_spoken(view, "Lvus"[:k])
        assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(f"{name}, = ")
    assert "every gradient is right" in said(view)


# Orders that are played.


def test_an_impatient_order_is_played(page, site):
    view = open_game(page, site)
    view.get_by_role("button", name="An impatient order").click()
    wait_until_spoken(view, "L")
    wait_until_spoken(view, "Lsvu")
    assert "a has 2, not 4." in said(view)


def test_a_click_takes_over_from_what_is_played(page, site):
    view = open_game(page, site)
    view.get_by_role("button", name="A right order").click()
    wait_until_spoken(view, "L")
    for name in "sv":
        node(view, name).click()
    wait_until_spoken(view, "Lsv")
    page.wait_for_timeout(2500)  # longer than between two turns
    wait_until_spoken(view, "Lsv")


@pytest.fixture
def moving(page):
    """The shared page, as for those who welcome motion."""
    page.emulate_media(reduced_motion="no-preference")
    yield page
    page.emulate_media(reduced_motion="reduce")


def test_clicks_while_a_gradient_is_on_its_way_all_count(moving, site):
    view = open_game(moving, site)
    for name in "Lvus":
        node(view, name).click()
    wait_until_spoken(view, "Lvus")
    assert "data 3, grad 4" in grad_of_a(view)


def token_is_seen(page, site):
    """Whether a gradient is seen on its way when L speaks."""
    view = open_game(page, site)
    token = "document.querySelector('.order-block .cr-token').getAttribute('visibility')"
    page.evaluate(
        "window.seen = []; new MutationObserver(() => window.seen.push("
        f"{token})).observe(document.querySelector('.order-block .cr-token'), {{attributes: true}})"
    )
    press(view, "L")
    return "visible" in page.evaluate("window.seen")


def test_gradients_travel(moving, site):
    assert token_is_seen(moving, site)


def test_gradients_do_not_travel_where_motion_is_unwelcome(page, site):
    assert not token_is_seen(page, site)


# Whose class it is.


def test_the_lent_class_is_called_so(page, site):
    assert "Built by the class of the lessons" in open_game(page, site).inner_text()


def test_the_nodes_speak_by_the_learners_own_code(page, site):
    have_passed(page, {"add": TEN_TIMES})
    view = open_game(page, site)
    assert "by your own class" in view.inner_text()
    press(view, "Lsvu")
    assert "L passed" not in said(view)
    assert "a has 200, not 4" in said(view)  # 2 · 10 · 10


def test_an_error_in_the_learners_backward_is_a_sentence(page, site):
    have_passed(page, {"add": FAILING})
    view = open_game(page, site)
    node(view, "L").click()
    view.locator(".error").wait_for()
    assert "not today" in said(view)
    assert "has not spoken" in node(view, "L").get_attribute("aria-label")
    have_passed(page, {})
    view.get_by_text("Built by the class of the lessons").wait_for()
    press(view, "L")
    assert view.locator(".error").count() == 0


# Everybody.


def test_on_a_phone(open_page, site):
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, reduced_motion="reduce")
    view = open_game(page, site)
    for k, name in enumerate("Lsvu", 1):
        node(view, name).tap()
        wait_until_spoken(view, "Lsvu"[:k])
        assert view.locator(".order-status").evaluate(
            "e => { const { top, bottom } = e.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight + 1; }"
        )
    assert "a has 2, not 4." in said(view)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert view.locator(".cr-stage").evaluate("e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight")


def test_no_serious_accessibility_violation(page, site):
    view = open_game(page, site)
    press(view, "Lsvu")
    assert serious_violations(page) == []
