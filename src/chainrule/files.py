"""Models in files: safetensors, read and written without pickle, and written whole or not at all.

A file is not trusted: it must be a plain file of float64 numbers and vectors, as many as the model takes, and it is
compared with the model before anything as large as it claims to be is allocated.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any

from chainrule.core.arguments import MOST_OF_A_MESSAGE, quoted, shown
from chainrule.core.atomic import write_whole
from chainrule.nn import MLP, Module

if TYPE_CHECKING:
    import numpy as np

__all__ = ["notes"]


def __dir__() -> list[str]:
    return __all__


FORMAT = "chainrule/2"
SCALED_FORMAT = "chainrule/1"  # in which `chainrule train` left the scaling of its columns to `chainrule predict`
CHECKPOINT = "chainrule-checkpoint/1"  # a model and the training run that it is in: see `training/checkpoints.py`
SCALED = {  # formats whose networks take scaled columns, if `chainrule train` wrote them: alone they answer wrongly
    SCALED_FORMAT: "is of an earlier chainrule train, whose networks took scaled columns: train the model again",
    CHECKPOINT: "is a run of chainrule train, whose network takes scaled columns: go on with --resume and --save",
}
FORMATS = {FORMAT, *SCALED}
MODEL = "model."  # prefix of the model's tensors in a checkpoint
MOST_LAYERS = 10_000  # of an MLP; its neurons are limited by the numbers in the file
Shape = tuple[int, ...]  # of a vector; empty for a number


def write_network(model: Module, path: str | os.PathLike[str], notes: Mapping[str, str] | None = None) -> None:
    """Write a model's parameters, for an MLP its shape, and notes: texts by name. `chainrule.save` is for users."""
    if not isinstance(model, Module):
        raise TypeError(f"`model` must be an nn.Module, got {type(model).__name__}")
    metadata = {f"note:{name}": text for name, text in (notes or {}).items()}
    metadata |= {"format": FORMAT, "kind": type(model).__name__}
    if type(model) is MLP:
        metadata["config"] = config_text(model)
    write_whole(os.fspath(path), as_bytes(dict(vectors(model.state())), metadata))


def read_network(path: str | os.PathLike[str], model: Module | None = None) -> Any:
    """A model from a file or a checkpoint, whatever its notes say of it. `chainrule.load` is for users.

    It is read into `model`, or into a new one if the file holds an MLP.
    """
    name = os.fspath(path)
    with tensor_file(name) as file:
        if (written := file.metadata.get("format", FORMAT)).startswith("chainrule") and written not in FORMATS:
            remedy = "update chainrule, or save it with this version"
            raise ValueError(f"{name!r} is of a later version of chainrule, in the format {quoted(written)}: {remedy}")
        if (kind := SCALED.get(file.metadata.get("format", ""))) and "note:problem" in file.metadata:
            raise ValueError(f"{name!r} {kind}")
        prefix = MODEL if file.metadata.get("format") == CHECKPOINT else ""

        def shapes() -> dict[str, Shape]:
            return {key.removeprefix(prefix): n for key, n in file.shapes().items() if key.startswith(prefix)}

        def numbers(key: str) -> Any:
            return file.numbers(prefix + key).tolist()

        if model is not None:
            load_numbers(model, shapes(), numbers, name)
            return model
        if "config" in file.metadata:
            return _build(name, file.metadata["config"], shapes, numbers)
        file.shapes()  # a file of something else says so
        kind = shown(file.metadata.get("kind", "unknown model"))
        raise ValueError(f"{name!r} holds a {kind}, whose shape only you know: build it, then load(path, model)")


def load_numbers(model: Module, shapes: Mapping[str, Shape], numbers: Callable[[str], Any], path: str) -> None:
    """Set the model's parameters to the vectors and numbers of a file, given their shapes by name."""
    count, wanted = sum(map(math.prod, shapes.values())), len(model.parameters())
    if count > wanted or len(shapes) > wanted:  # a name for each number would take far more memory than the file
        raise ValueError(f"{path!r} holds another model: of {count:,} numbers, where this one has {wanted:,}")
    state: dict[str, float] = {}
    for name, shape in shapes.items():
        found = numbers(name)
        state |= {f"{name}.{i}": number for i, number in enumerate(found)} if shape else {name: found}
    try:
        model.load_state(state)
    except ValueError as error:
        raise ValueError(f"{path!r} holds another model: {error}") from None


def notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """The notes that were saved with a model.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     write_network(MLP(2, [1]), path, {"author": "Ada"})
    ...     notes(path)
    {'author': 'Ada'}
    """
    with tensor_file(os.fspath(path)) as file:
        return {name.removeprefix("note:"): text for name, text in file.metadata.items() if name.startswith("note:")}


