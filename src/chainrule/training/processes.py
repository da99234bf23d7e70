"""Other processes: runs that would overwrite each other's checkpoint, and those of one run that wait for each other.

A claim is a lock of the operating system on a small file beside the path. The system releases it when the process ends,
however it ends, so a run that was killed blocks nobody.

JAX aborts processes that lose contact with one another, with a trace of its own code; and a process that fails first
would wait for the others, which wait for it. So a process that fails leaves at once, and a witness, a small process
beside it, says in one sentence what happened to a process that could not say it itself.
"""

from __future__ import annotations

import atexit
import errno
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from chainrule.core.atomic import check_writable, hidden_name

try:
    import fcntl
except ImportError:  # not on Windows, where claims hold within a process only
    fcntl = None  # type: ignore[assignment]

WATCH = "import sys; sys.stdin.read() == 'done' or print(sys.argv[1], file=sys.stderr, flush=True)"
GRACE = 2.0  # seconds that process 0 stays after a failure: JAX aborts the others when it is gone

_ours: set[tuple[int, str]] = set()  # processes and the files they lock: the system's locks do not tell threads apart
_ours_alone = Lock()


@contextmanager
def claimed(name: str) -> Iterator[None]:
    """Claim the path while the block runs; an error if another run has it already, or if no file can be put there.

    >>> with claimed("run.safetensors"), claimed("run.safetensors"):
    ...     pass
    Traceback (most recent call last):
    ...
    FileExistsError: another run is writing to 'run.safetensors': wait until it has ended, or give another `checkpoint`
    """
    check_writable(name)
    lock = hidden_name(os.path.realpath(name)) + ".lock"
    claim = os.getpid(), lock
    with _ours_alone:
        if claim in _ours:
            raise _taken(name)
        _ours.add(claim)
    try:
        handle = _locked(lock, name)
        try:
            yield
        finally:
            if handle is not None and os.getpid() == claim[0]:  # not in a fork, which does not hold the lock
                with suppress(OSError):  # the folder may be gone
                    os.unlink(lock)
                os.close(handle)
    finally:
        _ours.discard(claim)


def _locked(lock: str, path: str) -> int | None:
    """Open the lock's file and lock it; None if the system has no locks."""
    while fcntl:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise type(error)(f"`checkpoint` {path!r} cannot be claimed, by {lock!r}: {error.strerror}") from None
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(lock), os.fstat(handle)):
                return handle
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                os.close(handle)
                raise _taken(path) from None
            if error.errno != errno.ENOENT:
                os.close(handle)
                warnings.warn(
                    f"the file system of `checkpoint` has no locks ({error.strerror}): "
                    f"make sure yourself that no other run writes to {path!r}",
                    RuntimeWarning,
                    stacklevel=5,
                )
                return None
        os.close(handle)  # a run that ended has removed the file in between
    return None


def _taken(path: str) -> FileExistsError:
    return FileExistsError(f"another run is writing to {path!r}: wait until it has ended, or give another `checkpoint`")


@contextmanager
def witnessed(process: int, processes: int, checkpoint: str) -> Iterator[None]:
    """Work that all processes do together: if it fails here, this process leaves without waiting for the others."""
    import subprocess  # few runs need it, and it takes milliseconds to load

    sentence = (
        f"chainrule: process {process} of {processes} (counted from 0) ended in the middle of `fit`. It was killed or "
        "crashed, or JAX ended it because another one did. Start all processes again; with "
        + (f"resume=True they go on from {checkpoint!r}" if checkpoint else "a `checkpoint` they could go on")
    )
    command = [sys.executable, "-E", "-S", "-c", WATCH, sentence]
    witness = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield
    except BaseException:  # JAX may abort this process before it has said why
        atexit.register(_leave, GRACE if process == 0 else 0.0, witness)
        raise
    witness.communicate("done")


def _leave(grace: float, witness: Any) -> None:
    """End the process as after an exception, but before JAX waits for the others, which notice at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    witness.communicate("done")
    time.sleep(grace)
    os._exit(1)
