"""What a process that runs a stranger's answer may do.

The system limits time, memory and files. A hook in Python explains that the process can neither start nor signal
others. On Linux the kernel denies what gets past the hook, such as a `fork` through ctypes: a filter of system calls
(x86-64, ARM64) keeps the process from others and from the network, and Landlock (Linux 5.13, where enabled) restricts
it to its folder and to reading Python's own files, except the course's solutions. Without capabilities, root has no
more rights than others. Other systems leave an answer the grading user's rights on files and on the network.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 3, 4, 22, 38
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
    """Limit this process, and its writing to the current folder; calls `out_of_time` when its time is up."""
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
        with suppress(ValueError, OSError):  # the system's own limit is lower, or it has no such limit
            resource.setrlimit(limit, (number, number + (limit == resource.RLIMIT_CPU)))  # one more second to report it
    own = os.getpid()

    def refuse(event: str, arguments: Any) -> None:
        if event in STARTS_PROCESSES:
            raise PermissionError("starting a process is not allowed here")
        if event in ("os.kill", "os.killpg") and (event == "os.killpg" or arguments[0] != own):
            raise PermissionError("sending signals to other processes is not allowed here")

    sys.addaudithook(refuse)
    if sys.platform == "linux":  # what the kernel denies, whatever happens in Python
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # end with the parent
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        keep_to(os.getcwd())
        drop_capabilities()
        filter_calls()
    signal.signal(signal.SIGALRM, lambda *_: out_of_time())
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)


# The grading process.

_guards, _guard = 0, threading.Lock()  # how many threads want this process out of reach
_dumpable = 1  # what it was before the first of them


@contextmanager
def out_of_reach() -> Iterator[None]:
    """Meanwhile no other process of this user can inspect this one: its memory, its open files, its output."""
    _count(+1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _guards, _dumpable
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None).prctl
    with _guard:
        if _guards == 0:
            _dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
        _guards += change
        prctl(PR_SET_DUMPABLE, 0 if _guards else _dumpable, 0, 0, 0)


def drop_capabilities() -> bool:
    """Give up capabilities: what root may do beyond other users. Returns whether that worked."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # the version of the call, and this process
    return bool(ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0)


# System calls, by a filter that the kernel runs for each of them.

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # the kernel's codes for them; below, one column for each


def _numbers(table: str) -> dict[str, tuple[int, int]]:
    """System calls by name, with their number on each machine, -1 where it has no such call."""
    words = iter(table.split())
    return {name: (int(next(words)), int(next(words))) for name in words}


REFUSED = {
    **_numbers("fork 57 -1  vfork 58 -1  execve 59 221  execveat 322 281  unshare 272 97  setns 308 268"),
    **_numbers("socket 41 198"),  # to the network, and to servers that start processes
    # signals to other processes, looks into them, changes of how they run
    **_numbers("tkill 200 130  pidfd_open 434 434  pidfd_getfd 438 438  pidfd_send_signal 424 424  ptrace 101 117"),
    **_numbers("process_vm_readv 310 270  process_vm_writev 311 271  process_madvise 440 440"),
    **_numbers("process_mrelease 448 448  kcmp 312 272  migrate_pages 256 238  move_pages 279 239"),
    **_numbers("setpriority 141 140  ioprio_set 251 30  perf_event_open 298 241  bpf 321 280"),
    **_numbers("userfaultfd 323 282  add_key 248 217  request_key 249 218  keyctl 250 219"),
    # another view of the files
    **_numbers("mount 165 40  umount2 166 39  pivot_root 155 41  chroot 161 51  open_tree 428 428"),
    **_numbers("move_mount 429 429  fsopen 430 430  fsconfig 431 431  fsmount 432 432  fspick 433 433"),
    **_numbers("mount_setattr 442 442  open_by_handle_at 304 265"),
    # a way around this filter
    **_numbers("io_uring_setup 425 425  io_uring_enter 426 426  io_uring_register 427 427"),
}
# Allowed for this process only, by the first argument. In the second group, 0 means itself.
TO_ITSELF_ONLY = _numbers("kill 62 129  tgkill 234 131  rt_sigqueueinfo 129 138  rt_tgsigqueueinfo 297 240")
TO_ITSELF_OR_0 = _numbers(
    "prlimit64 302 261  sched_setaffinity 203 122  sched_setattr 314 274  sched_setparam 142 118  "
    "sched_setscheduler 144 119"
)
REFUSED_COMMANDS = {  # by the second argument: whom a file signals, and input faked on a terminal
    "fcntl": ((72, 25), {"F_SETOWN": 8, "F_SETSIG": 10, "F_SETOWN_EX": 15}),
    "ioctl": ((16, 29), {"FIOSETOWN": 0x8901, "SIOCSPGRP": 0x8902, "TIOCSTI": 0x5412, "TIOCSCTTY": 0x540E}),
}
CLONE, CLONE3 = (56, 220), (435, 435)
NUMBER, MACHINE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24  # their offsets in what the kernel passes
LOAD, SAME, HAS_BITS, AT_LEAST, ANSWER = 0x20, 0x15, 0x45, 0x35, 0x06  # instructions of a filter
ALLOW, REFUSE, SECCOMP_MODE_FILTER, CLONE_THREAD = 0x7FFF0000, 0x00050000, 2, 0x00010000
OTHER_NUMBERING = 0x40000000  # x32

