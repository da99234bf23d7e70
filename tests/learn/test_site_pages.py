"""What the course's site has around the lessons, in a real browser: the learner's file, the first and the last page,
loading, moving about, other tabs.
"""

import functools
import json
import re
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from chainrule.learn.course import Quiz
from chainrule.learn.server import site_folder
from learner import COURSE, OWN, OWN_GPT
from lesson_pages import (
    PATIENCE,
    check,
    go,
    have_passed,
    open_exercise,
    paste_code,
    text_of,
    until,
    wait_for_python,
    without_python,
)

# The learner's own file.


def downloaded(page, act, folder):
    with page.expect_download() as download:
        act()
    file = folder / download.value.suggested_filename
    download.value.save_as(file)
    return file


def losses_of(file, steps=100, points=16):
    """The losses that a file prints as it trains on fewer points, in a Python that has nothing but itself."""
    text = file.read_text()
    for written, wanted in (("range(0, 100, 10)", f"range(0, {steps}, 10)"), ("moons(50)", f"moons({points})")):
        assert text.count(written) == 1
        text = text.replace(written, wanted)
    file.write_text(text)
    run = subprocess.run([sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, timeout=900)
    assert run.stderr == ""
    assert f"105 parameters, {points} points" in run.stdout
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


def test_the_file_has_the_gpt_once_a_part_of_it_is_written(page, site, tmp_path):
    have_passed(page, OWN | {"plain-output": COURSE.exercises["plain-output"].solution})
    go(page, site, "about")
    take = page.locator(".sidebar").get_by_role("button", name="Download my_engine.py")
    text = downloaded(page, take.click, tmp_path).read_text()
    assert "class GPT" not in text
    assert text.count("class Plain(Neuron)") == text.count("def regressor") == 1
    have_passed(page, OWN | {name: OWN_GPT[name] for name in ("softmax", "embed")})
    go(page, site, "about")
    file = downloaded(page, take.click, tmp_path)
    names = {"__name__": "somebody_s"}
    exec(file.read_text(), names)
    assert file.read_text().count("# Lent by the course until you write it, in lesson 14.") == len(OWN_GPT) - 2
    scores, looks = names["GPT"](tokens=3, width=2, block=4)([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert [len(row) for row in scores] == [3, 3]
    assert [len(row) for row in looks] == [1, 2]


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
    first, last = losses_of(file, steps=20)
    assert last < 0.6 * first


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
    without_python(page)
    page.goto(f"{site}#/built")
    page.locator(".my-engine .cm-content").wait_for()
    file = downloaded(page, page.locator(".built").get_by_role("button", name="Download").click, tmp_path)
    first, last = losses_of(file, steps=20)
    assert last < 0.6 * first


# The stepper on one's own class.


def test_ones_own_class_is_told_as_the_chain_rule(page, site):
    have_passed(page, OWN)
    lesson = next(lesson for lesson in COURSE.lessons if any(getattr(block, "own", False) for block in lesson.blocks))
    go(page, site, lesson.id)
    stepper = page.locator(".stepper-block").first
    stepper.locator(".cr-graph").wait_for()
    assert "by your own class" in stepper.text_content()
    equations = []
    onward = stepper.get_by_role("button", name="Step forward")
    while onward.get_attribute("aria-disabled") != "true":
        equations.append(stepper.locator(".cr-equation").text_content())
        onward.click()
    assert any(re.fullmatch(r"(\w+)\.grad \+= (\w+)\.grad · ∂\2/∂\1 = \S+ · \S+ = \S+", text) for text in equations)
    assert not any("→" in text for text in equations)


# The first page.


def step_of(page):
    return int(re.search(r"Step (\d+)", page.locator(".living .cr-count").text_content())[1])


def test_the_first_page_has_a_graph_that_steps_by_itself(open_page, site):
    page = open_page(reduced_motion="no-preference")
    page.clock.install()
    without_python(page)
    page.goto(site)
    page.locator(".living .cr-graph").wait_for()
    page.wait_for_selector(".living [aria-label=Pause]")
    until(page, "!document.querySelector('.living .cr-count').textContent.startsWith('Step 0')")
    assert page.locator(".living [aria-live=polite]").count() == 0
    page.locator(".living").get_by_role("button", name="Pause").click()
    stopped = step_of(page)
    page.clock.run_for(10_000)
    assert step_of(page) == stopped


def test_the_graph_stands_still_where_motion_is_unwelcome(open_page, site):
    page = open_page(reduced_motion="reduce")
    page.clock.install()
    without_python(page)
    page.goto(site)
    page.locator(".living .cr-graph").wait_for()
    page.clock.run_for(10_000)
    assert page.locator(".living .cr-phase").text_content() == "Complete"
    assert page.locator(".living [aria-label=Pause]").count() == 0


def test_go_on_leads_to_where_one_left(page, site):
    go(page, site, "")
    assert page.locator(".go").text_content() == "Begin: Nudge it"
    open_exercise(page, site, COURSE.exercises["power"])
    page.keyboard.type("# half done\n")
    go(page, site, "")
    assert page.locator(".go").text_content() == "Go on: Build the closures, Power"
    page.locator(".go").click()
    body = page.locator("[data-exercise=power]")
    body.wait_for()
    assert "# half done" in text_of(body)
    until(page, "e => e.getBoundingClientRect().top < innerHeight / 2", body.element_handle())
    have_passed(page, {name: exercise.solution for name, exercise in COURSE.exercises.items()})
    go(page, site, "about")
    go(page, site, "")
    assert page.locator(".go").text_content().startswith("Go on: ")  # there are questions left


def test_when_all_is_done_the_way_leads_to_the_end(page, site):
    exercises = {name: {"passed": exercise.solution} for name, exercise in COURSE.exercises.items()}
    quizzes = {
        block.name: [i for i, choice in enumerate(block.choices) if choice.right]
        for lesson in COURSE.lessons
        for block in lesson.blocks
        if isinstance(block, Quiz)
    }
    visited = {lesson.id: True for lesson in COURSE.lessons}
    progress = {"version": 1, "exercises": exercises, "quizzes": quizzes, "predictions": {}, "visited": visited}
    page.evaluate("text => localStorage.setItem('chainrule-learn', text)", json.dumps(progress))
    page.evaluate("dispatchEvent(new StorageEvent('storage', { key: 'chainrule-learn' }))")
    go(page, site, "")
    page.locator(".go").click()
    page.get_by_role("heading", name="What you built").wait_for()
    assert "Nothing in it is a black box" in page.locator(".lead").text_content()
    go(page, site, COURSE.lessons[-1].id)
    assert page.locator(".ways .after").get_attribute("href") == "#/built"


# Loading.


class Slow(SimpleHTTPRequestHandler):
    """Sends Python's largest file in pieces, each when it is told to."""

    pieces = 4
    turn = threading.Semaphore(0)

    def log_message(self, *arguments):
        pass

    def copyfile(self, source, outputfile):
        text = source.read()
        slow = self.path.endswith(".wasm")
        size = len(text) // self.pieces + 1 if slow else len(text)
        for start in range(0, len(text), size):
            if slow:
                self.turn.acquire()
            outputfile.write(text[start : start + size])


def test_a_slow_line_is_not_an_error_and_shows_its_megabytes(chromium):
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Slow, directory=str(site_folder())))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = chromium.new_context(reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.clock.install()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    page.clock.run_for(2000)
    page.wait_for_selector(".python[data-state=loading]")
    shown = []
    for _ in range(Slow.pieces):
        page.clock.run_for(30_000)  # two minutes in all
        assert page.locator(".python").get_attribute("data-state") == "loading"
        before = page.locator(".python progress").evaluate("bar => bar.value")
        Slow.turn.release()
        until(page, "before => document.querySelector('.python progress').value > before", before)
        shown.append(page.locator(".python .amount").text_content())
    page.clock.resume()
    until(page, "() => ['ready', 'busy'].includes(document.querySelector('.python').dataset.state)")
    assert re.fullmatch(r"\d\.\d of 1\d\.\d MB", shown[0])
    assert not page.locator(".python progress").is_visible()
    context.close()
    server.shutdown()
    server.server_close()


def test_the_site_can_be_hosted_under_any_path(serve, open_page, tmp_path):
    (tmp_path / "some" / "path").parent.mkdir()
    (tmp_path / "some" / "path").symlink_to(site_folder(), target_is_directory=True)
    page = open_page(reduced_motion="reduce")
    missing = []
    page.on("response", lambda answer: answer.status >= 400 and missing.append(answer.url))
    page.goto(f"{serve(tmp_path)}/some/path/#/04-closures")
    wait_for_python(page)
    page.locator(".stepper-block .cr-graph").first.wait_for()
    for place in ("", "12-tensors", "built", "about"):
        page.evaluate("place => (location.hash = `#/${place}`)", place)
        page.wait_for_timeout(700)
    page.locator(".licences details").nth(5).wait_for(state="attached")
    assert missing == []
    page.close()  # before its server goes


# Moving about.


def test_back_returns_to_the_same_place(page, site):
    go(page, site, "05-backward")
    page.locator(".stepper-block .cr-graph").first.wait_for()
    page.evaluate("scrollTo(0, 1500)")
    page.wait_for_timeout(400)
    page.locator(".ways .after").evaluate("link => link.click()")
    page.get_by_role("heading", name="The diamond").wait_for()
    until(page, "scrollY === 0")
    page.go_back()
    page.locator("[data-exercise=backward]").wait_for()
    until(page, "Math.abs(scrollY - 1500) < 60")
    page.go_forward()
    page.get_by_role("heading", name="The diamond").wait_for()
    until(page, "scrollY === 0")


def test_the_skip_link_survives_a_reload(open_page, site):
    page = open_page()
    without_python(page)
    go(page, site, "05-backward")
    page.evaluate("document.activeElement.blur()")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.reload()
    assert page.locator("h1").text_content() == "backward(), and why order matters"
    page.goto(f"{site}#content")  # an address from before
    page.reload()
    assert page.locator("h1").text_content() == "Build backpropagation yourself"


def test_two_tabs_do_not_write_over_each_other_unseen(page, site):
    add = COURSE.exercises["add"]
    body = open_exercise(page, site, add)
    paste_code(page, "mine = 1")
    other = page.context.new_page()
    without_python(other)
    other.goto(page.url)
    theirs = open_exercise(other, site, add)
    assert text_of(theirs) == "mine = 1"
    paste_code(other, "theirs = 2")
    notice = body.locator(".other-tab")
    notice.wait_for()
    assert "changed in another tab" in notice.text_content()
    assert text_of(body) == "mine = 1"
    notice.get_by_role("button", name="What is here").click()
    assert not notice.is_visible()
    theirs.locator(".other-tab").wait_for()
    theirs.locator(".other-tab").get_by_role("button", name="The other tab's").click()
    assert text_of(theirs) == "mine = 1"
    paste_code(other, "theirs = 3")
    notice.wait_for()
    notice.get_by_role("button", name="The other tab's").click()
    assert text_of(body) == "theirs = 3"
    other.close()


@pytest.mark.parametrize("place", ["", "04-closures", "03-worked-expression", "06-diamond"])
def test_graphs_fit_on_a_phone(shared, site, place):
    page, _ = shared
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        go(page, site, "about")
        go(page, site, place)
        page.locator(".cr-graph").first.wait_for()
        for stage in page.locator(".cr-stage").all():
            assert stage.evaluate("stage => stage.scrollWidth <= stage.clientWidth")
    finally:
        page.set_viewport_size({"width": 1200, "height": 900})


METHOD = """
    def __mul__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data * other.data, (self, other), "*")

        def _backward():
            self.grad += other.data * out.grad
            other.grad += self.data * out.grad

        out._backward = _backward
        return out
"""


@pytest.mark.parametrize("around", ["", "class Value:\n    def __add__(self, other):\n        return 1\n"])
def test_a_whole_method_is_understood_where_lines_are_asked(page, site, around):
    body = open_exercise(page, site, COURSE.exercises["mul"])
    paste_code(page, around + METHOD)
    assert check(page, body) == "right"
    assert text_of(body) == "\n".join(line[8:] for line in METHOD.splitlines()[5:8])
    assert "lines that are asked for" in body.locator(".exercise-status").text_content()
