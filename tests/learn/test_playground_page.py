"""The playground in a real browser: curves, wiring, changes while it learns, a link and a picture."""

import re

import pytest

from learner import OWN
from lesson_pages import go, have_passed, until


@pytest.fixture
def playground(page, site):
    """A playground with the learner's own class, not yet trained."""
    have_passed(page, OWN)
    go(page, site, "about")  # the shared page may have been in the playground
    go(page, site, "playground?neurons=3&layers=1")
    ready(page, 0)
    return page.locator(".playground")


def ready(page, steps):
    script = "steps => document.querySelector('.playground').dataset.steps === String(steps)"
    until(page, script, steps)


def step(page, playground, to):
    playground.get_by_role("button", name="One step").click()
    ready(page, to)


def weights(playground):
    script = "lines => lines.map(line => [line.className.baseVal, line.getAttribute('stroke-width')])"
    return playground.locator(".wiring line").evaluate_all(script)


def test_curves_of_both_kinds_of_points(page, playground):
    for k in (1, 2, 3):
        step(page, playground, k)
    said = playground.locator(".chart").get_attribute("aria-label")
    assert re.search(r"After 3 steps: \d\.\d+ for the points it learns from, \d\.\d+ for those kept back", said)
    assert "of those kept back" in playground.locator(".figures").text_content()


def test_each_weight_is_a_wire(page, playground):
    before = weights(playground)
    assert len(before) == 2 * 3 + 3
    assert {kind for kind, _ in before} == {"above", "below"}
    step(page, playground, 1)
    assert weights(playground) != before
    assert playground.locator(".wiring").get_attribute("aria-label").startswith("The network: two inputs, 3 hidden")


def test_the_rate_changes_without_a_restart(page, playground):
    step(page, playground, 1)
    before = weights(playground)
    playground.get_by_role("slider", name="learning rate").fill("-1")
    until(page, "location.hash.includes('lr=0.1')")
    page.wait_for_timeout(300)
    assert weights(playground) == before
    step(page, playground, 2)
    playground.get_by_role("slider", name="neurons in each").fill("4")  # another network starts over
    ready(page, 0)


def test_points_change_without_a_restart(page, playground):
    step(page, playground, 1)
    before = weights(playground)
    playground.get_by_label("add ●").check()
    playground.locator(".plane canvas").click(position={"x": 40, "y": 40})
    until(page, "location.hash.includes('points=')")
    until(page, "!document.querySelector('.figures').textContent.includes('kept back')")
    assert weights(playground) == before
    step(page, playground, 2)
    assert playground.get_by_label("Data").input_value() == "own"


def test_sixteen_neurons(page, playground):
    playground.get_by_role("slider", name="neurons in each").fill("16")
    until(page, "document.querySelectorAll('.neuron-row canvas').length === 16")
    step(page, playground, 1)


def test_the_link_holds_every_setting(page, playground):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    playground.get_by_role("slider", name="learning rate").fill("-1.5")
    playground.get_by_role("button", name="Copy the link").click()
    until(page, "document.querySelector('.playground [role=status]').textContent.startsWith('Copied')")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    assert link.endswith("#/playground?layers=1&neurons=3&lr=0.032")


def test_a_picture_can_be_saved(page, playground, tmp_path):
    step(page, playground, 1)
    with page.expect_download() as download:
        playground.get_by_role("button", name="Save a picture").click()
    download.value.save_as(tmp_path / "picture.png")
    found = (tmp_path / "picture.png").read_bytes()
    assert download.value.suggested_filename == "playground.png"
    assert found.startswith(b"\x89PNG")
    width, height = (int.from_bytes(found[at : at + 4]) for at in (16, 20))
    assert (width, height) == (1120, 620)
    assert len(found) > 20_000  # there is something on it
