"""What a process that runs a stranger's answer may do, and the scratch folder it runs in.

The system limits time, memory and files. The process can neither start nor signal others: a hook in Python explains
that, and on Linux the kernel denies whatever gets past the hook, such as a `fork` through ctypes, and more (see
`kernel`). On other systems the answer has the grading user's rights on files and on the network.
"""

from __future__ import annotations

import errno
import os
import secrets
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from chainrule.learn.kernel import shut_in

STARTS_PROCESSES = frozenset(
    ["os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "subprocess.Popen"]
)


@dataclass(frozen=True)
class Limits:
    """What an answer may use. macOS does not limit memory."""

    seconds: float = 10.0
    megabytes: int = 512
    file_megabytes: int = 1
    folder_megabytes: int = 32
    folder_files: int = 1000
    open_files: int = 64


def confine(limits: Limits, out_of_time: Callable[[], object]) -> None:
    """Limit this process, in its current folder; calls `out_of_time` when its time is up."""
    import resource

    wanted = {
        resource.RLIMIT_CPU: int(limits.seconds) + 2,
        resource.RLIMIT_AS: limits.megabytes << 20,
        resource.RLIMIT_FSIZE: limits.file_megabytes << 20,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: 0,  # root is exempt, hence the hook and the filter
        resource.RLIMIT_CORE: 0,
    }
    for limit, number in wanted.items():
        try:
            resource.setrlimit(limit, (number, number + (limit == resource.RLIMIT_CPU)))  # one more second to report it
        except (ValueError, OSError):  # the system's own limit is lower, or it has no such limit
            continue
    own = os.getpid()

    def refuse(event: str, arguments: Any) -> None:
        if event in STARTS_PROCESSES:
            raise PermissionError("starting a process is not allowed here")
        if event in ("os.kill", "os.killpg") and (event == "os.killpg" or arguments[0] != own):
            raise PermissionError("sending signals to other processes is not allowed here")

    sys.addaudithook(refuse)
    shut_in(os.getcwd())
    signal.signal(signal.SIGALRM, lambda *_: out_of_time())
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)


# The scratch folder.


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder. In the end it is removed with everything in it, however deep, whatever has its name by then."""
    path = os.path.realpath(tempfile.mkdtemp(prefix="chainrule-grade-"))
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield path
    finally:
        with suppress(OSError):
            _empty(handle)
        with suppress(OSError):  # it may have been moved
            os.rmdir(os.readlink(f"/proc/self/fd/{handle}") if sys.platform == "linux" else path)
        os.close(handle)
        with suppress(OSError):  # a link that took its place; it is not followed
            os.unlink(path)


def _empty(folder: int) -> None:
    """Moves the contents of inner folders up instead of recursing: they can be deeper than the longest path."""
    prefix, moved = secrets.token_hex(8), 0
    os.fchmod(folder, stat.S_IRWXU)
    while names := os.listdir(folder):
        for name in names:
            try:
                os.unlink(name, dir_fd=folder)
                continue
            except (IsADirectoryError, PermissionError):  # for folders, on Linux and on macOS
                os.chmod(name, stat.S_IRWXU, dir_fd=folder)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            for part in os.listdir(inner):
                if stat.S_ISDIR(os.lstat(part, dir_fd=inner).st_mode):  # without permissions it cannot be moved
                    os.chmod(part, stat.S_IRWXU, dir_fd=inner)
                os.rename(part, f"{prefix}{moved}", src_dir_fd=inner, dst_dir_fd=folder)
                moved += 1
            os.close(inner)
            os.rmdir(name, dir_fd=folder)


def overfull(path: str, limits: Limits) -> bool:
    """Whether a folder holds more than an answer may write."""
    files = blocks = 0
    pending = [path]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    files += 1
                    blocks += entry.stat(follow_symlinks=False).st_blocks
                    if files > limits.folder_files or blocks * 512 > limits.folder_megabytes << 20:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError as error:  # what has vanished or is inaccessible does not count
            if error.errno == errno.ENAMETOOLONG:
                return True
    return False
