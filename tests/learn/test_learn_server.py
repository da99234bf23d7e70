"""`chainrule learn`: what the server sends, to whom, and what it says when it cannot."""

import errno
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from types import SimpleNamespace

import pytest

from chainrule.cli import main
from chainrule.learn import server as module
from chainrule.learn.server import make_server
from project import copy_of_the_project

LESSON = "---\ntitle: {}\nsummary: A lesson.\n---\nWelcome."


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(port, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site of one file of each kind, in place of the built one."""
    folder = tmp_path / "site"
    (folder / "pyodide").mkdir(parents=True)
    names = [
        "index.html",
        "main.js",
        "styles.css",
        "course.json",
        "f.woff2",
        "chainrule.zip",
        "pyodide/a.wasm",
        "pyodide/p.mjs",
    ]
    for name in names:
        (folder / name).write_bytes(b"content of " + name.encode())
    monkeypatch.setattr(module, "site_folder", lambda: folder)
    return folder


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/main.js", "text/javascript; charset=utf-8"),
        ("/pyodide/p.mjs", "text/javascript; charset=utf-8"),
        ("/pyodide/a.wasm", "application/wasm"),
        ("/styles.css", "text/css; charset=utf-8"),
        ("/course.json", "application/json; charset=utf-8"),
        ("/f.woff2", "font/woff2"),
        ("/chainrule.zip", "application/zip"),
    ],
)
def test_files_have_their_types_and_the_page_may_share_memory(site, path, kind):
    with running(make_server()) as port:
        answer, body = get(port, path)
    assert answer.status == 200
    assert body.startswith(b"content of")
    assert answer.headers["Content-Type"] == kind
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"


def test_only_this_computer_is_served(site):
    server = make_server()
    assert server.server_address[0] == "127.0.0.1"
    with running(server) as port:
        assert get(port, "/", f"localhost:{port}")[0].status == 200
        assert get(port, "/", "elsewhere.example")[0].status == 403
        assert get(port, "/../../pyproject.toml")[0].status == 404


def test_a_folder_of_lessons_is_read_at_every_request(site, tmp_path):
    lessons = tmp_path / "lessons"
    lessons.mkdir()
    file = lessons / "01-mine.md"
    file.write_text(LESSON.format("First"))
    with running(make_server(lessons)) as port:
        assert json.loads(get(port, "/course.json")[1])["lessons"][0]["title"] == "First"
        file.write_text(LESSON.format("Second"))
        assert json.loads(get(port, "/course.json")[1])["lessons"][0]["title"] == "Second"
        file.write_text("no front matter")
        assert json.loads(get(port, "/course.json")[1])["error"].startswith("01-mine.md, line 1: ")


def test_what_cannot_be_served_is_told(tmp_path, monkeypatch, capsys, site):
    assert main(["learn", "--no-browser", "--lessons", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    with running(make_server()) as port:
        assert main(["learn", "--no-browser", "--port", str(port)]) == 2
        assert f"port {port} cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "remedy"),
    [
        ("src/chainrule/learn", "run `make lessons`"),
        ("lib/site-packages/chainrule/learn", "run `pip install .` in the"),
    ],
)
def test_where_the_lessons_are_not_built_the_one_command_is_told(tmp_path, monkeypatch, capsys, package, remedy):
    monkeypatch.setattr(module, "files", lambda name: tmp_path / package)
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons/build.mjs").touch()
    assert main(["learn", "--no-browser"]) == 2
    assert f"install Node.js 20 or later, then {remedy}" in capsys.readouterr().err


@pytest.fixture
def built_site():
    try:
        return module.site_folder()
    except FileNotFoundError as error:
        pytest.skip(str(error))


@contextmanager
def learn_command(**settings):
    """The port of a running `chainrule learn`, which Ctrl-C must end."""
    command = [sys.executable, "-m", "chainrule", "learn", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings) as process:
        address = process.stdout.readline().strip()
        try:
            yield int(address.removeprefix("http://127.0.0.1:").removesuffix("/"))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0


@pytest.mark.slow
def test_the_command_prints_its_address_and_ends_with_ctrl_c(built_site):
    with learn_command() as port:
        assert get(port, "/")[0].status == 200


@pytest.mark.slow
def test_a_wheel_that_was_installed_without_a_network_serves_the_course(built_site, tmp_path):
    copy_of_the_project(tmp_path / "project")
    pip, quietly = [sys.executable, "-m", "pip", "-q"], {"check": True, "capture_output": True}
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path / "wheels")]
    subprocess.run([*pip, *build, str(tmp_path / "project")], **quietly)
    (wheel,) = (tmp_path / "wheels").iterdir()
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", str(tmp_path / "site"), str(wheel)], **quietly
    )
    with learn_command(cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}) as port:
        assert len(json.loads(get(port, "/course.json")[1])["lessons"]) == 14
        for file in ("index.html", "worker.js", "pyodide/pyodide.asm.wasm", "chainrule.zip"):
            assert get(port, f"/{file}")[1] == (tmp_path / "site/chainrule/learn/site" / file).read_bytes()


# Hostile requests, through bare sockets.

HEADERS = [
    b"Cross-Origin-Opener-Policy: same-origin",
    b"Cross-Origin-Embedder-Policy: require-corp",
    b"Cross-Origin-Resource-Policy: same-origin",
    b"X-Content-Type-Options: nosniff",
    b"Cache-Control: no-cache",
]


def connected(port, address="127.0.0.1"):
    return closing(socket.create_connection((address, port), timeout=60.0))


def ask(port, request):
    """Whatever comes back until the server closes the connection."""
    with connected(port) as connection:
        with suppress(OSError):  # it closed before it had heard all
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        return heard(connection)


def heard(connection):
    answer = b""
    with suppress(ConnectionError):  # a connection is reset if it is closed before all was read that was sent there
        while piece := connection.recv(1 << 16):
            answer += piece
    return answer


def request(path, method="GET", host="127.0.0.1", more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n".encode("latin-1")


def status_of(answer):
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
def port(site, tmp_path):
    """A running server of a site that has things to hide: beside it, behind links, and a folder without an index."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "site-secret").mkdir()
    (tmp_path / "site-secret" / "secret.txt").write_text("secret")
    (site / "link.txt").symlink_to(tmp_path / "secret.txt")
    (site / "linked").symlink_to(tmp_path, target_is_directory=True)
    (site / "inner.js").symlink_to(site / "main.js")
    (site / "pyodide" / "a name é.txt").write_text("content of a name")
    if hasattr(os, "mkfifo"):
        os.mkfifo(site / "pipe.txt")
    with running(make_server()) as port:
        yield port


OUTSIDE = [
    "/../secret.txt",
    "/../../../../../../../../etc/passwd",
    "/pyodide/../../secret.txt",
    "/%2e%2e/secret.txt",
    "/%2E%2E%2Fsecret.txt",
    "/..%2fsecret.txt",
    "/%252e%252e/secret.txt",
    "/%252e%252e%252fsecret.txt",
    "/..%c0%afsecret.txt",
    "/%c0%ae%c0%ae/secret.txt",
    "/%uff0e%uff0e/secret.txt",
    "/..\\secret.txt",
    "/..%5csecret.txt",
    "/....//secret.txt",
    "/.../secret.txt",
    "/..;/secret.txt",
    "//secret.txt",
    "//etc/passwd",
    "///etc/passwd",
    "/%2f/etc/passwd",
    "/%2fetc/passwd",
    "/etc/passwd",
    "/C:/Windows/win.ini",
    "/file:///etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1/../secret.txt",
    "secret.txt",
    "../secret.txt",
    "*",
    "/main.js%00.html",
    "/%00",
    "/../site-secret/secret.txt",
    "/link.txt",
    "/linked/secret.txt",
    "/linked/site/main.js",
    "/pipe.txt",
    "/?/../secret.txt".replace("?", "%3f"),
    "/~root",
    "/.",
    "/..",
    "/./main.js/..",
    "/main.js/",
    "/main.js/.",
    "/MAIN.JS",
]
FOLDERS = ["/pyodide", "/pyodide/", "/pyodide//", "/pyodide/.", "/linked", "/linked/", "/./", "/.//"]


@pytest.mark.parametrize("path", [*OUTSIDE, *FOLDERS])
def test_only_files_of_the_site_are_found(port, path):
    answer = ask(port, request(path))
    assert status_of(answer) == 404
    assert b"secret" not in answer.partition(b"\r\n\r\n")[2]
    assert b"a.wasm" not in answer
    assert b"Location" not in answer
    assert all(header in answer for header in HEADERS)


def test_files_of_the_site_are_found_however_they_are_spelled(port):
    for path in ("/main.js", "/main.js?v=../1", "/main.js#x", "/%6dain.js", "/inner.js"):
        answer = ask(port, request(path))
        assert answer.endswith(b"content of main.js")
        assert b"Content-Type: text/javascript; charset=utf-8" in answer.replace(b"Content-type", b"Content-Type")
    assert ask(port, request("/pyodide/a%20name%20%C3%A9.txt")).endswith(b"content of a name")


def test_links_between_files_of_a_site_that_was_installed_as_links_are_followed(site, tmp_path, monkeypatch):
    linked = tmp_path / "installed"
    linked.mkdir()
    for name in ("index.html", "main.js"):
        (linked / name).symlink_to(site / name)
    monkeypatch.setattr(module, "site_folder", lambda: linked)
    with running(make_server()) as port:
        assert ask(port, request("/main.js")).endswith(b"content of main.js")


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "CONNECT", "get", "PROPFIND", "X"]
)
def test_other_methods_are_refused(port, site, method):
    answer = ask(port, request("/main.js", method, more="Content-Length: 3\r\n") + b"abc")
    assert status_of(answer) == 501
    assert all(header in answer for header in HEADERS)
    assert (site / "main.js").read_bytes() == b"content of main.js"


