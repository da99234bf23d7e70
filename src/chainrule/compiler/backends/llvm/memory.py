"""Loads and stores: from an access of the array program to pointers into memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from chainrule.compiler.backends.llvm.registers import Arithmetic, Register
from chainrule.compiler.passes.program import Access, Array


class Memory:
    """Array elements, for a function that is being written. `offsets` are the arrays that lie in memory.

    Tables of positions are added to `tables`, which must live as long as the code.
    """

    def __init__(self, arithmetic: Arithmetic, offsets: Mapping[Array, int], tables: list[np.ndarray]) -> None:
        self.arithmetic = arithmetic
        self.text = arithmetic.text
        self.element = arithmetic.element
        self.offsets = offsets
        self.tables = tables

    def load(self, access: Access, indices: Sequence[str], lanes: int, axis: int | None) -> Register:
        """The elements of `lanes` turns along `axis`; one, if they are the same."""
        stride = access.strides[axis] if axis is not None and lanes > 1 else 0
        if access.table is None and stride == 1:
            return self.load_from(self.address(access, indices), lanes)
        if stride == 0:
            return self.load_from(self.address(access, indices), 1)
        result = "poison"
        for lane in range(lanes):
            value = self.load_from(self.address(access, indices, lane * stride), 1)
            result = self.text.insert(result, value.name, lane, lanes)
        return Register(self.arithmetic, result, lanes)

    def store(self, access: Access, indices: Sequence[str], value: Register, axis: int | None) -> None:
        """Set the elements of as many turns along `axis` as the value has lanes."""
        lanes = value.lanes
        stride = access.strides[axis] if axis is not None and lanes > 1 else 0
        if lanes == 1 or (access.table is None and stride == 1):
            self.store_to(self.address(access, indices), value)
            return
        for lane in range(lanes):
            part = Register(self.arithmetic, self.text.extract(value.name, lane, lanes), 1)
            self.store_to(self.address(access, indices, lane * stride), part)

    def load_from(self, pointer: str, lanes: int) -> Register:
        """Neighbouring elements."""
        text = f"load {self.element.lanes(lanes)}, ptr {pointer}, align {self.element.bytes}"
        return Register(self.arithmetic, self.text.emit(text), lanes)

    def store_to(self, pointer: str, value: Register) -> None:
        """Set neighbouring elements."""
        kind = self.element.lanes(value.lanes)
        self.text.lines.append(f"  store {kind} {value.name}, ptr {pointer}, align {self.element.bytes}")

    def address(self, access: Access, indices: Sequence[str], extra: int = 0) -> str:
        """A pointer to the element; through the table if there is one."""
        emit, offset = self.text.emit, self.offsets[access.array]
        table = access.table is not None
        index = str(extra + access.base + (0 if table else offset))
        for stride, name in zip(access.strides, indices, strict=True):
            if stride and name != "0":
                step = name if stride == 1 else emit(f"mul nsw i64 {name}, {stride}")
                index = emit(f"add nsw i64 {step}, {index}")
        if table:
            pointer = f"inttoptr (i64 {self._table(access.table)} to ptr)"
            entry = emit(f"getelementptr inbounds i64, ptr {pointer}, i64 {index}")
            position = emit(f"load i64, ptr {entry}, !invariant.load !0")
            index = emit(f"add nsw i64 {self._moved(position, access.repeat)}, {offset}")
            self.text.declarations.add("!0 = !{}")
        else:
            index = self._moved(index, access.repeat)
        return emit(f"getelementptr inbounds {self.element.name}, ptr %memory, i64 {index}")

    def _moved(self, index: str, repeat: int) -> str:
        """The index at this time of a Repeat."""
        if repeat == 0:
            return index
        return self.text.emit(f"add nsw i64 {index}, {self.text.emit(f'mul nsw i64 %time, {repeat}')}")

    def _table(self, positions: np.ndarray) -> int:
        self.tables.append(np.ascontiguousarray(positions, dtype=np.int64))
        return int(self.tables[-1].ctypes.data)
