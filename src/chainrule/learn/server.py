"""`chainrule learn`: the course's site, served to this computer only.

The site is a folder of files that any web host can serve. This server adds what hosts often lack: the MIME types that
browsers insist on, and the two headers that let the page share memory with its Python, so that code can be interrupted.
With a folder of lessons, `course.json` is made from them at every request: reload the page to see a change.

What is not one of the site's files, by its very name, is not found: no path of a request ever reaches the file system.
"""

from __future__ import annotations

import functools
import http.server
import io
import json
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from chainrule.learn.lesson_files import load_course
from chainrule.learn.lesson_text import LessonError

ADDRESS = "127.0.0.1"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}
NOT_BUILT = (
    "the lessons are not built: in a checkout, run `make lessons` (it needs Node.js), "
    "or install a wheel, which has them inside"
)


def site_folder() -> Path:
    """Where the built site is; an error that says what to do if there is none."""
    with as_file(files("chainrule.learn") / "site") as folder:
        if not (folder / "index.html").is_file():
            raise FileNotFoundError(NOT_BUILT)
        return folder


def site_files(folder: Path) -> dict[str, str]:
    """The files that are served, by the path that a browser asks for; links that lead out of the site are none."""
    inside = (folder / "index.html").resolve().parent  # an installer may have made a link of every file
    found = {
        f"/{file.relative_to(folder).as_posix()}": str(file)
        for file in folder.rglob("*")
        if file.is_file() and file.resolve().is_relative_to(inside)
    }
    return found | {"/": found["/index.html"]}


def make_server(lessons: str | Path | None = None, port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server of the site on this computer, not yet running, on a free port unless `port` is given."""
    site = site_files(site_folder())
    course: Callable[[], bytes] | None = None
    if lessons is not None:
        load_course(lessons)  # what is wrong with the folder is best said before the browser opens
        course = functools.partial(course_text, lessons)
    handler = functools.partial(Handler, site=site, course=course)
    try:
        return Server((ADDRESS, port), handler)
    except OSError as error:
        raise OSError(f"port {port} cannot be used ({error.strerror}): choose another, or leave `--port` out") from None


_ONE_AT_A_TIME = threading.Lock()  # making a course runs its wrong answers, with standard output elsewhere


def course_text(lessons: str | Path) -> bytes:
    """The course in a folder, as the page reads it; what is wrong with a file of it, in the same form."""
    try:
        with _ONE_AT_A_TIME:
            return load_course(lessons).to_json().encode()
    except (LessonError, OSError) as error:
        return json.dumps({"error": str(error)}).encode()


class Server(http.server.ThreadingHTTPServer):
    """Ends at once: requests that are under way are not waited for."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # a page asks for many files at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has left before a file was sent is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the site, with the headers that Python in a page needs."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, **TYPES}  # noqa: RUF012  # as the base has it
    protocol_version = "HTTP/1.1"
    timeout = 30.0  # seconds without a word, after which a connection is closed

    def __init__(
        self, *arguments: Any, site: Mapping[str, str], course: Callable[[], bytes] | None = None, **options: Any
    ) -> None:
        self.site = site
        self.course = course
        super().__init__(*arguments, **options)

    def send_head(self) -> BinaryIO | None:  # of GET and HEAD, which the base has
        if not self._is_for_us():
            self.send_error(HTTPStatus.FORBIDDEN, "This server answers to its own address only")
            return None
        if self.course is not None and self._path() == "/course.json":
            return self._send_course(self.course())
        return super().send_head()

    def _is_for_us(self) -> bool:
        """A page elsewhere whose name was made to lead here must not read anything: it gives another name."""
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and hosts[0].rsplit(":", 1)[0].lower() in (ADDRESS, "localhost")

    def _path(self) -> str:
        return unquote(self.path.partition("?")[0].partition("#")[0])

    def translate_path(self, path: str) -> str:
        return self.site.get(self._path(), "")

    def _send_course(self, text: bytes) -> BinaryIO:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TYPES[".json"])
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        return io.BytesIO(text)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # as the base calls it
        """Requests are nobody's business."""
