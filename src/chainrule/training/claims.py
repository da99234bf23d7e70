"""One run at a time per path, so that two do not overwrite each other's checkpoint.

A claim is a lock of the operating system on a small file beside the path. The system releases it when the process ends,
however it ends, so a run that was killed blocks nobody.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from chainrule.core.atomic import hidden_name

try:
    import fcntl
except ImportError:  # not on Windows, where claims hold within a process only
    fcntl = None  # type: ignore[assignment]

_ours: set[tuple[int, str]] = set()  # processes and the files they lock: the system's locks do not tell threads apart
_ours_alone = Lock()


@contextmanager
def claimed(path: str | os.PathLike[str]) -> Iterator[None]:
    """Claim the path while the block runs; an error if another run has it already.

    >>> with claimed("run.safetensors"), claimed("run.safetensors"):
    ...     pass
    Traceback (most recent call last):
    ...
    FileExistsError: another run is writing to 'run.safetensors': wait until it has ended, or give another `checkpoint`
    """
    name = os.fspath(path)
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
