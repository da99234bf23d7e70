"""Operations on registers: arithmetic, by the rules of the op table; lanes; loads and stores; loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

import numpy as np

from chainrule import ops
from chainrule.compiler.backends.llvm import kernels
from chainrule.compiler.backends.llvm.target import Target
from chainrule.compiler.backends.llvm.text import Text, constant, vector
from chainrule.compiler.passes.program import Access, Array
from chainrule.core.powers import power

# Flags never assume away NaN or infinity. Products and sums are fused, and sums across lanes are in any order, but no
# instruction has both flags: with `reassoc` and `contract` LLVM 22 rewrites (a*b + c*d) + e in place, and another sum
# that shares a*b + c*d then has c*d in it twice.
FUSED, ANY_ORDER = "contract", "reassoc"

# The primitives of the op table that LLVM has, on operands of type `kind`; others are functions.
INSTRUCTIONS = {name: f"f{name} {FUSED} {{kind}} {{}}, {{}}" for name in ("add", "sub", "mul", "div")}
INSTRUCTIONS["neg"] = "fneg {kind} {}"
INTRINSICS = {"abs": "fabs", **{name: name for name in ("sqrt", "floor", "ceil", "trunc", "rint")}}
JOINED = {"add": "or", "mul": "and"}  # sums of conditions are not 0 where one of them holds, products where all do
COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une", "where": "une"}

SHORT = 4  # turns of a sum that are written out

Place = tuple[str, int]  # a block of memory, and how far from its beginning


class Register(ops.Carrier):
    """A value in LLVM's text, with its number of lanes."""

    def __init__(self, registers: Registers, name: str, lanes: int) -> None:
        self.registers = registers
        self.name = name
        self.lanes = lanes

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        return self.registers.apply(op, operands)


