"""A real browser for the tests of pages: Debian's Chromium, headless.

`browser_page` is a fresh page. A test that uses it fails if the page logs an error, throws one, or asks for anything
that is not on this machine. `serve` serves files to it where opening them is not enough.
"""

import functools
import http.server
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from project import missing

CHROMIUM = Path("/usr/bin/chromium")
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 90_000  # milliseconds: what takes a moment, or Python to load, may take long on a busy machine
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@pytest.fixture(scope="session")
def chromium():
    if not CHROMIUM.exists():
        missing(f"{CHROMIUM} is missing: install it with `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, serve):  # pages go before their server: what they still ask for then would be an error
    """A function that opens a fresh page with the given settings: `open_page(color_scheme="dark")`."""
    contexts, problems = [], []

    def open_one(**settings):
        context = chromium.new_context(**settings)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        watch(page, problems)
        return page

    yield open_one
    found = noted(contexts, problems)
    for context in contexts:
        context.close()
    assert found == [], "\n".join(found)


@pytest.fixture
def browser_page(open_page):
    return open_page()


def watch(page, problems):
    """Note every error of a page, and every request that leaves this machine."""
    page.on("console", lambda message: message.type == "error" and problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("request", lambda request: is_local(request.url) or problems.append(f"request: {request.url}"))


def noted(contexts, problems):
    """The problems of pages that are still open. Each of them answers first, so that none of its messages is under way.

    What a page says as it is taken away is about requests that were cut off, and who is heard then is a matter of luck.
    """
    for page in [page for context in contexts for page in context.pages]:
        page.evaluate("0")
    return [*problems]


def stop_the_clock(page):
    """From here on the page's time moves only by `page.clock.run_for(milliseconds)`."""
    page.clock.install(time=0)
    page.clock.pause_at(1_000_000)


def is_local(url):
    parts = urlsplit(url)
    return parts.scheme in ("file", "data", "blob", "about") or parts.hostname in LOOPBACK


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def serve():
    """A function that serves a folder over HTTP, to this machine only, and returns the address."""
    servers = []

    def serve_folder(folder):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield serve_folder
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()
