"""`chainrule learn`: serves the course's site to this computer only.

Any web host could serve it. This server adds what hosts often lack: the MIME types that browsers insist on, and the two
headers that let the page share memory with its Python, so that code can be interrupted. With a folder of lessons, every
request for `course.json` reads them again. Only the site's files are found, by name: no path of a request ever reaches
the file system. No client can keep the server busy for ever or exhaust its descriptors: requests have a deadline, and
connections are limited.
"""

from __future__ import annotations

import errno
import functools
import http.server
import io
import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from chainrule.learn.grading import course_json
from chainrule.learn.lesson_files import LessonError, load_course

ADDRESS = "127.0.0.1"
TEXT_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript"}
TYPES = {suffix: f"{kind}; charset=utf-8" for suffix, kind in {**TEXT_TYPES, ".json": "application/json"}.items()}
TYPES |= {".wasm": "application/wasm", ".woff2": "font/woff2", ".zip": "application/zip"}
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}
MOST_CONNECTIONS = 100
RESERVED = 32  # file descriptors not for connections; a connection needs two: for itself and for a file
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def site_folder() -> Path:
    """The folder of the built site, or an error that names the command that builds it."""
    with as_file(files("chainrule.learn") / "site") as folder:
        if not (folder / "index.html").is_file():
            checkout = (folder.parents[3] / "lessons" / "build.mjs").is_file()
            command = "`make lessons`" if checkout else "`pip install .` in the checkout again"
            raise FileNotFoundError(f"the lessons are not built: install Node.js 20 or later, then run {command}")
        return folder


def site_files(folder: Path) -> dict[str, str]:
    """The served files, by the path that a browser requests; links out of the site are left out."""
    inside = (folder / "index.html").resolve().parent  # an installer may have made every file a link
    found = {
        f"/{file.relative_to(folder).as_posix()}": str(file)
        for file in folder.rglob("*")
        if file.is_file() and file.resolve().is_relative_to(inside)
    }
    return found | {"/": found["/index.html"]}


def make_server(lessons: str | Path | None = None, port: int = 0) -> Server:
    """A server for the site, not yet running, on a free port unless `port` is given."""
    site = site_files(site_folder())
    if lessons is not None:
        load_course(lessons)  # report mistakes in the folder before the browser opens
    handler = functools.partial(Handler, site=site, lessons=lessons)
    try:
        return Server((ADDRESS, port), handler)
    except OSError as error:
        raise OSError(f"port {port} cannot be used ({error.strerror}): choose another, or leave `--port` out") from None


_ONE_AT_A_TIME = threading.Lock()  # `course_json` runs wrong answers, which redirects standard output


def course_text(lessons: str | Path) -> bytes:
    """The course in a folder as JSON for the page; a mistake in one of its files, too."""
    try:
        with _ONE_AT_A_TIME:
            return course_json(load_course(lessons)).encode()
    except (LessonError, OSError) as error:
        return json.dumps({"error": str(error)}).encode()


