"""`chainrule learn`: the course's site, served to this computer only.

The site is a folder of files that any web host can serve. This server adds what hosts often lack: the MIME types that
browsers insist on, and the two headers that let the page share memory with its Python, so that code can be interrupted.
With a folder of lessons, `course.json` is made from them at every request: reload the page to see a change.
"""

from __future__ import annotations

import functools
import http.server
import json
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

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


def make_server(lessons: str | Path | None = None, port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server of the site on this computer, not yet running, on a free port unless `port` is given."""
    folder = site_folder()
    course: Callable[[], bytes] | None = None
    if lessons is not None:
        load_course(lessons)  # what is wrong with the folder is best said before the browser opens
        course = functools.partial(course_text, lessons)
    handler = functools.partial(Handler, directory=str(folder), course=course)
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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has left before a file was sent is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the site, with the headers that Python in a page needs."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, **TYPES}  # noqa: RUF012  # as the base has it
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, course: Callable[[], bytes] | None = None, **options: Any) -> None:
        self.course = course
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        if not self._is_for_us():
            self.send_error(HTTPStatus.FORBIDDEN, "This server answers to its own address only")
        elif self.course is not None and self.path.split("?")[0] == "/course.json":
            self._send_course(self.course())
        else:
            super().do_GET()

    def _is_for_us(self) -> bool:
        """A page elsewhere whose name was made to lead here must not read anything: it gives another name."""
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        return host in (ADDRESS, "localhost")

    def _send_course(self, text: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TYPES[".json"])
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # as the base calls it
        """Requests are nobody's business."""