def vectors(state: dict[str, float]) -> Iterator[tuple[str, float | list[float]]]:
    """The numbers of each list, `w.0 w.1 …`, as one vector `w`; others one by one."""

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
    """The description of an MLP that a file holds, to build it from."""
    config = model.config()
    if len(config["nouts"]) > MOST_LAYERS:
        raise ValueError(f"this MLP has {len(config['nouts']):,} layers, and a file takes {MOST_LAYERS:,} at most")
    for argument in ("activation", "output"):
        if not isinstance(config[argument], str):
            remedy = "name it (register it with chainrule.op and give the op's name)"
            raise ValueError(f"`{argument}` of this MLP is a function, which a file cannot hold: {remedy}")
    return json.dumps(config)


def _build(path: str, config: str, shapes: Callable[[], Mapping[str, Shape]], numbers: Callable[[str], Any]) -> MLP:
    """The MLP that a file describes, if its numbers and vectors are those of such an MLP."""
    try:
        described = json.loads(config)
        sizes = _checked_sizes(described)
        expected = _checked_neurons(sizes, shapes())
        weights = chain.from_iterable(numbers(f"{name}.w") for name in expected)
        model = MLP(**described, init=lambda rng, nin, nout: next(weights), rng=0)
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        reason = shown(str(error), MOST_OF_A_MESSAGE)
        raise ValueError(f"{path!r} describes an MLP that cannot be built: {reason}") from None
    for name, neuron in zip(expected, chain.from_iterable(layer.neurons for layer in model.layers), strict=True):
        neuron.b.data = numbers(f"{name}.b")
    return model


def _checked_sizes(described: Any) -> list[int]:
    """The sizes of the layers, the inputs first, of an MLP's description that can be believed."""
    sizes = [described["nin"], *described["nouts"]]
    if set(described) != {"nin", "nouts", "activation", "output"} or not isinstance(described["nouts"], list):
        raise ValueError("it takes `nin`, `nouts`, `activation` and `output`")
    if not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError("`nin` and `nouts` must be whole numbers of at least 1")
    if len(sizes) > MOST_LAYERS + 1:
        raise ValueError(f"it would have {len(sizes) - 1:,} layers, and {MOST_LAYERS:,} are the most")
    if not isinstance(described["activation"], str) or not isinstance(described["output"], str):
        raise ValueError("`activation` and `output` must be the names of ops")
    return sizes


def _checked_neurons(sizes: list[int], found: Mapping[str, Shape]) -> dict[str, int]:
    """The neurons of an MLP, with their numbers of inputs, if these are its tensors."""
    count = sum(map(math.prod, found.values()))
    if max(sizes) > count:
        raise ValueError(f"a layer has more neurons than the file has numbers, {count:,}")
    wanted = sum((before + 1) * after for before, after in pairwise(sizes))
    if wanted != count:
        raise ValueError(f"it would have {wanted:,} parameters, and the file has {count:,}")
    layers = enumerate(pairwise(sizes))
    expected = {f"layers.{k}.neurons.{i}": before for k, (before, after) in layers for i in range(after)}
    for name, inputs in expected.items():
        if (found.get(f"{name}.w"), found.get(f"{name}.b")) != ((inputs,), ()):
            raise ValueError(f"the file has no {inputs:,} weights and a bias called {name}.w and {name}.b")
    return expected


class TensorFile:
    """An open safetensors file: its texts, and on demand the shapes of its tensors and their numbers."""

    def __init__(self, file: Any, path: str) -> None:
        self.metadata: dict[str, str] = file.metadata() or {}
        self._file, self._path = file, path

    def shapes(self) -> dict[str, Shape]:
        """The shapes of all tensors, by name; an error if one is no float64 number or vector."""
        shapes: dict[str, Shape] = {}
        for name in self._file.keys():  # noqa: SIM118  # not a dict
            part = self._file.get_slice(name)
            dtype, shape = part.get_dtype(), tuple(part.get_shape())
            if dtype != "F64" or len(shape) > 1:
                found = f"{self._path!r} holds {quoted(name)} as {dtype} of shape {quoted(list(shape))}"
                raise ValueError(f"{found}; chainrule's files hold F64 numbers and vectors only")
            shapes[name] = shape
        return shapes

    def numbers(self, name: str) -> np.ndarray:
        """A vector, or a number."""
        return self._file.get_tensor(name)  # type: ignore[no-any-return]


@contextmanager
def tensor_file(path: str) -> Iterator[TensorFile]:
    """Open a safetensors file; errors name it."""
    from safetensors import SafetensorError, safe_open

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a device or a pipe would be read without end
            raise ValueError(f"{path!r} is not a plain file; give the name of one that chainrule.save wrote")
        with safe_open(path, framework="np") as file:
            yield TensorFile(file, path)
    except FileNotFoundError:
        remedy = "save a model there with chainrule.save(model, path)"
        raise FileNotFoundError(f"there is no file {path!r}; {remedy}") from None
    except (OSError, SafetensorError) as error:
        reason = shown(str(error), MOST_OF_A_MESSAGE)
        raise ValueError(f"{path!r} is not a safetensors file, or is damaged: {reason}") from None


def as_bytes(tensors: Mapping[str, float | list[float]], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file of numbers and vectors."""
    import numpy as np
    from safetensors.numpy import save as serialize

    return serialize({name: np.array(numbers, "float64") for name, numbers in tensors.items()}, dict(metadata))