Instruction = tuple[int, int, int, int]


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("then", ctypes.c_ubyte), ("else_", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def filter_calls() -> bool:
    """Install a filter made of the tables above; returns whether that worked."""
    if platform.machine() not in MACHINES or sys.maxsize < 1 << 32:
        return False
    program = [_Instruction(*instruction) for instruction in _filter(platform.machine(), os.getpid())]
    given = _Program(len(program), (_Instruction * len(program))(*program))
    return bool(ctypes.CDLL(None).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0) == 0)


def _filter(machine: str, own: int) -> list[Instruction]:
    """The filter's instructions. Their two middle numbers say how many to skip if a condition holds, and if not."""
    column = list(MACHINES).index(machine)
    refuse, allow = (ANSWER, 0, 0, REFUSE | errno.EPERM), (ANSWER, 0, 0, ALLOW)

    def only(call: int, argument: int, condition: int, *values: int) -> list[Instruction]:
        """Refuse the call unless the condition holds for one of the values."""
        tests = [step for value in values for step in ((condition, 0, 1, value), allow)]
        return [(SAME, 0, len(tests) + 2, call), (LOAD, 0, 0, argument), *tests, refuse]

    def never(call: int, argument: int, *values: int) -> list[Instruction]:
        tests = [step for value in values for step in ((SAME, 0, 1, value), refuse)]
        return [(SAME, 0, len(tests) + 2, call), (LOAD, 0, 0, argument), *tests, allow]

    program: list[Instruction] = [(LOAD, 0, 0, MACHINE), (SAME, 1, 0, MACHINES[machine]), refuse]
    program += [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, OTHER_NUMBERING), refuse]
    for call in [numbers[column] for numbers in REFUSED.values() if numbers[column] >= 0]:
        program += [(SAME, 0, 1, call), refuse]
    for numbers in TO_ITSELF_ONLY.values():
        program += only(numbers[column], FIRST_ARGUMENT, SAME, own)
    for numbers in TO_ITSELF_OR_0.values():
        program += only(numbers[column], FIRST_ARGUMENT, SAME, 0, own)
    for numbers, commands in REFUSED_COMMANDS.values():
        program += never(numbers[column], SECOND_ARGUMENT, *commands.values())
    program += only(CLONE[column], FIRST_ARGUMENT, HAS_BITS, CLONE_THREAD)
    # filters cannot see the flags of clone3; libraries use clone then
    return [*program, (SAME, 0, 1, CLONE3[column]), (ANSWER, 0, 0, REFUSE | errno.ENOSYS), allow]


# Files, by Landlock.

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # numbers are the same on every machine
VERSION, PATH_BENEATH = 1, 1
WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
FILE_RIGHTS = 1 << 0 | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15
RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # how many there are, by the version that introduced them
SIGNALS_AND_SOCKETS = 0b11  # restricted to the enclosure from version 6 on
SYSTEM = ("/usr", "/lib", "/lib64", "/etc", "/opt", "/nix/store", "/gnu/store", "/sys/devices/system/cpu")
PROCESS = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/dev/urandom", "/dev/random")
NOWHERE = ("/dev/null", "/dev/zero")


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("path", ctypes.c_int32))


def landlock_version() -> int:
    """The kernel's version of Landlock; 0 or less if it has none."""
    if sys.platform != "linux":
        return 0
    return int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION))


def keep_to(folder: str) -> bool:
    """Restrict writing to `folder`, and reading to it and Python's own files; returns whether that worked."""
    if (version := landlock_version()) < 1:
        return False
    handled = (1 << max(count for since, count in RIGHTS.items() if since <= version)) - 1
    given = (ctypes.c_uint64 * 3)(handled, 0, SIGNALS_AND_SOCKETS if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    syscall = ctypes.CDLL(None).syscall
    rules = syscall(CREATE_RULESET, given, ctypes.c_size_t(size), 0)
    if rules < 0:
        return False

    def allow(path: str, rights: int) -> None:
        with suppress(OSError):  # it does not exist here
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = _Rule(rights & handled if os.path.isdir(path) else rights & handled & FILE_RIGHTS, place)
            syscall(ADD_RULE, rules, PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(place)

    allow(folder, handled)
    # the course's solutions are in the lesson files, and in the site built from them
    solutions = [os.path.realpath(Path(__file__).parent / name) for name in ("lessons", "site")]
    for path in (*PROCESS, *SYSTEM, sys.prefix, sys.base_prefix, *sys.path):
        for part, rights in _readable(os.path.realpath(path), solutions):
            allow(part, rights)
    for path in NOWHERE:
        allow(path, READ_FILE | WRITE_FILE)
    kept = syscall(RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return bool(kept)


def _readable(path: str, hidden: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The paths and rights that make everything below `path` readable except what is hidden; names stay visible."""
    if path in hidden:
        return
    if not _is_above(path, hidden):
        yield path, READ_FILE | READ_DIR
        return
    yield path, READ_DIR
    with suppress(OSError):  # a folder that can be entered but not listed
        for entry in os.scandir(path):
            place = os.path.realpath(entry.path)
            if not (entry.is_symlink() and _is_above(place, hidden)):  # it could be a cycle
                yield from _readable(place, hidden)


def _is_above(path: str, hidden: Sequence[str]) -> bool:
    return any(os.path.commonpath([path, place]) == path for place in hidden)
