"""How one of several processes of a run ends, so that the others do not wait for it.

JAX aborts processes that lose contact with one another, with a trace of its own code; and a process that fails first
would wait for the others, which wait for it. So a process that fails leaves at once, and a witness, a small process
beside it, says in one sentence what happened to a process that could not say it itself.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

WATCH = "import sys; sys.stdin.read() == 'done' or print(sys.argv[1], file=sys.stderr, flush=True)"
GRACE = 2.0  # seconds that process 0 stays after a failure: JAX aborts the others when it is gone


@contextmanager
def witnessed(process: int, processes: int, checkpoint: str) -> Iterator[None]:
    """Work that all processes do together: if it fails here, this process leaves without waiting for the others."""
    remedy = (
        f"with resume=True they go on from {checkpoint!r}" if checkpoint else "with a `checkpoint` they could go on"
    )
    sentence = (
        f"chainrule: process {process} of {processes} (counted from 0) ended in the middle of `fit`. It was killed or "
        "crashed, or JAX ended it because another one did. Start all processes again; " + remedy
    )
    witness = subprocess.Popen(
        [sys.executable, "-E", "-S", "-c", WATCH, sentence], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield
    except BaseException:
        atexit.register(_leave, GRACE if process == 0 else 0.0)
        raise
    finally:
        witness.communicate("done")


def _leave(grace: float) -> None:
    """End the process as after an exception, but before JAX waits for the others, which notice at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(grace)
    os._exit(1)
