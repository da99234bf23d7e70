"""What the course's site has around the lessons, in a real browser: the learner's file, the look back."""

import json
import re
import subprocess
import sys

import pytest

from learner import COURSE, OWN
from lesson_pages import go, have_passed, until

# The learner's own file.


def downloaded(page, act, folder):
    with page.expect_download() as download:
        act()
    file = folder / download.value.suggested_filename
    download.value.save_as(file)
    return file


def losses_of(file):
    """The losses that a file prints as it trains, in a Python that has nothing but itself."""
    run = subprocess.run([sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, timeout=120)
    assert run.stderr == ""
    assert re.search(r"105 parameters, 50 points", run.stdout)
    return [float(loss) for loss in re.findall(r"loss +([\d.]+)", run.stdout)]


def test_what_a_learner_wrote_in_a_style_of_their_own_runs_elsewhere(page, site, tmp_path):
    numerical = COURSE.exercises["numerical"].solution
    have_passed(page, OWN | {"numerical": numerical})
    go(page, site, "built")
    take = page.locator(".built").get_by_role("button", name="Download my_engine.py")
    file = downloaded(page, take.click, tmp_path)
    text = file.read_text()
    assert file.name == "my_engine.py"
    assert "Lent" not in text
    assert all(line.strip() in text for code in [*OWN.values(), numerical] for line in code.splitlines())
    assert "chainrule" not in re.sub(r'^""".*?"""', "", text, flags=re.DOTALL)
    losses = losses_of(file)
    assert len(losses) == 10
    assert losses[-1] < 0.2 * losses[0]


def test_what_is_not_written_yet_is_lent_and_marked(page, site, tmp_path):
    broken = "def train(model, xs, ys, steps, rate):\n    return [1.0] * steps"
    have_passed(page, {name: OWN[name] for name in ("add", "neuron", "loss")} | {"train": broken})
    go(page, site, "about")
    take = page.locator(".sidebar").get_by_role("button", name="Download my_engine.py")
    text = (file := downloaded(page, take.click, tmp_path)).read_text()
    marks = re.findall(r"# Lent by the course(.*)\n *(?:class|def) (\w+)", text)
    assert {name for _, name in marks} == {"__init__", "_backward", "backward", "Layer", "MLP", "train"}
    assert len(marks) == len(OWN) - 3
    assert marks[-1] == (": with yours, of lesson 8, the program does not train.", "train")
    assert losses_of(file)[-1] < 10


def test_the_file_can_be_copied(page, site):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    have_passed(page, OWN)
    go(page, site, "built")
    page.locator(".my-engine .cm-content").wait_for()
    page.get_by_role("button", name="Copy").click()
    until(page, "[...document.querySelectorAll('.built [role=status]')].some(e => e.textContent === 'Copied.')")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith('"""An engine, a network and a training loop, as I wrote them')
    assert text.rstrip().endswith("main()")
    assert page.locator(".my-engine .cm-slot-line").count() > 5


def test_the_last_page_counts_what_is_there(page, site):
    go(page, site, "built")
    counts = page.locator(".counts dd")
    assert counts.all_text_contents() == ["0", "0", "0"]
    have_passed(
        page,
        {"slope": "def slope(f, x, h=0.0001):\n    # a comment\n    rise = f(x + h) - f(x)\n\n    return rise / h"},
    )
    go(page, site, COURSE.lesson_of("train").id)
    widget = page.locator("[data-widget=training]").first
    widget.get_by_role("button", name="One step").click()
    until(page, "JSON.parse(localStorage.getItem('chainrule-learn')).built?.steps === 1")
    go(page, site, "built")
    lines, nodes, steps = (int(text.replace(",", "")) for text in counts.all_text_contents())
    stored = json.loads(page.evaluate("localStorage.getItem('chainrule-learn')"))["built"]
    assert (lines, nodes, steps) == (2, stored["nodes"], 1)
    assert nodes > 300


def test_the_bridge_shows_yours_and_theirs(page, site):
    have_passed(page, {"mul": OWN["mul"], "neuron": OWN["neuron"]})
    go(page, site, "built")
    rows = page.locator(".bridge section")
    rows.first.wait_for()
    captions = [row.locator("figcaption").all_text_contents() for row in rows.all()]
    assert captions[0] == ["Yours", "chainrule/ops.py", "PyTorch"]
    assert captions[2] == ["Lent, until you write it", "chainrule/engine.py", "PyTorch"]
    assert captions[3][0] == "Yours, and partly lent"
    assert "a, b = self.data, other.data" in rows.first.locator("pre").first.text_content()


@pytest.mark.slow
def test_the_file_waits_for_nothing(open_page, site, tmp_path):
    """It can be had before Python is there."""
    page = open_page()
    page.route("**/pyodide.asm.wasm", lambda route: None)
    page.goto(f"{site}#/built")
    page.locator(".my-engine .cm-content").wait_for()
    file = downloaded(page, page.locator(".built").get_by_role("button", name="Download").click, tmp_path)
    assert losses_of(file)[-1] < 10


# The stepper on one's own class.


def test_ones_own_class_is_told_as_the_chain_rule(page, site):
    have_passed(page, OWN)
    lesson = next(lesson for lesson in COURSE.lessons if any(getattr(block, "own", False) for block in lesson.blocks))
    go(page, site, lesson.id)
    stepper = page.locator(".stepper-block").first
    stepper.locator(".cr-graph").wait_for()
    assert "by your own class" in stepper.text_content()
    stepper.locator(".cr-graph").first.focus()
    equations = []
    for _ in range(60):
        equations.append(stepper.locator(".cr-equation").text_content())
        page.keyboard.press("ArrowRight")
    assert any(re.fullmatch(r"(\w+)\.grad \+= (\w+)\.grad · ∂\2/∂\1 = \S+ · \S+ = \S+", text) for text in equations)
    assert not any("→" in text for text in equations)
