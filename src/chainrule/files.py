"""Models in files: safetensors, read and written without pickle, and written whole or not at all.

What a file says is not believed: it must be a plain file that holds float64 numbers and vectors, as many as the model
takes, and is compared with the model before anything as large as it claims to be is made.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, TypeVar, overload

from chainrule.nn import MLP, Module

if TYPE_CHECKING:
    import numpy as np

FORMAT = "chainrule/1"
CHECKPOINT = "chainrule-checkpoint/1"  # a model and the training run that it is in: see `checkpoints.py`
MODEL = "model."  # what the names of the model's tensors begin with in a checkpoint
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
    if not isinstance(model, Module):
        raise TypeError(f"`model` must be an nn.Module, got {type(model).__name__}")
    metadata = {f"note:{name}": text for name, text in (notes or {}).items()}
    metadata |= {"format": FORMAT, "kind": type(model).__name__}
    if type(model) is MLP:
        metadata["config"] = config_text(model)
    write_whole(os.fspath(path), as_bytes(dict(vectors(model.state())), metadata))


@overload
def load(path: str | os.PathLike[str]) -> MLP: ...
@overload
def load(path: str | os.PathLike[str], model: AnyModule) -> AnyModule: ...
def load(path: str | os.PathLike[str], model: Module | None = None) -> Module:
    """Read a model from a file: into `model`, or into a new one if the file holds an MLP. A checkpoint will do.

    >>> load("missing.safetensors")
    Traceback (most recent call last):
    ...
    FileNotFoundError: there is no file 'missing.safetensors'; save a model there with chainrule.save(model, path)
    """
    name = os.fspath(path)
    metadata, tensors = read_tensors(name)
    if metadata.get("format") == CHECKPOINT:
        tensors = {key.removeprefix(MODEL): tensor for key, tensor in tensors.items() if key.startswith(MODEL)}
    count = sum(tensor.size for tensor in tensors.values())
    if model is None:
        if "config" not in metadata:
            kind = metadata.get("kind", "unknown model")
            raise ValueError(f"{name!r} holds a {kind}, whose shape only you know: build it, then load(path, model)")
        model = _build(name, metadata["config"], count)
    load_tensors(model, tensors, name)
    return model


def load_tensors(model: Module, tensors: Mapping[str, np.ndarray], path: str) -> None:
    """Set the model's parameters to what a file holds."""
    count, wanted = sum(tensor.size for tensor in tensors.values()), len(model.parameters())
    if count > wanted:  # a name for each number would take far more memory than the file
        raise ValueError(f"{path!r} holds another model: of {count:,} numbers, where this one has {wanted:,}")
    state: dict[str, float] = {}
    for name, tensor in tensors.items():
        numbers = tensor.tolist()
        state |= {f"{name}.{i}": number for i, number in enumerate(numbers)} if tensor.ndim else {name: numbers}
    try:
        model.load_state(state)
    except ValueError as error:
        raise ValueError(f"{path!r} holds another model: {error}") from None


def notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """The notes that were saved along with a model.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     save(MLP(2, [1]), path, {"author": "Ada"})
    ...     notes(path)
    {'author': 'Ada'}
    """
    metadata, _ = read_tensors(os.fspath(path))
    return {name.removeprefix("note:"): text for name, text in metadata.items() if name.startswith("note:")}


def vectors(state: dict[str, float]) -> Iterator[tuple[str, float | list[float]]]:
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


def config_text(model: MLP) -> str:
    """What to build an MLP from, as a file holds it."""
    config = model.config()
    for argument in ("activation", "output"):
        if not isinstance(config[argument], str):
            raise ValueError(
                f"`{argument}` of this MLP is a function, which a file cannot hold: "
                "name it (register it with chainrule.op and give the op's name)"
            )
    return json.dumps(config)


def _build(path: str, config: str, count: int) -> MLP:
    """The MLP that a file describes, if it has as many parameters as the file has numbers."""
    try:
        shape = json.loads(config)
        sizes = [shape["nin"], *shape["nouts"]]
        if set(shape) != {"nin", "nouts", "activation", "output"} or not isinstance(shape["nouts"], list):
            raise ValueError("it takes `nin`, `nouts`, `activation` and `output`")
        if not all(type(size) is int and size > 0 for size in sizes):
            raise ValueError("`nin` and `nouts` must be whole numbers of at least 1")
        wanted = sum((before + 1) * after for before, after in pairwise(sizes))
        if wanted != count:
            raise ValueError(f"it would have {wanted:,} parameters, and the file has {count:,}")
        if not isinstance(shape["activation"], str) or not isinstance(shape["output"], str):
            raise ValueError("`activation` and `output` must be the names of ops")
        return MLP(**shape, rng=0)  # the caller's sequence of random numbers is not ours to draw from
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"{path!r} describes an MLP that cannot be built: {error}") from None


def read_tensors(path: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """A file's texts and its numbers, by name; all of them float64, and numbers or vectors."""
    from safetensors import SafetensorError, safe_open

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a device or a pipe would be read without end
            raise ValueError(f"{path!r} is not a plain file; give the name of one that chainrule.save wrote")
        tensors: dict[str, Any] = {}
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118  # not a dict
                part = file.get_slice(name)
                if part.get_dtype() != "F64" or len(part.get_shape()) > 1:
                    raise ValueError(
                        f"{path!r} holds {name!r} as {part.get_dtype()} of shape {part.get_shape()}; "
                        "chainrule's files hold F64 numbers and vectors only"
                    )
                tensors[name] = file.get_tensor(name)
            return file.metadata() or {}, tensors
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no file {path!r}; save a model there with chainrule.save(model, path)"
        ) from None
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path!r} is not a safetensors file, or is damaged: {error}") from None


def as_bytes(tensors: Mapping[str, float | list[float]], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file of numbers and vectors."""
    import numpy as np
    from safetensors.numpy import save as serialize

    return serialize({name: np.array(numbers, "float64") for name, numbers in tensors.items()}, dict(metadata))


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
    _sync_folder(os.path.dirname(os.path.abspath(path)))


def remove_leftovers(path: str) -> None:
    """Remove what a process that was killed while it wrote to `path` has left beside it."""
    folder, prefix = os.path.dirname(os.path.abspath(path)), _temporary_prefix(path)
    for name in os.listdir(folder):
        if name.startswith(prefix) and name.endswith(TEMPORARY):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))


TEMPORARY = ".part"


def _temporary_prefix(path: str) -> str:
    return f".{os.path.basename(path)[:100]}-"


def _sync_folder(folder: str) -> None:
    """Have the new name survive a power failure too."""
    if hasattr(os, "O_DIRECTORY"):  # not on Windows
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _temporary_beside(path: str) -> tuple[int, str]:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"`path` is in a folder that does not exist: {folder!r}; create it first")
    if os.path.isdir(path):
        raise IsADirectoryError(f"`path` is a folder: {path!r}; give the name of a file")
    try:
        return tempfile.mkstemp(TEMPORARY, _temporary_prefix(path), folder)
    except OSError as error:
        raise type(error)(f"`path` is in a folder that takes no files: {folder!r} ({error.strerror})") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
