"""A process that works together with others leaves at once when it fails, and is spoken for when it cannot speak."""

import subprocess
import sys
import textwrap

import pytest

START = """
import atexit, os, signal
from chainrule.training.processes import witnessed

atexit.register(print, "has waited for the others")
with witnessed({process}, 4, {checkpoint!r}):
    print("works", end=" ")
"""


def end(last_words, process=1, checkpoint="run.safetensors"):
    """What a process writes, and its exit code, that does this in the end."""
    script = START.format(process=process, checkpoint=checkpoint) + textwrap.indent(last_words, "    ")
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_work_that_is_done():
    ended = end("pass")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "works has waited for the others\n", "")


@pytest.mark.parametrize("process", [0, 1])
def test_an_exception(process):
    ended = end("raise ValueError('wrong')", process)
    assert (ended.returncode, ended.stdout) == (1, "works ")
    assert ended.stderr.endswith("ValueError: wrong\n")


@pytest.mark.parametrize("last_words", ["os.kill(os.getpid(), signal.SIGKILL)", "os.abort()", "os._exit(3)"])
def test_a_sudden_end(last_words):
    ended = end(last_words)
    assert ended.returncode
    assert ended.stderr.endswith(
        "chainrule: process 1 of 4 (counted from 0) ended in the middle of `fit`. It was killed or crashed, or JAX "
        "ended it because another one did. Start all processes again; with resume=True they go on from "
        "'run.safetensors'\n"
    )
    assert "with a `checkpoint` they could go on" in end(last_words, checkpoint="").stderr


def test_an_abort_before_an_exception_is_shown():
    """By JAX's own threads, in a process that has lost the others."""
    ended = end("import sys; sys.excepthook = lambda *error: os.abort()\nraise ConnectionError('lost')")
    assert "process 1 of 4 (counted from 0) ended in the middle of `fit`" in ended.stderr
