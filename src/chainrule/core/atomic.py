"""Files that appear whole or not at all, and the hidden files that stand beside them for a while."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

TEMPORARY = ".part"


def check_writable(path: str) -> None:
    """That a file can be put at `path`: best asked before the work that makes it.

    >>> check_writable("no/such/folder/model.safetensors")
    Traceback (most recent call last):
    ...
    FileNotFoundError: `path` is in a folder that does not exist: ...
    """
    handle, temporary = _temporary_beside(_place(path))
    os.close(handle)
    os.unlink(temporary)


def write_whole(path: str, content: bytes) -> None:
    """Put `content` at `path`, or where a link there leads, in one move, through a temporary file beside it."""
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """A file to write to, which appears at `path` when all is written, or not at all."""
    place = _place(path)
    handle, temporary = _temporary_beside(place)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException:
        os.unlink(temporary)
        raise
    if hasattr(os, "O_DIRECTORY"):  # not on Windows: have the new name survive a power failure too
        handle = os.open(os.path.dirname(place), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_leftovers(path: str) -> None:
    """Remove what a process that was killed while it wrote to `path` has left beside it."""
    folder, start = os.path.split(hidden_name(os.path.realpath(path)))
    pattern = re.compile(f"{re.escape(start)}-[0-9a-f]{{16}}{re.escape(TEMPORARY)}")  # no neighbour's, such as run-2's
    for name in os.listdir(folder):
        if pattern.fullmatch(name):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))


def hidden_name(place: str) -> str:
    """What the names of files begin with that stand beside a file for a while.

    >>> hidden_name("folder/run.safetensors")
    'folder/.run.safetensors'
    """
    folder, name = os.path.split(place)
    if len(os.fsencode(name)) > 200:  # of the 255 bytes that a name may have
        name = f"{name[:30]}~{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}"
    return os.path.join(folder, f".{name}")


def _place(path: str) -> str:
    """Where the file at `path` is, links followed; an error if none can be put there."""
    place = os.path.realpath(path)
    folder = os.path.dirname(place)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"`path` is in a folder that does not exist: {folder!r}; create it first")
    if os.path.isdir(place):
        raise IsADirectoryError(f"`path` is a folder: {path!r}; give the name of a file")
    if os.path.lexists(place) and not os.path.isfile(place):  # a device, a pipe, or a link to itself
        raise OSError(f"`path` is there, and not a plain file: {path!r}; give another name")
    return place


def _temporary_beside(place: str) -> tuple[int, str]:
    """A new file, open for writing, as accessible as the one that it is to replace."""
    name = f"{hidden_name(place)}-{secrets.token_hex(8)}{TEMPORARY}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        mode = stat.S_IMODE(os.stat(place).st_mode) & 0o777 if os.path.exists(place) else None
        handle = os.open(name, flags, 0o666 if mode is None else mode)
    except OSError as error:
        folder = os.path.dirname(place)
        raise type(error)(f"`path` is in a folder that takes no files: {folder!r} ({error.strerror})") from None
    if mode is not None:
        os.chmod(name, mode)  # whatever the process takes away from new files
    return handle, name
