"""A path for one run at a time, so that two do not overwrite each other's checkpoint.

A claim is a lock of the system's on a small file beside the path. The system gives it back when the process ends,
however it ends, so a run that was killed stands in nobody's way.
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

_ours: set[tuple[int, str]] = set()  # processes and the files they lock: the system asks the process, not the thread
_ours_alone = Lock()


@contextmanager
def claimed(path: str | os.PathLike[str]) -> Iterator[None]:
    """As long as the block runs, no other one claims the path; an error if there is one already.

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
    """The lock's file, opened and locked; None where there are no locks."""
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
                    f"see to it yourself that no other run writes to {path!r}",
                    RuntimeWarning,
                    stacklevel=5,
                )
                return None
        os.close(handle)  # a run that ended has removed the file in between
    return None


def _taken(path: str) -> FileExistsError:
    return FileExistsError(f"another run is writing to {path!r}: wait until it has ended, or give another `checkpoint`")
