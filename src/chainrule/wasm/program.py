"""Modules that compute, differentiate and train: the code of one example, and loops over examples and parameters.

Exports, where `first` and `count` say which rows to run:

    memory                               with the buffers
    forward(first, count)                the results of each row
    gradient(first, count) -> mean       and the gradient of the mean of all results
    step(first, count, turn) -> mean     and then a step of the optimizer, with the scalars of that turn
    train(rows, size, turn, times) -> mean   so many steps on `size` rows each, from the first rows on and over again

A module says where its buffers are in a custom section called "chainrule", as JSON.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from typing import Any

from chainrule.core.arguments import counted
from chainrule.core.atomic import write_whole
from chainrule.optim import Optimizer
from chainrule.wasm import encoding as e
from chainrule.wasm.functions import Library
from chainrule.wasm.lanes import ONE, TWO
from chainrule.wasm.replay import BUFFERS, Graph, Memory, Replay, Templates
from chainrule.wasm.rules import Writer, filled

FIRST, COUNT, TURN = 0, 1, 2  # arguments of the exports


class WasmProgram:
    """A WebAssembly module: `binary` is the file, `buffers` say where in its memory the numbers are.

    A buffer is given by its offset in bytes and its number of doubles. "rows" has one row for each example: its
    `inputs`, then its `results`. There is one at first, with the present inputs; more follow in memory, which the host
    lets grow. "scalars" has a row for each of the optimizer's next `steps`, such as its learning rate.

    >>> from chainrule import Value
    >>> from chainrule.wasm import to_wasm
    >>> w, x = Value(3.0), Value(2.0)
    >>> program = to_wasm(w * x, inputs=[x])
    >>> program.binary[:4], program.buffers["parameters"], program.inputs
    (b'\\x00asm', (0, 1), 1)
    """

    def __init__(self, graph: Graph, optimizer: Optimizer | None = None, steps: int = 1) -> None:
        self.graph, self.optimizer = graph, optimizer
        _check(graph, optimizer)
        self._scalars = _scalars_of(optimizer, steps) if optimizer else []
        self.inputs, self.results = graph.sizes["input"], len(graph.results)
        self.has_gradient = graph.sizes["parameter"] > 0 and self.results == 1
        self._module, self._memory = e.Module(), Memory()
        self._allot()
        library = Library(self._module, lambda count: self._memory.add(f"table {self._memory.size}", count))
        codes = [
            Replay(graph, self._module, self._memory, Templates(library, lanes), self.has_gradient)
            for lanes in ([ONE, TWO] if self.inputs else [ONE])
        ]
        update = self._update(library) if optimizer else -1
        self._memory.add("rows", self.inputs + self.results)
        self._export("forward", [code.forward for code in codes], e.NOTHING)
        if self.has_gradient:
            gradient = self._export("gradient", [[*code.forward, *code.backward] for code in codes], e.F64)
            if optimizer:
                body = e.get(FIRST) + e.get(COUNT) + e.call(gradient) + e.get(TURN) + e.call(update)
                self._export_train(self._module.add(e.Function(e.I32 * 3, e.F64, body, export="step")))
        self._fill()
        self.binary = self._module.binary()

    @property
    def buffers(self) -> dict[str, tuple[int, int]]:
        """Offset in bytes and number of doubles: parameters, gradient, captured, rows, scalars, optimizer's slots."""
        own = ["parameters", "gradient", *BUFFERS.values(), "rows"]
        own += ["scalars", *self.optimizer.slots] if self.optimizer else []
        return {name: self._memory.buffers[name] for name in dict.fromkeys(own)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module to a file, which appears whole or not at all."""
        write_whole(os.fspath(path), self.binary)

    def __repr__(self) -> str:
        exports = ", ".join(function.export for function in self._module.functions if function.export)
        return f"<WasmProgram: {counted(len(self.graph.rules), 'node')} in {len(self.binary):,} bytes; {exports}>"

    # Parts of the module.

    def _allot(self) -> None:
        count, optimizer, add = self.graph.sizes["parameter"], self.optimizer, self._memory.add
        add("parameters", count)
        add("gradient", count * self.has_gradient)
        add("captured", self.graph.sizes["captured"])
        if optimizer:
            add("scalars", sum(map(len, self._scalars)))
            for slot in optimizer.slots:
                add(slot, count)

    def _export(self, name: str, functions: Sequence[Sequence[int]], result: bytes) -> int:
        """A loop over rows that calls functions of a row, or of two, and then of the one that is left.

        With a result, it is the mean, and so with the gradient.
        """
        row, end, total = 2, 3, 4
        rows, stride = self._memory.buffers["rows"][0], 8 * (self.inputs + self.results)
        size = 8 * self.graph.sizes["parameter"]
        sums = result == e.F64
        body = e.get(FIRST) + e.i32(stride) + e.I32_MUL + e.i32(rows) + e.I32_ADD + e.tee(row)
        body += e.get(COUNT) + e.i32(stride) + e.I32_MUL + e.I32_ADD + e.put(end)
        if sums:
            body += e.i32(self._memory.buffers["gradient"][0]) + e.i32(0) + e.i32(size) + e.FILL
        for count in range(len(functions), 0, -1):
            turn = b"".join(e.get(row) + e.call(function) for function in functions[count - 1])
            for k in range(count * sums):
                turn += e.get(total) + e.get(row) + e.load(8 * self.inputs + k * stride) + e.F64_ADD + e.put(total)
            turn += e.get(row) + e.i32(count * stride) + e.I32_ADD + e.put(row)
            last = e.get(row) + e.i32((count - 1) * stride) + e.I32_ADD
            body += e.loop_while(last + e.get(end) + e.I32_LT, turn)
        if sums:
            body += e.get(COUNT) + e.i32(1) + e.I32_SUB + e.when(self._divided(row, e.get(COUNT) + e.F64_OF_I32))
            body += e.get(total) + e.get(COUNT) + e.F64_OF_I32 + e.F64_DIV
        return self._module.add(e.Function(e.I32 * 2, result if sums else b"", body, e.I32 * 2 + e.F64, name))

    def _export_train(self, step: int) -> None:
        """A loop of steps. Turn t takes batch t, modulo the batches there are, and row t of the scalars or the last."""
        rows, size, turn, times, end, total = range(6)
        batch = e.get(turn) + e.get(rows) + e.get(size) + e.I32_DIV + e.I32_REM + e.get(size) + e.I32_MUL
        last = e.i32(len(self._scalars) - 1)
        scalars = e.get(turn) + last + e.get(turn) + last + e.I32_LT + e.SELECT
        taken = e.get(total) + batch + e.get(size) + scalars + e.call(step) + e.F64_ADD + e.put(total)
        following = e.get(turn) + e.i32(1) + e.I32_ADD + e.put(turn)
        body = e.get(turn) + e.get(times) + e.I32_ADD + e.put(end)
        body += e.loop_while(e.get(turn) + e.get(end) + e.I32_LT, taken + following)
        body += e.get(total) + e.get(times) + e.F64_OF_I32 + e.F64_DIV
        self._module.add(e.Function(e.I32 * 4, e.F64, body, e.I32 + e.F64, "train"))

    def _divided(self, local: int, divisor: bytes) -> bytes:
        """Divide the gradient."""
        gradient = self._memory.buffers["gradient"][0]
        return self._each(
            local, e.get(local) + e.get(local) + e.load(gradient) + divisor + e.F64_DIV + e.store(gradient)
        )

    def _each(self, local: int, body: bytes) -> bytes:
        """A loop with a local that goes through the places of all parameters, in bytes."""
        size = 8 * self.graph.sizes["parameter"]
        following = e.get(local) + e.i32(8) + e.I32_ADD + e.put(local)
        return e.i32(0) + e.put(local) + e.loop_while(e.get(local) + e.i32(size) + e.I32_LT, body + following)

    def _update(self, library: Library) -> int:
        """A function of the turn: the optimizer's rule on every parameter."""
        optimizer, buffers = self.optimizer, self._memory.buffers
        assert optimizer is not None
        turn, place, row, results = 0, 1, 2, 3
        columns = ["parameters", *optimizer.slots]
        writer = Writer(library.number, results + len(columns))
        names, (scalars, _) = list(optimizer.scalars()), buffers["scalars"]
        fills = [e.get(place) + e.load(buffers[name][0]) for name in ("parameters", "gradient", *optimizer.slots)]
        numbers = {name: writer.hole(len(fills) + k) for k, name in enumerate(names)}
        after = optimizer.update(*[writer.hole(k) for k in range(len(fills))], **numbers)
        fills += [e.get(row) + e.load(scalars + 8 * k) for k in range(len(names))]
        writer.expect(*after)
        for k, number in enumerate(after):
            writer.number(number)
            writer.code.append(e.put(results + k))
        body = filled(writer.code, fills)
        for k, name in enumerate(columns):
            body += e.get(place) + e.get(results + k) + e.store(buffers[name][0])
        start = e.get(turn) + e.i32(8 * len(names)) + e.I32_MUL + e.put(row)
        floats = e.F64 * (len(columns) + writer.locals)
        return self._module.add(e.Function(e.I32, b"", start + self._each(place, body), e.I32 * 2 + floats))

    def _fill(self) -> None:
        """The numbers that are in memory at first, and what the module says of itself."""
        graph, module = self.graph, self._module
        module.size = self._memory.size
        columns = {"rows": list(graph.initial["input"])}
        columns |= {BUFFERS[kind]: list(graph.initial[kind]) for kind in ("parameter", "captured")}
        if self.optimizer:
            columns |= {slot: list(self.optimizer.buffers[slot]) for slot in self.optimizer.slots}
            columns["scalars"] = [number for row in self._scalars for number in row]
        for name, numbers in columns.items():
            module.data[self._memory.buffers[name][0]] = struct.pack(f"<{len(numbers)}d", *numbers)
        about: dict[str, Any] = {"inputs": self.inputs, "results": self.results, "buffers": self.buffers}
        if self.optimizer:
            about["scalars"] = list(self.optimizer.scalars())
        module.custom["chainrule"] = json.dumps(about).encode()


def _check(graph: Graph, optimizer: Optimizer | None) -> None:
    """Refuse what a module could not do, or would do wrongly."""
    if optimizer is None:
        return
    if not optimizer.rule_is_known:
        raise ValueError(
            f"`optimizer` is a {type(optimizer).__name__}, whose own rule may differ from step to step, and a module "
            "has it once and for all: give one of chainrule.optim"
        )
    if len(graph.results) > 1:
        raise ValueError(f"a step needs one result, and there are {len(graph.results)}: leave `optimizer` out")
    if not all(parameter.requires_grad for parameter in optimizer.parameters):
        raise ValueError("`optimizer` has parameters that are frozen: give it those that it is to change")


def _scalars_of(optimizer: Optimizer, steps: int) -> list[list[float]]:
    """The optimizer's scalars for its next steps, which are not counted as taken."""
    before, rows = optimizer.steps, []
    try:
        for _ in range(steps):
            rows.append([*optimizer.scalars().values()])
            optimizer.steps += 1
    finally:
        optimizer.steps = before
    return rows
