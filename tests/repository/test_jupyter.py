"""A plain JupyterLab, without ipywidgets, in a real browser: one live bar, pictures that fit, and what is left of them
where nothing is trusted."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from types import SimpleNamespace

import nbformat
import pytest
from playwright.sync_api import TimeoutError as NotYetError
from playwright.sync_api import expect

from browser import noted, watch
from project import ROOT

PATIENCE = 180  # seconds: a kernel, its imports and JupyterLab's scripts may have to share two cores with much else
EPOCHS = 6
CELLS = {
    "kernel": "print('heard')",
    "value": """
        import time
        from pathlib import Path
        import chainrule
        from chainrule import Value, data, draw, fit, losses, nn
        a, b = Value(2.0, label="a"), Value(-3.0, label="b")
        L = (a * b + 10.0).tanh()
        L.label = "L"
        L.backward()
        L""",
    "stepper": "chainrule.stepper(L)",
    "bar": f"""
        def wait_for_the_browser(training):
            while not Path(f".drawn_{{training.epoch + 1}}").exists():
                time.sleep(0.01)
            time.sleep(0.11)  # the bar is drawn ten times a second, and not more often

        model, points = nn.MLP(2, [16, 16, 1], rng=1), data.micrograd_moons()
        watched = {{"metrics": [losses.accuracy], "validation": points, "callbacks": [wait_for_the_browser]}}
        history = fit(model, losses.hinge, points, epochs={EPOCHS}, **watched)""",
    "history": "history",
    "drawing": """
        inputs = [[Value(x) for x in point] for point in points.inputs]
        loss = losses.hinge([model(x) for x in inputs], points.targets) + losses.l2(1e-4)(model.parameters())
        program = chainrule.compile(loss, wrt=model.parameters())
        draw(program, model=model)""",
    "program": "program",
    "network": "model",
    "report": "chainrule.gradcheck(lambda x, y: x * y, 2.0, 3.0)",
}
SETTINGS = {
    "themes": {"adaptive-theme": True},  # light or dark, as the browser prefers
    "notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
}
BARS = """() => {
    window.bars = [];
    const bars = () => [...document.querySelectorAll(".jp-OutputArea-output progress")].map((bar) => bar.value);
    const note = () => window.bars.push(bars());
    new MutationObserver(note).observe(document.querySelector(".jp-Notebook"), { childList: true, subtree: true });
}"""
SETTLED = """async () => {
    await Promise.all([...document.images].map((image) => image.decode()));
    for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
}"""
TOO_WIDE = """() => [...document.querySelectorAll(".jp-OutputArea-output")].flatMap((area) => {
    const right = area.getBoundingClientRect().right;
    const shown = [...area.querySelectorAll("img, svg, iframe, table, progress")];
    const wide = shown.filter((thing) => thing.getBoundingClientRect().right > right + 1);
    return wide.map((thing) => thing.outerHTML.slice(0, 80));
})"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab: its `address`, and the `folder` with the cells above as a notebook and one of the repository's."""
    folder = tmp_path_factory.mktemp("lab")
    book = nbformat.v4.new_notebook(metadata=nbformat.read(ROOT / "notebooks" / "xor.ipynb", as_version=4).metadata)
    for name, source in CELLS.items():
        book.cells.append(nbformat.v4.new_code_cell(re.sub(r"\n {8}", "\n", source).strip(), id=name))
    nbformat.write(book, folder / "cells.ipynb")
    shutil.copy(ROOT / "notebooks" / "op_by_hand.ipynb", folder)
    settings = folder / ".settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    for name, chosen in SETTINGS.items():
        (settings / f"{name}.jupyterlab-settings").write_text(json.dumps(chosen))
    places = {f"JUPYTER_{name}_DIR": str(folder / f".{name}") for name in ("CONFIG", "DATA", "RUNTIME")}
    places |= {"JUPYTERLAB_SETTINGS_DIR": str(folder / ".settings"), "IPYTHONDIR": str(folder / ".ipython")}
    inherited = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        "--no-browser",
        "--allow-root",
        f"--port={port}",  # or one nearby, if another program has taken it by then
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.jpserver_extensions={'jupyter_lsp': True}",
        "--IdentityProvider.token=",
        "--LabApp.extension_manager=readonly",
        "--KernelManager.transport=ipc",
    ]
    with open(folder / "log", "w") as log:
        command = [sys.executable, "-m", "jupyterlab", *options]
        server = subprocess.Popen(command, env=inherited | places, stdout=log, stderr=log, start_new_session=True)
    try:
        yield SimpleNamespace(address=address_of(server, folder), folder=folder)
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # with its kernels: asked politely, it may wait for one for ever
        server.wait()


