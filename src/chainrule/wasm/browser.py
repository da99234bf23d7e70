"""Modules run by Python in a browser, where Python itself is WebAssembly (Pyodide)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from chainrule.wasm.encoding import PAGE
from chainrule.wasm.program import WasmProgram


def is_here() -> bool:
    """Whether Python runs in a browser, or in Node, through Pyodide.

    >>> is_here()
    False
    """
    return find_spec("pyodide_js") is not None


class Instance:
    """A module with its memory. Rows are examples; see `WasmProgram` for its buffers."""

    def __init__(self, program: WasmProgram) -> None:
        self.program, self.count = program, 1
        self._js: Any = import_module("js")
        binary = import_module("pyodide.ffi").to_js(program.binary)
        self._exports = self._js.WebAssembly.Instance.new(self._js.WebAssembly.Module.new(binary)).exports

    def read(self, name: str) -> list[float]:
        """The numbers of a buffer."""
        return list(self._view(*self.program.buffers[name]).to_py())

    def write(self, name: str, numbers: Sequence[float]) -> None:
        """Set the numbers of a buffer."""
        self._view(*self.program.buffers[name]).assign(array("d", numbers))

    def load(self, examples: Sequence[Sequence[float]]) -> None:
        """Take these examples: the inputs of each."""
        (offset, stride), room = self.program.buffers["rows"], [0.0] * self.program.results
        missing = offset + 8 * stride * len(examples) - self._exports.memory.buffer.byteLength
        if missing > 0:
            self._exports.memory.grow(-(-missing // PAGE))
        self.count = len(examples)
        rows = array("d", [number for example in examples for number in (*example, *room)])
        self._view(offset, len(rows)).assign(rows)

    def forward(self) -> list[list[float]]:
        """The results of all examples."""
        self._exports.forward(0, self.count)
        (offset, stride), inputs = self.program.buffers["rows"], self.program.inputs
        rows = list(self._view(offset, stride * self.count).to_py())
        return [rows[start + inputs : start + stride] for start in range(0, len(rows), stride)]

    def gradient(self) -> float:
        """The mean result of all examples; its gradient is then in the buffer of that name."""
        return float(self._exports.gradient(0, self.count))

    def train(self, times: int, turn: int = 0, size: int | None = None) -> float:
        """So many steps, each on `size` examples, beginning with those of a turn; returns the mean of their losses."""
        return float(self._exports.train(self.count, size or self.count, turn, times))

    def _view(self, offset: int, count: int) -> Any:
        return self._js.Float64Array.new(self._exports.memory.buffer, offset, count)
