"""What a process that runs a stranger's answer may do, and the folder that it does it in.

Time, memory and files are limited by the system. Other processes can be neither started nor signalled: a hook in Python
says so in a sentence, and on Linux the kernel refuses whatever gets past the hook, such as a `fork` through ctypes, and
more (see `kernel`). Elsewhere the answer has the rights of whoever grades it, on files and on the network.
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

STARTS_PROCESSES = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
}


@dataclass(frozen=True)
class Limits:
    """What an answer may use up. On macOS, memory is not limited by the system."""

    seconds: float = 10.0
    megabytes: int = 512
    file_megabytes: int = 1
    folder_megabytes: int = 32
    folder_files: int = 1000
    open_files: int = 64


def confine(limits: Limits, out_of_time: Callable[[], object]) -> None:
    """Put the limits on this process, in its present folder; `out_of_time` is called when its seconds are over."""
    import resource

    wanted = {
        resource.RLIMIT_CPU: int(limits.seconds) + 2,
        resource.RLIMIT_AS: limits.megabytes << 20,
        resource.RLIMIT_FSIZE: limits.file_megabytes << 20,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: 0,  # the system exempts its administrator, hence the hook and the filter
        resource.RLIMIT_CORE: 0,
    }
    for limit, number in wanted.items():
        try:
            resource.setrlimit(limit, (number, number + (limit == resource.RLIMIT_CPU)))  # a second to be told in
        except (ValueError, OSError):  # the system's own limit is lower, or it knows no such limit
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


# The folder.


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder, gone at the end with all that is in it, however deep, and whatever stands at its name by then."""
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
        with suppress(OSError):  # a link that was put there; it is not followed
            os.unlink(path)


def _empty(folder: int) -> None:
    """Without recursion: what is in inner folders is moved up, for they can be deeper than a path can be long."""
    prefix, moved = secrets.token_hex(8), 0
    os.fchmod(folder, stat.S_IRWXU)
    while names := os.listdir(folder):
        for name in names:
            try:
                os.unlink(name, dir_fd=folder)
                continue
            except (IsADirectoryError, PermissionError):  # Linux says the one of folders, macOS the other
                os.chmod(name, stat.S_IRWXU, dir_fd=folder)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            for part in os.listdir(inner):
                if stat.S_ISDIR(os.lstat(part, dir_fd=inner).st_mode):  # one that is closed cannot be moved
                    os.chmod(part, stat.S_IRWXU, dir_fd=inner)
                os.rename(part, f"{prefix}{moved}", src_dir_fd=inner, dst_dir_fd=folder)
                moved += 1
            os.close(inner)
            os.rmdir(name, dir_fd=folder)


def overfull(path: str, limits: Limits) -> bool:
    """Whether a folder holds more than an answer may leave there."""
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
        except OSError as error:  # what is gone meanwhile, or closed, does not count
            if error.errno == errno.ENAMETOOLONG:
                return True
    return False