def test_heads_are_those_of_the_same_file_without_it(site, tmp_path):
    lessons = tmp_path / "lessons"
    lessons.mkdir()
    (lessons / "01-mine.md").write_text(LESSON.format("First"))
    with running(make_server(lessons)) as port:
        for path in ("/main.js", "/course.json"):
            head, body = ask(port, request(path)).split(b"\r\n\r\n", 1)
            only = ask(port, request(path, "HEAD"))
            without_date = [line for line in head.split(b"\r\n") if not line.startswith(b"Date")]
            assert [line for line in only.split(b"\r\n") if line and not line.startswith(b"Date")] == without_date
            assert b"Content-Length: %d" % len(body) in head


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:1", 200),
        ("LocalHost", 200),
        ("elsewhere.example", 403),
        ("127.0.0.1.elsewhere.example", 403),
        ("localhost.elsewhere.example:80", 403),
        ("elsewhere.example:127.0.0.1", 403),
        ("127.0.0.1:80:80", 403),
        ("0.0.0.0", 403),
        ("[::1]", 403),
        ("", 403),
        ("127.0.0.1\r\nHost: elsewhere.example", 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_other_names_than_its_own_are_refused(port, method, host, status):
    answer = ask(port, request("/main.js", method, host))
    assert status_of(answer) == status
    assert all(header in answer for header in HEADERS)
    assert b"content of" not in answer or (status, method) == (200, "GET")


def test_a_request_without_a_name_is_refused(port):
    assert status_of(ask(port, b"GET /main.js HTTP/1.1\r\n\r\n")) == 403
    assert status_of(ask(port, b"GET /main.js HTTP/1.0\r\n\r\n")) == 403
    assert b"content of" not in ask(port, b"GET /main.js\r\n\r\n")


def test_other_addresses_of_this_computer_do_not_answer(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; finds out which address would be used
            addresses = {"127.0.0.2", probe.getsockname()[0]} - {"127.0.0.1"}
        except OSError:
            addresses = {"127.0.0.2"}
    for address in addresses:
        with pytest.raises(OSError, match=r"refused|unreachable|assign"), connected(port, address):
            pass


MALFORMED = {
    "a giant line": (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", {414}),
    "a giant header": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", {431}),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 1000 + b"\r\n", {431}),
    "noise": (bytes(range(256)) * 10 + b"\r\n\r\n", {400}),
    "zeros": (b"\0" * 1000 + b"\r\n\r\n", {400}),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", {400}),
    "no version": (b"GET / HTTP/x.y\r\n\r\n", {400}),
    "a long version": (b"GET / HTTP/" + b"1" * 5000 + b".1\r\n\r\n", {400, 505}),
    "another version": (b"GET / HTTP/2.0\r\n\r\n", {505}),
    "too many words": (b"GET / / HTTP/1.1\r\n\r\n", {400}),
    "one word": (b"GET\r\n\r\n", {400}),
    "a header without a colon": (b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n", {403}),
    "a folded header": (b"GET / HTTP/1.1\r\nHost:\r\n elsewhere.example\r\n\r\n", {403}),
    "a method of an attribute": (b"_GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {501}),
    "a date": (request("/", more="If-Modified-Since: Mon, 99 Foo 99999 99:99:99 GMT\r\n"), {200}),
    "a range": (request("/", more="Range: bytes=-99999999999999999999-\r\n"), {200}),
    "nothing": (b"", set()),
    "half a line": (b"GET / HT", {400}),
    "half the headers": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX", {200}),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests_get_an_error_and_the_server_goes_on(port, case, capsys):
    content, statuses = MALFORMED[case]
    answer = ask(port, content)
    if answer.startswith(b"HTTP/"):  # what was not read to its end may be cut off
        assert status_of(answer) in statuses
        assert all(header in answer for header in HEADERS)
    else:
        assert b"content of" not in answer
    assert status_of(ask(port, request("/main.js"))) == 200
    assert capsys.readouterr().err == ""


def test_what_follows_in_the_same_connection_is_judged_by_itself(port):
    keep = b"GET /main.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answers = ask(port, keep + keep + request("/main.js", host="elsewhere.example"))
    assert (answers.count(b"HTTP/1.1 200"), answers.count(b"HTTP/1.1 403")) == (2, 1)


def test_connections_that_say_nothing_do_not_keep_others_waiting(port):
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    try:
        for k, connection in enumerate(silent):
            connection.sendall(b"GET /main.js HT"[: k % 16])
        assert status_of(ask(port, request("/main.js"))) == 200
    finally:
        for connection in silent:
            connection.close()


def test_a_connection_that_says_nothing_is_closed(site, monkeypatch):
    monkeypatch.setattr(module.Handler, "silence", 0.1)
    with running(make_server()) as port, connected(port) as connection:
        assert heard(connection) == b""


def still_open(connection):
    """Whether a byte can be sent and nothing is heard, not even an end."""
    try:
        connection.sendall(b"x")
        connection.settimeout(0.02)
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def wait_until(condition):
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("begin", [b"GE", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_a_request_that_comes_byte_by_byte_has_a_deadline_as_a_whole(site, monkeypatch, begin):
    monkeypatch.setattr(module.Handler, "deadline", 0.3)
    with running(make_server()) as port, connected(port) as connection:
        connection.sendall(begin)
        wait_until(lambda: not still_open(connection))


def test_an_answer_that_is_read_byte_by_byte_has_a_deadline_as_a_whole(site, monkeypatch):
    monkeypatch.setattr(module.Handler, "deadline", 0.3)
    (site / "main.js").write_bytes(b"x" * (50 << 20))
    server = make_server()
    with running(server) as port, connected(port) as connection:
        connection.sendall(request("/main.js"))
        assert connection.recv(10)
        wait_until(lambda: not (server.connections and connection.recv(1)))
        assert len(heard(connection)) < 50 << 20


def test_each_request_of_a_connection_has_its_own_deadline(site, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with running(make_server()) as port, closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for _ in range(6):  # more than a deadline in all
            connection.request("GET", "/main.js")
            assert connection.getresponse().read() == b"content of main.js"
            clock[0] += 0.6 * module.Handler.silence


def test_the_most_silent_connection_makes_room(site):
    server = make_server()
    server.most_connections = 3
    with running(server) as port, ExitStack() as stack:
        silent = []
        for k in range(3):
            silent.append(stack.enter_context(connected(port)))
            wait_until(lambda: len(server.silent) == k + 1)  # noqa: B023  # asked at once
        assert status_of(ask(port, request("/main.js"))) == 200
        assert heard(silent[0]) == b""
        wait_until(lambda: server.connections == 2)
        assert status_of(ask(port, request("/main.js"))) == 200


def test_a_connection_waits_while_all_others_are_busy(site, monkeypatch):
    hears, heard_of = module.Handler._hears_something, []
    monkeypatch.setattr(
        module.Handler, "_hears_something", lambda handler: hears(handler) and not heard_of.append(handler)
    )
    server = make_server()
    server.most_connections, server.pause = 2, 0.01
    with running(server) as port, ExitStack() as stack:
        busy = [stack.enter_context(connected(port)) for _ in range(2)]
        for connection in busy:
            connection.sendall(b"GET")
        wait_until(lambda: len(heard_of) == 2)  # a thread that has only begun is silent for a moment
        waiting = stack.enter_context(connected(port))
        waiting.sendall(request("/main.js"))
        waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        assert server.connections == 2
        busy[0].close()
        waiting.settimeout(60.0)
        assert status_of(heard(waiting)) == 200


class Exhausted:
    """A listening socket in a process that has no descriptors left, until `relieved`."""

    def __init__(self, listening):
        self.listening = listening
        self.asked, self.relieved = 0, False

    def accept(self):
        self.asked += 1
        if not self.relieved:
            raise OSError(errno.EMFILE, "Too many open files")
        return self.listening.accept()

    def __getattr__(self, name):
        return getattr(self.listening, name)


def test_without_descriptors_the_server_waits_and_recovers(site, monkeypatch):
    server = make_server()
    server.socket = exhausted = Exhausted(server.socket)
    waits = []

    def wait():
        waits.append(exhausted.asked)
        exhausted.relieved = len(waits) == 3

    monkeypatch.setattr(server, "wait_for_room", wait)
    with running(server) as port:
        assert status_of(ask(port, request("/main.js"))) == 200
    assert waits == [1, 2, 3]  # it waited each time before it asked again


def test_waiting_ends_when_a_connection_does(site):
    server = make_server()
    server.pause = 3600.0
    with running(server) as port, connected(port):
        wait_until(lambda: server.connections == 1)
        waiting = threading.Thread(target=server.wait_for_room)
        waiting.start()
        assert status_of(ask(port, request("/main.js"))) == 200
        wait_until(lambda: not waiting.is_alive())


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on descriptors")
def test_connections_leave_descriptors_for_files(site):
    """With 48 descriptors, 80 connections at once all get their file: some of them in a moment."""
    code = f"""
import pathlib, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
from chainrule.learn import server as module
module.site_folder = lambda: pathlib.Path({str(site)!r})
server = module.make_server()
print(server.server_port, flush=True)
server.serve_forever()
"""
    with (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process,
        ExitStack() as stack,
    ):
        try:
            port = int(process.stdout.readline())
            connections = [stack.enter_context(connected(port)) for _ in range(80)]
            for connection in connections:
                with suppress(ConnectionError):  # those that were silent had to make room
                    connection.sendall(request("/main.js"))
            answers = [heard(connection) for connection in connections]
            assert all(not answer or answer.endswith(b"content of main.js") for answer in answers)
            assert sum(bool(answer) for answer in answers) >= 8
            assert status_of(ask(port, request("/main.js"))) == 200
        finally:
            process.kill()


def test_a_reader_that_does_not_read_keeps_nobody_waiting(site, port):
    (site / "main.js").write_bytes(b"x" * (50 << 20))
    with connected(port) as connection:
        connection.sendall(request("/main.js"))
        assert status_of(ask(port, request("/styles.css"))) == 200


def test_many_at_once_are_all_answered(port):
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: ask(port, request("/main.js")), range(500)))
    assert all(answer.endswith(b"content of main.js") for answer in answers)