def address_of(server, folder):
    """Where a server can be reached, as soon as it can be."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            said = json.loads((folder / ".RUNTIME" / f"jpserver-{server.pid}.json").read_text())
            address = f"http://127.0.0.1:{said['port']}"
            urllib.request.urlopen(f"{address}/api").close()
            return address
        except (OSError, ValueError):  # there is no file yet, or a part of it, or nobody answers
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def problems():
    """What went wrong in the pages that are open."""
    return []


@pytest.fixture(scope="module")
def open_notebook(lab, chromium, problems):
    """A function that opens a notebook in a page of its own, which stays until the last test is over.

    As a page is left, JupyterLab gives up what it had under way and logs that as errors of its own: "Canceled future
    for debug_request message". So no test leaves a notebook for another, and problems are read before the pages go.
    """
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")

    def open_one(name):
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        watch(page, problems)
        page.goto(f"{lab.address}/lab/workspaces/{name}/tree/{name}.ipynb")
        return page

    yield open_one
    found = noted([context], problems)
    context.close()
    assert found == [], "\n".join(found)


@pytest.fixture(scope="module")
def page(open_notebook):
    return open_notebook("cells")


@pytest.fixture(scope="module")
def cells(lab, page):
    """The outputs of the cells, by name, after all of them have been run from the menu."""
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    wait_for_kernel(page)
    page.evaluate(BARS)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    for epoch in range(1, EPOCHS + 1):
        page.locator(f".jp-OutputArea-output progress[value='{epoch}']").wait_for(state="attached")
        (lab.folder / f".drawn_{epoch}").touch()
    page.locator(".jp-CodeCell").last.locator(".jp-OutputArea-output").wait_for()
    return {name: page.locator(".jp-CodeCell").nth(k).locator(".jp-OutputArea-output") for k, name in enumerate(CELLS)}


def wait_for_kernel(page):
    """Run the first cell until its output comes: a kernel that is said to be idle may not be heard yet."""
    first = page.locator(".jp-CodeCell").first
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        first.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        try:
            first.locator(".jp-OutputArea-output", has_text="heard").wait_for(timeout=3000)
            return
        except NotYetError:
            pass
    pytest.fail("the kernel does not answer")


def test_every_cell_shows_one_thing_and_no_warning(page, cells):
    assert {name: outputs.count() for name, outputs in cells.items()} == dict.fromkeys(CELLS, 1)
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0


def test_the_bar_moves_and_ends_full_with_the_last_numbers(page, cells):
    seen = [bars for bars in page.evaluate("window.bars") if bars]
    assert {len(bars) for bars in seen} == {1}
    values = [bar for [bar] in seen]
    assert values == sorted(values)
    assert {*values} >= {*range(1, EPOCHS + 1)}  # value 0 may have been replaced before it was drawn
    assert values[-1] == EPOCHS
    last = re.search(r"loss \S+ → (\S+), accuracy \S+ → (\S+), validation_loss", cells["history"].inner_text())
    shown = re.sub(r"\s+", " ", cells["bar"].inner_text())
    assert re.match(rf" ?100% {EPOCHS}/{EPOCHS} \d:\d\d:\d\d loss {last[1]} accuracy {last[2]} validation_loss", shown)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_fits_its_cell(page, cells, theme, tmp_path):
    page.emulate_media(color_scheme=theme)
    page.locator(f"body[data-jp-theme-light={str(theme == 'light').lower()}]").wait_for(state="attached")
    page.evaluate(SETTLED)
    assert page.evaluate(TOO_WIDE) == []
    room = cells["drawing"].evaluate("area => area.clientWidth")
    widths = {name: cells[name].locator("img").bounding_box()["width"] for name in ("drawing", "program", "value")}
    assert widths["drawing"] == widths["program"] > 0.9 * room
    assert widths["value"] < 0.9 * room  # not blown up
    for name, output in cells.items():
        output.screenshot(path=tmp_path / f"{name}_{theme}.png")  # for people to look at


def test_the_stepper_is_alive(page, cells):
    frame = cells["stepper"].frame_locator("iframe")
    frame.get_by_role("button", name="Last step").click()
    last = frame.locator("g[data-node]").last
    expect(last).to_have_attribute("aria-label", re.compile("grad 1"), timeout=PATIENCE * 1000)
    cells["stepper"].locator(".chainrule-static").wait_for(state="hidden")


def test_an_error_in_an_output_is_noticed(page, cells, problems):
    cells["stepper"].frame_locator("iframe").locator("body").evaluate("setTimeout(() => { throw Error('planted'); })")
    deadline = time.monotonic() + PATIENCE
    while "error: planted" not in problems and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    problems.remove("error: planted")


def test_a_notebook_that_is_not_trusted_shows_what_needs_no_script(open_notebook):
    page = open_notebook("op_by_hand")
    static = page.locator(".jp-OutputArea-output", has_text="written by hand").last
    static.locator("li code").first.wait_for()
    assert page.locator(".jp-OutputArea-output iframe").count() == 0
