"""What runs as WebAssembly in the pages: the race of lesson 12, the playground, the GPT of lesson 14.

It is thousands of times as fast as Python. That it is 5 times as fast can be asked on a busy machine too.
"""

import re

from learner import OWN, OWN_GPT
from lesson_pages import go, have_passed, until


def number(text):
    return float(text.replace(",", ""))


def test_a_race_between_a_loop_and_its_own_graph(page, site):
    have_passed(page, OWN)
    go(page, site, "12-tensors")
    race = page.locator("[data-widget=race]")
    assert "Every line that computes here is yours" in race.locator(".whose").text_content()
    race.get_by_role("button", name="Race").click()
    race.get_by_text("times as fast as the loop that it came from").wait_for()
    rows = [[cell.text_content() for cell in row.locator("td").all()] for row in race.locator("tbody tr").all()]
    (steps, speed, loss), (fast_steps, fast_speed, fast_loss) = [map(number, row) for row in rows]
    assert fast_steps > 5 * steps > 0
    assert fast_speed > 5 * speed
    assert fast_loss < loss


def test_the_playground_takes_thousands_of_steps(page, site):
    have_passed(page, OWN)
    go(page, site, "playground?neurons=3&layers=1")
    playground = page.locator(".playground")
    playground.get_by_role("button", name="Train").click()
    until(page, "Number(document.querySelector('.playground').dataset.steps) > 20000")
    playground.get_by_role("button", name="Pause").click()
    assert number(re.search(r"steps a second ?([\d,]+)", playground.locator(".figures").text_content())[1]) > 0


def test_a_gpt_out_of_the_learners_own_value(page, site):
    have_passed(page, OWN | OWN_GPT)
    go(page, site, "14-gpt")
    gpt = page.locator("[data-widget=gpt]")
    gpt.get_by_role("button", name="Train").click()
    script = (
        "() => /After ([\\d,]+) names it is/.exec(document.querySelector('[data-widget=gpt] .chart').ariaLabel)?.[1]"
    )
    until(page, f"Number(({script})()?.replaceAll(',', '') ?? 0) > 8000")
    gpt.get_by_label("in the name").fill("otto")
    gpt.get_by_role("rowheader", name="t").first.wait_for()
    gpt.get_by_role("button", name="Pause").click()
    assert float(re.search(r"it is (\d\.\d+)", gpt.locator(".chart").get_attribute("aria-label"))[1]) < 2.5
    names = gpt.locator(".made-up li").all_text_contents()
    assert len(names) > 6
    assert all(re.fullmatch("[a-z]{1,7}", name) for name in names)
    looks = [[cell.text_content() for cell in row.locator("td").all()] for row in gpt.locator("tbody tr").all()]
    assert [sum(bool(share) for share in row) for row in looks] == [1, 2, 3, 4, 5]
    assert all(95 <= sum(int(share) for share in row if share) <= 105 for row in looks)
    speeds = re.search(r"([\d,]+) names a second; your class alone, in Python, learns (\d+\.?\d*)", gpt.text_content())
    assert number(speeds[1]) > 5 * float(speeds[2])
    assert "Every line that computes here is yours" in gpt.locator(".whose").text_content()


def test_too_few_words_are_refused_with_a_sentence(page, site):
    go(page, site, "14-gpt")
    gpt = page.locator("[data-widget=gpt]")
    gpt.get_by_text("Learn from other words").click()
    gpt.get_by_label("Words to learn from").fill("one two three")
    gpt.get_by_role("button", name="Start over with these").click()
    gpt.get_by_role("button", name="Train").click()
    gpt.get_by_text("give at least 20, such as names, towns or dishes").wait_for()
    assert gpt.get_by_role("button", name="Train").is_visible()