class Registers:
    """Operations on registers, written to a text. Operands may be plain numbers; so may results that need no code.

    `offsets` are the arrays that lie in memory, and how far from the beginning of the block that `blocks` names, or of
    `%memory`. Tables of positions are added to `tables`, which must live as long as the code.
    """

    knows_tables = True  # the tables are those of this code alone
    picks = False  # every second element from whole vectors: in a loop in time, it would wait until those are stored

    def __init__(
        self,
        text: Text,
        offsets: Mapping[Array, int],
        tables: list[np.ndarray],
        target: Target,
        blocks: Mapping[Array, str] = MappingProxyType({}),
    ) -> None:
        self.text = text
        self.element = text.element
        self.offsets = offsets
        self.tables = tables
        self.target = target
        self.blocks = blocks
        self.active = 0  # lanes of the present turn that count, if those beyond do not
        self.conditions: dict[str, str] = {}  # numbers that comparisons are made of -> bits: whether they are not 0

    def emit(self, instruction: str, lanes: int) -> Register:
        return Register(self, self.text.emit(instruction), lanes)

    def apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        """A primitive by its instruction, a kernel or the library; any other op by its rule."""
        widths = [operand.lanes for operand in operands if isinstance(operand, Register)]
        if not op.c or not widths:
            return op.forward(*operands)
        lanes = max(widths)
        if op is ops.pow_ and not isinstance(operands[1], Register) and (result := power(*operands)) is not None:
            return result
        registers = [self.register(operand, lanes) for operand in operands]
        if name := self._primitive(op.name, [register.name for register in registers], lanes):
            return Register(self, name, lanes)
        if kernels.pays(op.name, lanes, self.element, self.text.functions):
            return self._kernel(op.name, self._calmed(registers, lanes))
        return Register(self, self.text.library(op.name, [register.name for register in registers], lanes), lanes)

    def _primitive(self, name: str, operands: list[str], lanes: int) -> str | None:
        """The result of an instruction of LLVM's own, if it has one."""
        text, kind = self.text, self.element.lanes(lanes)
        if name in INSTRUCTIONS:
            result = text.emit(INSTRUCTIONS[name].format(*operands, kind=kind))
            bits = [self.conditions.get(operand) for operand in operands]
            if name in JOINED and all(bits):
                self.conditions[result] = text.emit(f"{JOINED[name]} {vector('i1', lanes)} {bits[0]}, {bits[1]}")
            return result
        if name in INTRINSICS:
            return text.intrinsic(INTRINSICS[name], operands, lanes)
        return self._condition(name, operands, lanes) if name in COMPARISONS else None

    def _condition(self, name: str, operands: list[str], lanes: int) -> str:
        """A comparison as 1.0 or 0.0; or a choice, by the bits of its condition, which then needs no number."""
        text, kind = self.text, self.element.lanes(lanes)
        zero, one = (self.register(number, lanes).name for number in (0.0, 1.0))
        a, b, yes, no = (operands[0], zero, *operands[1:]) if name == "where" else (*operands, one, zero)
        known = self.conditions.get(a) if name == "where" else None
        condition = known or text.emit(f"fcmp {COMPARISONS[name]} {kind} {a}, {b}")
        result = text.emit(f"select {vector('i1', lanes)} {condition}, {kind} {yes}, {kind} {no}")
        if name != "where":
            self.conditions[result] = condition
        return result

    def register(self, value: Any, lanes: int) -> Register:
        """`value` in `lanes` lanes."""
        if not isinstance(value, Register):
            return Register(self, constant(self.element.name, self.element.literal(value), lanes), lanes)
        if value.lanes == lanes:
            return value
        kind, first = self.element.lanes(lanes), self._inserted("poison", value, 0, lanes)
        return self.emit(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer", lanes)

    def _calmed(self, operands: Sequence[Register], lanes: int) -> Sequence[Register]:
        """Ones in lanes that hold whatever follows in memory: for some numbers a function takes longer."""
        if not self.active or lanes == 1 or self.target.has_masks:
            return operands
        return [self.where_active(x, self.register(1.0, lanes)) for x in operands]

    def _kernel(self, name: str, operands: Sequence[Register]) -> Register:
        """A function of `kernels`, on all lanes at once; on half of them if they take more registers than a value."""
        lanes, element = operands[0].lanes, self.element
        if lanes > self.target.lanes(element.bytes) * self.target.vectors:
            half = lanes // 2
            parts = [[self.lanes_of(x, start, half) for x in operands] for start in (0, half)]
            return self.joined(*[self._kernel(name, part) for part in parts])
        self.text.declarations |= kernels.define(name, lanes, element, self.text.functions, self.target.reads_constants)
        given = ", ".join(f"{element.lanes(lanes)} {x.name}" for x in operands)
        return self.emit(f"call {element.lanes(lanes)} {kernels.symbol(name, lanes, element)}({given})", lanes)

    # Lanes.

    def shuffled(self, a: Register, other: str, chosen: Sequence[int]) -> Register:
        """The chosen lanes of two vectors, which are counted through."""
        kind, mask = self.element.lanes(a.lanes), ", ".join(f"i32 {lane}" for lane in chosen)
        vectors = f"{kind} {a.name}, {kind} {other}"
        return self.emit(f"shufflevector {vectors}, <{len(chosen)} x i32> <{mask}>", len(chosen))

    def lanes_of(self, x: Register, start: int, count: int) -> Register:
        return self.shuffled(x, "poison", range(start, start + count))

    def joined(self, a: Register, b: Register) -> Register:
        """The lanes of two vectors in one."""
        return self.shuffled(a, b.name, range(2 * a.lanes))

    def side_by_side(self, numbers: Iterable[Register], lanes: int) -> Register:
        """A vector of these lanes."""
        if lanes == 1:
            return next(iter(numbers))
        result = "poison"
        for lane, number in enumerate(numbers):
            result = self._inserted(result, number, lane, lanes)
        return Register(self, result, lanes)

    def _inserted(self, vector: str, value: Register, lane: int, lanes: int) -> str:
        """The vector with one lane replaced."""
        kind, one = self.element.lanes(lanes), self.element.name
        return self.text.emit(f"insertelement {kind} {vector}, {one} {value.name}, i32 {lane}")

    def apart(self, vector: Register) -> Iterable[Register]:
        """Its lanes one by one."""
        if vector.lanes == 1:
            return [vector]
        return (self.lane(vector, lane) for lane in range(vector.lanes))

    def lane(self, vector: Register, lane: int) -> Register:
        return self.emit(f"extractelement {self.element.lanes(vector.lanes)} {vector.name}, i32 {lane}", 1)

    # Memory.

    def load(self, access: Access, indices: Sequence[str], lanes: int, axis: int | None) -> Register:
        """The elements of `lanes` turns along `axis`; one, if they are the same."""
        stride = access.strides[axis] if axis is not None and lanes > 1 else 0
        if access.table is None and stride == 1:
            return self.load_from(self.address(access, indices), lanes)
        if stride == 0:
            return self.load_from(self.address(access, indices), 1)
        own = self.active or lanes
        if access.table is None and stride == 2 and self.picks:
            pair = [self.load_from(self.address(access, indices, start), lanes) for start in (0, own - 1)]
            chosen = [k if k < own else k + lanes - own + 1 for k in range(0, 2 * own, 2)]
            return self.shuffled(pair[0], pair[1].name, [*chosen, *[0] * (lanes - own)])
        numbers = [self.load_from(self.address(access, indices, lane * stride), 1) for lane in range(own)]
        return self.side_by_side([*numbers, *numbers[:1] * (lanes - own)], lanes)

    def store(self, access: Access, indices: Sequence[str], value: Register, axis: int | None) -> None:
        """Set the elements of as many turns along `axis` as the value has lanes."""
        stride = access.strides[axis] if axis is not None and value.lanes > 1 else 0
        if access.table is None and stride == 1:
            self.store_to(self.address(access, indices), value)
            return
        for lane, part in enumerate(islice(self.apart(value), self.active or None)):
            self.store_to(self.address(access, indices, lane * stride), part)

    def load_from(self, pointer: str, lanes: int) -> Register:
        """Neighbouring elements. In the lanes that do not count: ones, or without masks whatever follows in memory."""
        if self.active and lanes > 1 and self.target.has_masks:
            kind, ones = self.element.lanes(lanes), self.register(1.0, lanes).name
            function = self._masked("load", f"{kind} ", f"ptr, i32, {vector('i1', lanes)}, {kind}", lanes)
            given = f"ptr {pointer}, i32 {self.element.bytes}, {self._mask(lanes)}, {kind} {ones}"
            return self.emit(f"call {kind} {function}({given})", lanes)
        return self.emit(f"load {self.element.lanes(lanes)}, ptr {pointer}, align {self.element.bytes}", lanes)

    def store_to(self, pointer: str, value: Register) -> None:
        """Set neighbouring elements, in the lanes that count."""
        kind = self.element.lanes(value.lanes)
        if self.active and value.lanes > 1:
            if not self.target.has_masks:
                self._store_in_parts(pointer, value)
                return
            function = self._masked("store", "void ", f"{kind}, ptr, i32, {vector('i1', value.lanes)}", value.lanes)
            given = f"{kind} {value.name}, ptr {pointer}, i32 {self.element.bytes}, {self._mask(value.lanes)}"
            self.text.lines.append(f"  call void {function}({given})")
            return
        self.text.lines.append(f"  store {kind} {value.name}, ptr {pointer}, align {self.element.bytes}")

    def _store_in_parts(self, pointer: str, value: Register) -> None:
        """Set the lanes that count, as vectors of fewer lanes."""
        start, count, active, self.active = 0, value.lanes, self.active, 0
        while start < active:
            if start + count <= active:
                place = self.text.emit(f"getelementptr inbounds {self.element.name}, ptr {pointer}, i64 {start}")
                self.store_to(place, self.lanes_of(value, start, count) if count > 1 else self.lane(value, start))
                start += count
            count //= 2
        self.active = active

    def _masked(self, deed: str, result: str, given: str, lanes: int) -> str:
        """An intrinsic that loads or stores some lanes."""
        name = f"@llvm.masked.{deed}.{self.element.suffix(lanes)}.p0"
        self.text.declarations.add(f"declare {result}{name}({given})")
        return name

    def _mask(self, lanes: int) -> str:
        """The lanes that count."""
        return f"<{lanes} x i1> <{', '.join(['i1 1'] * self.active + ['i1 0'] * (lanes - self.active))}>"

    def where_active(self, value: Register, other: Register) -> Register:
        """The value in the lanes that count, and the other in those that do not."""
        if not self.active:
            return value
        kind = self.element.lanes(value.lanes)
        return self.emit(f"select {self._mask(value.lanes)}, {kind} {value.name}, {kind} {other.name}", value.lanes)

    def address(self, access: Access, indices: Sequence[str], extra: int = 0) -> str:
        """A pointer to the element; through the table if there is one."""
        emit, offset = self.text.emit, self.offset(access)
        table = access.table is not None
        places = [(stride, name) for stride, name in zip(access.strides, indices, strict=True) if stride]
        known = sum([stride * int(name) for stride, name in places if name.isdigit()])
        index = str(extra + access.base + known + (0 if table else offset))
        for stride, name in places:
            if not name.isdigit():
                step = name if stride == 1 else emit(f"mul nsw i64 {name}, {stride}")
                index = step if index == "0" else emit(f"add nsw i64 {step}, {index}")
        if table:
            index = self._looked_up(access, index)
        if access.repeat:
            index = emit(f"add nsw i64 {index}, {emit(f'mul nsw i64 %time, {access.repeat}')}")
        if table and offset:
            index = emit(f"add nsw i64 {index}, {offset}")
        return emit(f"getelementptr inbounds {self.element.name}, ptr {self.memory(access.array)}, i64 {index}")

    def _looked_up(self, access: Access, index: str) -> str:
        """The position that a table has at an index."""
        if index.isdigit() and self.knows_tables:
            return str(int(access.table[int(index)]))
        entry = self.text.emit(f"getelementptr inbounds i64, ptr {self.table(access)}, i64 {index}")
        self.text.declarations.add("!0 = !{}")
        return self.text.emit(f"load i64, ptr {entry}, !invariant.load !0")

    def offset(self, access: Access) -> int:
        """How far the array of an access lies from the pointer that `memory` gives."""
        return self.offsets[access.array]

    def memory(self, array: Array) -> str:
        """The pointer that the offset of an array is from."""
        return self.block(array)

    def block(self, array: Array) -> str:
        """The pointer to the memory that an array lies in."""
        return self.blocks.get(array, "%memory")

    def table(self, access: Access) -> str:
        """A pointer to the positions in a table."""
        self.tables.append(np.ascontiguousarray(access.table, dtype=np.int64))
        return f"inttoptr (i64 {self.tables[-1].ctypes.data} to ptr)"

    # Loops.

    def loop(
        self,
        stop: int,
        step: int,
        carried: list[Register],
        body: Callable[[str, list[Register]], list[Register]],
        short: int = SHORT,
    ) -> list[Register]:
        """A loop over 0, step, …, below `stop`. `carried` are the first values of what each turn passes on.

        `body` takes the index and these values, and returns their next ones; those of the last turn are the results.
        If something is passed on, `short` turns or fewer are written out.
        """
        if carried and stop <= short * step:
            for turn in range(0, stop, step):
                carried = body(str(turn), carried)
            return carried
        text = self.text
        before, head, after = text.label, f"head{text.count}", f"after{text.count}"
        text.count += 1
        text.lines += [f"  br label %{head}", f"{head}:"]
        index, place = text.fresh(), len(text.lines)
        inside = [Register(self, text.fresh(), value.lanes) for value in carried]
        text.label = head
        results = body(index, inside)
        following = text.emit(f"add nuw nsw i64 {index}, {step}")
        again = text.emit(f"icmp slt i64 {following}, {stop}")
        kinds = ["i64", *[self.element.lanes(value.lanes) for value in carried]]
        ends = [(index, "0", following)]
        ends += [(x.name, first.name, next_.name) for x, first, next_ in zip(inside, carried, results, strict=True)]
        text.lines[place:place] = [
            f"  {inner} = phi {kind} [ {first}, %{before} ], [ {next_}, %{text.label} ]"
            for kind, (inner, first, next_) in zip(kinds, ends, strict=True)
        ]
        text.lines += [f"  br i1 {again}, label %{head}, label %{after}", f"{after}:"]
        text.label = after
        return results


class Movable(Registers):
    """Registers of a function that is given its arrays, and its tables of positions, as arguments.

    Statements that differ only in where their arrays lie are then the same function. An argument points to the element
    that the first access has as its base.
    """

    knows_tables = False
    picks = True

    def __init__(
        self,
        text: Text,
        offsets: Mapping[Array, int],
        tables: list[np.ndarray],
        target: Target,
        blocks: Mapping[Array, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(text, offsets, tables, target, blocks)
        self.bases: dict[Place, int] = {}
        self.names: dict[Place | str, str] = {}  # where an array lies, or a pointer to a table -> the argument

    @property
    def parameters(self) -> str:
        """The arguments, as the function declares them. Arrays in one place share one; others never overlap."""
        return "".join([f", ptr noalias {name}" for name in self.names.values()])

    def places(self) -> list[Place | str]:
        """The arguments of this statement: blocks of memory and places in them, and pointers to tables."""
        return [key if isinstance(key, str) else (key[0], key[1] + self.bases[key]) for key in self.names]

    def offset(self, access: Access) -> int:
        return -self.bases.setdefault(self._place(access.array), 0 if access.table is not None else access.base)

    def memory(self, array: Array) -> str:
        return self._argument(self._place(array))

    def table(self, access: Access) -> str:
        return self._argument(super().table(access))

    def _place(self, array: Array) -> Place:
        return self.block(array), self.offsets[array]

    def _argument(self, thing: Place | str) -> str:
        return self.names.setdefault(thing, f"%given{len(self.names)}")
