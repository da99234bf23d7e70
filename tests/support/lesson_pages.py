"""The course's site in a real browser: fixtures that open its pages, and what learners do on them."""

import json
import threading
import time
from contextlib import contextmanager

import pytest

from browser import PATIENCE, watch
from chainrule.learn.lesson_files import load_course
from chainrule.learn.server import make_server, site_folder
from project import ROOT, missing

COURSE = load_course()
EXERCISES = list(COURSE.exercises.values())
PLACES = ["", *(lesson.id for lesson in COURSE.lessons), "playground", "built", "about"]
AXE = ROOT / "lessons" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session")
def site():
    """The address of the site."""
    try:
        site_folder()
    except FileNotFoundError as error:
        missing(str(error))
    server = make_server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def lasting_page(chromium, site):
    """A page for many tests, with Python ready, and the problems it has had."""
    context = chromium.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    problems = []
    watch(page, problems)
    page.goto(site)
    wait_for_python(page)
    yield page, problems
    context.close()


@contextmanager
def as_if_new(lasting, site):
    """A lasting page with nothing of other tests in it. Its problems in the meantime are an error."""
    page, problems = lasting
    page.goto(f"{site}#/about")
    page.evaluate("localStorage.removeItem('chainrule-learn')")
    page.evaluate("dispatchEvent(new StorageEvent('storage', { key: 'chainrule-learn' }))")
    yield page
    found = [*problems]
    problems.clear()  # which are not those of the next test
    assert found == []


@pytest.fixture(scope="session")
def shared(chromium, site):
    """One page for the tests of all modules, and the problems it has had."""
    with lasting_page(chromium, site) as lasting:
        yield lasting


@pytest.fixture
def page(shared, site):
    """The shared page, with nothing of other tests in it."""
    with as_if_new(shared, site) as page:
        yield page


def until(page, condition, argument=None, ticks=0, patience=PATIENCE):
    """Wait until a condition, a function in JavaScript, holds. (The page's policy allows no `wait_for_function`.)

    Meanwhile a stopped clock moves by so many milliseconds at every look.
    """
    deadline = time.monotonic() + patience / 1000
    while not page.evaluate(condition, argument):
        assert time.monotonic() < deadline, f"waited in vain for {condition}"
        page.wait_for_timeout(20)
        if ticks:
            page.clock.run_for(ticks)


def wait_for_python(page):
    page.wait_for_selector(".python[data-state=ready]")


def without_python(page):
    """Python's largest file never arrives."""
    page.route("**/pyodide.asm.wasm", lambda route: None)


def go(page, site, place):
    page.goto(f"{site}#/{place}")
    page.wait_for_selector("h1")


def open_exercise(page, site, exercise):
    """The part of the page that holds an exercise, its tab chosen."""
    go(page, site, COURSE.lesson_of(exercise.name).id)
    body = page.locator(f"[data-exercise='{exercise.name}']")
    if not body.is_visible():
        tab_of(page, body).click()
    body.locator(".cm-content").first.click()
    return body


def tab_of(page, body):
    panel = body.locator("xpath=ancestor::*[@role='tabpanel']")
    return page.locator(f"[aria-controls='{panel.get_attribute('id')}']")


def type_code(page, code):
    """Key by key, as a learner would; the editor's own indentation is typed over."""
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    for number, line in enumerate(code.splitlines()):
        if number:
            page.keyboard.press("Enter")
            page.keyboard.press("Shift+Home")
            page.keyboard.press("Delete")
        page.keyboard.type(line)


def paste_code(page, code):
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(code)


def text_of(body):
    lines = body.locator(".editor .cm-line").all_text_contents()
    return "\n".join(line.rstrip().replace("\u200b", "") for line in lines)


def check(page, body):
    """Check by the keyboard; 'right' or 'wrong'."""
    status = body.locator(".exercise-status")
    status.evaluate("element => element.removeAttribute('data-outcome')")
    page.keyboard.press("Control+Enter")
    until(page, "element => element.dataset.outcome", status.element_handle())
    return status.get_attribute("data-outcome")


def exercise_called(name):
    return COURSE.exercises[name]


def have_passed(page, codes):
    """As if the learner had written these, and nothing else."""
    exercises = {name: {"code": code, "passed": code} for name, code in codes.items()}
    progress = {"version": 1, "exercises": exercises, "quizzes": {}, "predictions": {}, "visited": {}}
    page.evaluate("text => localStorage.setItem('chainrule-learn', text)", json.dumps(progress))
    page.evaluate("dispatchEvent(new StorageEvent('storage', { key: 'chainrule-learn' }))")


@pytest.fixture
def own_page(open_page, site):
    """A function that opens a fresh page of the site with Python ready."""

    def open_one(address=site, **settings):
        page = open_page(reduced_motion="reduce", **settings)
        page.goto(address)
        wait_for_python(page)
        return page

    return open_one


def serious_violations(page):
    """What axe finds on the page as it is, in light and dark: the rule, the element, and what is wrong with it."""
    if not AXE.exists():
        missing("axe-core is missing: run `make lessons`")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    violations = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    page.emulate_media(color_scheme="dark")  # which changes colours, and nothing else
    violations += page.evaluate("axe.run(document, { runOnly: ['color-contrast'] })")["violations"]
    page.emulate_media(color_scheme="light")
    return [
        (violation["id"], node["html"][:200], node["failureSummary"][:300])
        for violation in violations
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
