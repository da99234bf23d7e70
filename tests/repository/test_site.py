"""The documentation builds without a warning; what it links to and shows is there, and what its notebooks show too."""

import base64
import inspect
import math
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from PIL import Image
from run_notebooks import execute, keep_picture, run
from same_picture import same_picture

import chainrule
from chainrule import compiler, drawing, ops
from chainrule.debug import gradient_check as checks
from project import ROOT

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src")}
ALIASES = {  # the reference has them where they are imported from, or defined
    "chainrule.AnomalyError": "chainrule.debug.anomalies.AnomalyError",
    "chainrule.compiler.trace.symbols.TracingError": "chainrule.compiler.TracingError",
    "chainrule.drawing.picture.TooLargeError": "chainrule.drawing.TooLargeError",
}


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.places.update(filter(None, [given.get("id"), given.get("name")]))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        for name, value in attributes:
            if (tag, name) in LOADED and value and given.get("rel") not in ("canonical", "next", "prev"):
                self.loads.append(value)


def problems(folder):
    """Every link and every picture of a built site that leads nowhere, and whatever it would load from elsewhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        for address in page.links + page.loads:
            parts = urlsplit(address)
            if parts.scheme in ("http", "https", "mailto", "data") or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    found.append(f"{name} loads {address}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() and name != Path("404.html"):  # that one does not know where it will be shown
                found.append(f"{name} leads to {address}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{name} leads to {address}, a page without that place")
    return found


def test_a_broken_site_is_noticed(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="gone.html">a</a><a href="#nowhere">b</a><a id="here" href="#here">c</a>'
        '<img src="https://example.org/x.png"><img src="x.png"><a href="https://example.org">d</a>'
    )
    assert problems(tmp_path) == [
        "index.html leads to gone.html, which is not there",
        "index.html leads to #nowhere, a page without that place",
        "index.html loads https://example.org/x.png",
        "index.html leads to x.png, which is not there",
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. Of several processes that run tests, one builds it, and the others wait."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "site"
    try:
        shared.mkdir()
    except FileExistsError:
        deadline = time.monotonic() + 600
        while not (shared / "finished").exists():
            assert time.monotonic() < deadline, "the process that builds the site has not finished"
            time.sleep(0.2)
    else:
        (shared / "errors").write_text(build(shared / "pages"))
        (shared / "finished").touch()
    assert (shared / "errors").read_text() == ""
    return shared / "pages"


def build(folder):
    """What the build had to complain about."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    return done.stderr if done.returncode or "WARNING -" in done.stderr else ""


@pytest.mark.slow
def test_links_and_pictures(site):
    assert problems(site) == []
    assert (site / "notebooks" / "xor.html").exists()


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html")}
    places = set().union(*(Page(text).places for text in pages.values()))
    names = public_names()
    assert len(names) > 60
    assert sorted(names - places) == []
    assert [row.name for row in ops.TABLE.values() if row.signature not in pages["ops"]] == []
    assert "chainrule.ENGINE" in pages["index"]


def public_names():
    """Where the reference has to have a place: `chainrule.nn.MLP`, by the module that defines it."""
    things = [getattr(chainrule, name) for name in chainrule.__all__ if name not in ("ENGINE", "Value")]
    modules = [checks, compiler, drawing, *(thing for thing in things if inspect.ismodule(thing))]
    things += [getattr(module, name) for module in modules for name in getattr(module, "__all__", [])]
    defined = [thing for thing in things if inspect.isclass(thing) or inspect.isfunction(thing)]
    return {ALIASES.get(name, name) for name in (f"{d.__module__}.{d.__qualname__}" for d in defined)} | {
        "chainrule.engine.Value",
        "chainrule.engine.Value.backward",
        "chainrule.nn.INITIALISERS",
    }


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site, open_page, serve):
    address = serve(site)
    for scheme, width in (("light", 1280), ("dark", 390)):
        page = open_page(color_scheme=scheme, viewport={"width": width, "height": 800})
        for name in ("index", "gallery", "notebooks/op_by_hand", "reference/nn"):
            page.goto(f"{address}/{name}.html", wait_until="networkidle")
            broken = (
                "[...document.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src)"
            )
            assert page.evaluate(broken) == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide at {width}"


@pytest.mark.slow
@pytest.mark.parametrize("opened_as", ["a site", "a file"])
def test_the_search_finds_a_page(site, open_page, serve, opened_as):
    page = open_page()
    page.goto(f"{serve(site) if opened_as == 'a site' else site.as_uri()}/how-to/compile.html")
    page.keyboard.press("/")
    page.keyboard.type("loop in time")
    results = page.locator(".md-search-result__link")  # they change with every letter
    page.locator(".md-search-result__link[href*='notebooks/finding_the_tensors.html']").first.wait_for(state="attached")
    results.first.click()
    page.locator("mark", has_text="loop").first.wait_for()


