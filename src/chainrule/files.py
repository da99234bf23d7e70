"""Models in files: safetensors, read and written without pickle, and written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TypeVar, overload

from chainrule.nn import MLP, Module

FORMAT = "chainrule/1"
AnyModule = TypeVar("AnyModule", bound=Module)


def save(model: Module, path: str | os.PathLike[str], notes: Mapping[str, str] | None = None) -> None:
    """Write a model's parameters, and for an MLP its shape, to a safetensors file.

    The file appears complete or not at all: an interrupted save leaves what was there before. `notes` are texts by name
    that go along; `chainrule.files.notes(path)` reads them.

    >>> import os, tempfile
    >>> from chainrule.nn import MLP
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(MLP(2, [3, 1]), os.path.join(folder, "model.safetensors"))
    ...     load(os.path.join(folder, "model.safetensors"))
    MLP(2, [3, 1], activation='relu', output='linear')
    """
    import numpy as np
    from safetensors.numpy import save as serialize

    if not isinstance(model, Module):
        raise TypeError(f"`model` must be an nn.Module, got {type(model).__name__}")
    metadata = {f"note:{name}": text for name, text in (notes or {}).items()}
    metadata |= {"format": FORMAT, "kind": type(model).__name__}
    if type(model) is MLP:
        metadata["config"] = _config(model)
    tensors = {name: np.array(numbers) for name, numbers in _tensors(model.state())}
    write_whole(os.fspath(path), serialize(tensors, metadata))


@overload
def load(path: str | os.PathLike[str]) -> MLP: ...
@overload
def load(path: str | os.PathLike[str], model: AnyModule) -> AnyModule: ...
def load(path: str | os.PathLike[str], model: Module | None = None) -> Module:
    """Read a model from a file: into `model`, or into a new one if the file holds an MLP.

    >>> load("missing.safetensors")
    Traceback (most recent call last):
    ...
    FileNotFoundError: there is no file 'missing.safetensors'; save a model there with chainrule.save(model, path)
    """
    name = os.fspath(path)
    metadata, state = _read(name)
    if model is None:
        if "config" not in metadata:
            kind = metadata.get("kind", "unknown model")
            raise ValueError(f"{name!r} holds a {kind}, whose shape only you know: build it, then load(path, model)")
        model = _build(name, metadata["config"])
    try:
        model.load_state(state)
    except ValueError as error:
        raise ValueError(f"{name!r} holds another model: {error}") from None
    return model


def notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """The notes that were saved along with a model.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     save(MLP(2, [1]), path, {"author": "Ada"})
    ...     notes(path)
    {'author': 'Ada'}
    """
    metadata, _ = _read(os.fspath(path))
    return {name.removeprefix("note:"): text for name, text in metadata.items() if name.startswith("note:")}


def _tensors(state: dict[str, float]) -> Iterator[tuple[str, float | list[float]]]:
    """The numbers of a list, `w.0 w.1 …`, as one vector `w`; others one by one."""

    def list_name(name: str) -> str:
        prefix, _, last = name.rpartition(".")
        return prefix if last.isdigit() else ""

    for prefix, names in groupby(state, key=list_name):
        run = list(names)
        if prefix and run == [f"{prefix}.{i}" for i in range(len(run))] and prefix not in state:
            yield prefix, [state[name] for name in run]
        else:
            yield from ((name, state[name]) for name in run)


def _config(model: MLP) -> str:
    config = model.config()
    for argument in ("activation", "output"):
        if not isinstance(config[argument], str):
            raise ValueError(
                f"`{argument}` of this MLP is a function, which a file cannot hold: "
                "name it (register it with chainrule.op and give the op's name)"
            )
    return json.dumps(config)


def _build(path: str, config: str) -> MLP:
    try:
        return MLP(**json.loads(config), rng=0)  # the caller's sequence of random numbers is not ours to draw from
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path!r} describes an MLP that cannot be built: {error}") from None


def _read(path: str) -> tuple[dict[str, str], dict[str, float]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no file {path!r}; save a model there with chainrule.save(model, path)"
        ) from None
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path!r} is not a safetensors file, or is damaged: {error}") from None
    state: dict[str, float] = {}
    for name, tensor in tensors.items():
        if tensor.dtype != "float64" or tensor.ndim > 1:
            raise ValueError(
                f"{path!r} holds {name!r} as {tensor.dtype} of shape {tensor.shape}; "
                "a chainrule model holds float64 numbers and vectors only"
            )
        state |= {f"{name}.{i}": float(n) for i, n in enumerate(tensor)} if tensor.ndim else {name: float(tensor)}
    return metadata, state


def check_writable(path: str) -> None:
    """That a file can be put at `path`: best asked before the work that makes it.

    >>> check_writable("no/such/folder/model.safetensors")
    Traceback (most recent call last):
    ...
    FileNotFoundError: `path` is in a folder that does not exist: ...
    """
    handle, temporary = _temporary_beside(path)
    os.close(handle)
    os.unlink(temporary)


def write_whole(path: str, content: bytes) -> None:
    """Put `content` at `path` in one move, through a temporary file beside it."""
    handle, temporary = _temporary_beside(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _temporary_beside(path: str) -> tuple[int, str]:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"`path` is in a folder that does not exist: {folder!r}; create it first")
    if os.path.isdir(path):
        raise IsADirectoryError(f"`path` is a folder: {path!r}; give the name of a file")
    try:
        return tempfile.mkstemp(prefix=".chainrule-", dir=folder)
    except OSError as error:
        raise type(error)(f"`path` is in a folder that takes no files: {folder!r} ({error.strerror})") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