class Server(http.server.ThreadingHTTPServer):
    """Stops at once, without waiting for requests under way.

    When the number of connections is at its limit, the one that has been silent longest is closed for the next one. If
    all are busy, the next one waits in the system's queue.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # a page asks for many files at once
    pause = 0.2  # seconds before accepting is tried again, unless a connection ends earlier

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.most_connections = _most_connections()
        self.connections = 0
        self.silent: dict[socket.socket, None] = {}  # those waiting for a request, the longest first
        self.changed = threading.Condition()
        super().__init__(*arguments, **options)

    def get_request(self) -> tuple[socket.socket, Any]:
        if self.connections >= self.most_connections:
            self.close_the_most_silent()
            self.wait_for_room()
            if self.connections >= self.most_connections:
                raise BlockingIOError("all connections are busy")  # the server's loop tries again
        try:
            request, address = super().get_request()
        except OSError as error:
            if error.errno in EXHAUSTED:  # the queue is not empty, so the loop would spin
                self.wait_for_room()
            raise
        with self.changed:
            self.connections += 1
        return request, address

    def wait_for_room(self) -> None:
        """Wait until a connection ends, or for a moment."""
        with self.changed:
            self.changed.wait(self.pause)

    def close_the_most_silent(self) -> None:
        """Shut down the connection that has been silent longest, so that its thread ends."""
        with self.changed:
            connection = next(iter(self.silent), None)
            if connection is not None:
                del self.silent[connection]
                with suppress(OSError):  # it has already ended
                    connection.shutdown(socket.SHUT_RDWR)

    def close_request(self, request: Any) -> None:
        super().close_request(request)
        with self.changed:
            self.connections -= 1
            self.changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves before a file was sent is not an error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _most_connections() -> int:
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return MOST_CONNECTIONS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if limit < 0 else max(1, min(MOST_CONNECTIONS, (limit - RESERVED) // 2))


class Punctual(io.RawIOBase):
    """A connection whose reads and writes must finish by a deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.end = connection, 0.0

    def set_deadline(self, seconds: float) -> None:
        """Everything that follows must finish within `seconds`, or raises a TimeoutError."""
        self.end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._in_time().recv_into(buffer)

    def write(self, data: Any) -> int:
        self._in_time().sendall(data)
        return memoryview(data).nbytes

    def _in_time(self) -> socket.socket:
        left = self.end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("the time for this request is over")
        self.connection.settimeout(left)
        return self.connection


class Handler(http.server.SimpleHTTPRequestHandler):
    """Sends the site's files, with the headers that Python in a page needs."""

    server: Server
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, **TYPES}  # noqa: RUF012  # as the base has it
    protocol_version = "HTTP/1.1"
    silence = 30.0  # seconds after which a silent connection is closed
    deadline = 60.0  # seconds from the first byte of a request to the last of its answer

    def __init__(self, *arguments: Any, site: Mapping[str, str], lessons: str | Path | None, **options: Any) -> None:
        self.site, self.lessons = site, lessons
        super().__init__(*arguments, **options)

    def setup(self) -> None:
        """Replaces the base class's, whose timeout starts again at every byte."""
        self.connection = self.request
        self.stream = Punctual(self.connection)
        self.rfile = self.heard = io.BufferedReader(self.stream)
        self.wfile = self.stream  # type: ignore[assignment]  # unbuffered, as the base has it

    def handle_one_request(self) -> None:
        if self._hears_something():
            self.stream.set_deadline(self.deadline)
            super().handle_one_request()
        else:
            self.close_connection = True

    def _hears_something(self) -> bool:
        with self.server.changed:
            self.server.silent[self.connection] = None
        self.stream.set_deadline(self.silence)
        try:
            return bool(self.heard.peek(1))
        except TimeoutError:
            return False
        finally:
            with self.server.changed:
                self.server.silent.pop(self.connection, None)

    def send_head(self) -> BinaryIO | None:  # for GET and HEAD, which the base class handles
        if not self._is_for_us():
            self.send_error(HTTPStatus.FORBIDDEN, "This server answers to its own address only")
            return None
        if self.lessons is None or self._path() != "/course.json":
            return super().send_head()
        text = course_text(self.lessons)
        self.stream.set_deadline(self.deadline)  # making the course took time that is not the browser's
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TYPES[".json"])
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        return io.BytesIO(text)

    def _is_for_us(self) -> bool:
        """Guards against DNS rebinding: a page elsewhere whose host name resolves to here sends that name."""
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and hosts[0].rsplit(":", 1)[0].lower() in (ADDRESS, "localhost")

    def _path(self) -> str:
        return unquote(self.path.partition("?")[0].partition("#")[0])

    def translate_path(self, path: str) -> str:
        return self.site.get(self._path(), "")

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # as the base calls it
        """Requests are not logged."""
