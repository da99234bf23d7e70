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

import nbformat
import pytest

from browser import watch
from project import ROOT

CELLS = {
    "kernel": "print('heard')",
    "value": """
        import random, time
        import chainrule
        from chainrule import Value, data, draw, fit, losses, nn
        a, b = Value(2.0, label="a"), Value(-3.0, label="b")
        L = (a * b + 10.0).tanh()
        L.label = "L"
        L.backward()
        L""",
    "stepper": "chainrule.stepper(L)",
    "bar": """
        model, points = nn.MLP(2, [16, 16, 1], rng=1), data.micrograd_moons()
        pace = lambda training: time.sleep(0.03)
        watched = {"metrics": [losses.accuracy], "validation": points, "callbacks": [pace]}
        history = fit(model, losses.hinge, points, epochs=40, **watched)""",
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
TOO_WIDE = """() => [...document.querySelectorAll(".jp-OutputArea-output")].flatMap((area) => {
    const right = area.getBoundingClientRect().right;
    const shown = [...area.querySelectorAll("img, svg, iframe, table, progress")];
    const wide = shown.filter((thing) => thing.getBoundingClientRect().right > right + 1);
    return wide.map((thing) => thing.outerHTML.slice(0, 80));
})"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab whose notebooks are the cells above, "cells", and one of the repository."""
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
        f"--port={port}",
        "--ServerApp.port_retries=0",
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
        wait_for(f"http://127.0.0.1:{port}/api", server, folder / "log")
        yield f"http://127.0.0.1:{port}/lab/tree"
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # with its kernels: asked politely, it may wait for one for ever
        server.wait()


def wait_for(address, server, log):
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(address).close()
            return
        except OSError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def page(lab, chromium):
    problems = []
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(30_000)
    watch(page, problems)
    yield page
    context.close()
    assert problems == [], "\n".join(problems)


@pytest.fixture(scope="module")
def cells(lab, page):
    """The outputs of the cells, by name, after all of them have been run from the menu."""
    page.goto(f"{lab}/cells.ipynb")
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    wait_for_kernel(page)
    page.evaluate(BARS)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator(".jp-CodeCell").last.locator(".jp-OutputArea-output").wait_for()
    return {name: page.locator(".jp-CodeCell").nth(k).locator(".jp-OutputArea-output") for k, name in enumerate(CELLS)}


def wait_for_kernel(page):
    """Run the first cell until its output comes: a kernel that is said to be idle may not be heard yet."""
    first = page.locator(".jp-CodeCell").first
    first.locator(".cm-content").click()
    for _ in range(30):
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(1000)
        if "heard" in first.locator(".jp-Cell-outputWrapper").inner_text():
            return
    pytest.fail("the kernel does not answer")


def test_every_cell_shows_one_thing_and_no_warning(page, cells):
    assert {name: outputs.count() for name, outputs in cells.items()} == dict.fromkeys(CELLS, 1)
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0


def test_the_bar_moves_and_ends_full_with_the_last_numbers(page, cells):
    seen = [bars for bars in page.evaluate("window.bars") if bars]
    assert {len(bars) for bars in seen} == {1}
    values = [bar for [bar] in seen]
    assert values == sorted(values)
    assert len({*values}) > 4
    assert values[-1] == 40
    last = re.search(r"loss \S+ → (\S+), accuracy \S+ → (\S+), validation_loss", cells["history"].inner_text())
    shown = re.sub(r"\s+", " ", cells["bar"].inner_text())
    assert re.match(rf" ?100% 40/40 \d:\d\d:\d\d loss {last[1]} accuracy {last[2]} validation_loss", shown)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_fits_its_cell(page, cells, theme, tmp_path):
    page.emulate_media(color_scheme=theme)
    page.locator(f"body[data-jp-theme-light={str(theme == 'light').lower()}]").wait_for(state="attached")
    page.wait_for_timeout(300)
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
    assert "grad 1" in frame.locator("g[data-node]").last.get_attribute("aria-label")
    assert cells["stepper"].locator(".chainrule-static").is_hidden()


def test_a_notebook_that_is_not_trusted_shows_what_needs_no_script(page, lab, cells):
    page.goto(f"{lab}/op_by_hand.ipynb?reset")  # without the notebook that was open before
    static = page.locator(".jp-OutputArea-output", has_text="written by hand").last
    static.wait_for()
    assert static.locator("li code").first.is_visible()
    assert page.locator(".jp-OutputArea-output iframe").count() == 0
