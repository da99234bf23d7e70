"""`chainrule learn`: what the server sends, to whom, and what it says when it cannot."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from chainrule.cli import main
from chainrule.learn import server as module
from chainrule.learn.server import make_server

LESSON = "---\ntitle: {}\nsummary: A lesson.\n---\nWelcome."


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever)
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
    monkeypatch.undo()
    monkeypatch.setattr(module, "files", lambda package: tmp_path / "not built")
    assert main(["learn", "--no-browser"]) == 2
    assert "make lessons" in capsys.readouterr().err


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
    pip, quietly = [sys.executable, "-m", "pip", "-q"], {"check": True, "capture_output": True}
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path / "wheels")]
    subprocess.run([*pip, *build, str(Path(__file__).parent.parent)], **quietly)
    (wheel,) = (tmp_path / "wheels").iterdir()
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", str(tmp_path / "site"), str(wheel)], **quietly
    )
    with learn_command(cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}) as port:
        assert len(json.loads(get(port, "/course.json")[1])["lessons"]) == 13
        for file in ("index.html", "worker.js", "pyodide/pyodide.asm.wasm", "chainrule.zip"):
            assert get(port, f"/{file}")[1] == (tmp_path / "site/chainrule/learn/site" / file).read_bytes()