@pytest.mark.slow
def test_the_stepper_on_the_front_page_is_alive(site, open_page, serve):
    page = open_page()
    page.goto(f"{serve(site)}/index.html")
    frame = page.frame_locator("iframe.stepper")
    frame.get_by_role("button", name="Last step").click()
    assert "grad 6" in frame.locator("g[data-node='0']").get_attribute("aria-label")


# Forms of output that each must have at least so often, and words that must be printed.
SHOWN = {
    "xor": ({"image/png": 2, "image/svg+xml": 1, "text/html": 1}, ["tanh     0.00  1.00  1.00  0.00", "3 of 4"]),
    "four_points": ({"image/png": 1, "image/svg+xml": 3}, ["41 parameters", "answer"]),
    "moons": (
        {"image/png": 4, "image/svg+xml": 1, "text/html": 1},
        ["here        0.8958441028683222   0.010978370135492717   1.0"],
    ),
    "op_by_hand": (
        {"image/svg+xml": 1, "text/html": 3},
        ["(cell In[4], line 4) overwrites the gradient", "v1[0] = 0 + Σi<3 v0[i]"],
    ),
    "finding_the_tensors": (
        {"image/svg+xml": 2},
        ["65,818 scalar nodes in 28 array statements", "repeat r<", "v9[0] = v7[0]·0.01 + 0.0001·v8[0]"],
    ),
}


def test_every_notebook_is_known_here():
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == SHOWN.keys()


@pytest.mark.parametrize("name", SHOWN)
def test_notebooks_are_kept_with_what_they_show(name):
    book = kept(name)
    nbformat.validate(book)
    assert [cell.execution_count for cell in code_of(book)] == [*range(1, len(code_of(book)) + 1)]
    outputs = [output for cell in code_of(book) for output in cell.outputs]
    forms, words = SHOWN[name]
    for form, least in forms.items():
        assert sum(form in output.get("data", {}) for output in outputs) >= least, form
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    for word in words:
        assert word in printed
    everything = (ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert re.search(r"/home/|/tmp/|0x[0-9a-f]{6,}|stderr|Fontconfig", everything) is None
    assert str(ROOT) not in everything


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_notebooks_show_what_they_would_show_now(name):
    fresh = kept(name)
    run(fresh, ROOT / "notebooks")  # a cell that fails is an error
    assert fresh.metadata == kept(name).metadata
    for cell, before in zip(code_of(fresh), code_of(kept(name)), strict=True):
        assert [forms_of(output) for output in cell.outputs] == [forms_of(output) for output in before.outputs]
        for now, then in zip(words_of(cell), words_of(before), strict=True):
            assert now == then or math.isclose(float(now), float(then), rel_tol=1e-3, abs_tol=1e-9), "run `make docs`"


def kept(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def forms_of(output):
    return output.output_type, {*output.get("data", {})}


def words_of(cell):
    """What a cell shows as text, numbers apart from what stands between them."""
    texts = [output.get("text") or output["data"]["text/plain"] for output in cell.outputs]
    return [word for word in re.split(r"(-?\d+(?:\.\d+)?(?:e[+-]\d+)?)", "\n".join(texts)) if word]


def test_a_measured_time_stays_and_a_murmur_goes(tmp_path):
    cells = [nbformat.v4.new_code_cell("import sys, time; print(time.time()); print('murmur', file=sys.stderr)")] * 2
    book = nbformat.v4.new_notebook(cells=[nbformat.from_dict({**cell, "id": f"c{k}"}) for k, cell in enumerate(cells)])
    book.cells[0].metadata["tags"] = ["timing"]
    run(book, tmp_path)
    first, second = (cell.outputs for cell in book.cells)
    assert [output.name for output in first + second] == ["stdout", "stdout"]
    run(book, tmp_path)
    assert book.cells[0].outputs == first
    assert book.cells[1].outputs != second
    assert "language_info" not in book.metadata


def test_pictures_that_look_the_same_stay():
    def picture(red, size=(4, 3)):
        Image.new("RGB", size, (red, 100, 200)).save(content := BytesIO(), format="PNG")
        return content.getvalue()

    assert same_picture(picture(50), picture(52))
    assert not same_picture(picture(50), picture(70))
    assert not same_picture(picture(50), picture(50, size=(4, 4)))
    then, now, other = ({"image/png": base64.b64encode(picture(red)).decode()} for red in (50, 52, 70))
    keep_picture(then, now)
    assert now == then
    keep_picture(then, other)
    assert other != then


def test_a_cell_that_fails_is_noticed(tmp_path):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(Exception, match="ZeroDivisionError"):
        execute(book, tmp_path)


def code_of(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]
