"""The LLVM backend: one function a statement, loops with known trip counts, vectors as wide as four registers.

The only module that imports llvmlite. Statements become text in LLVM's language; rules of the op table run on pieces of
that text (`Register`), as they run on any other kind of number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from string import Template
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite.binding.newpassmanagers import NewPassManager

from chainrule import ops
from chainrule.compiler.backends import kernels
from chainrule.compiler.passes import powers
from chainrule.compiler.passes.fusion import Group, groups, is_same, stored, without_zeros
from chainrule.compiler.passes.lanes import JAM, choose_jams, choose_lanes
from chainrule.compiler.passes.program import (
    NOTHING,
    Access,
    Apply,
    Array,
    ArrayProgram,
    Expression,
    Number,
    Repeat,
    Statement,
    Term,
)

WIDEST = 32  # lanes of doubles: four 512-bit registers, enough to hide the latency of a fused multiply-add
LONGEST = 256  # statements of a Repeat that are compiled as one: LLVM's work on straight-line code is superlinear
LINE = 64  # bytes: a cache line
# Flags never assume away NaN or infinity. Products and sums are fused, and sums across lanes are in any order, but no
# instruction has both flags: with `reassoc` and `contract` LLVM 22 rewrites (a*b + c*d) + e in place, and another sum
# that shares a*b + c*d then has c*d in it twice.
FUSED, ANY_ORDER = "contract", "reassoc"

ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
INTRINSICS = {"abs": "fabs", "sqrt": "sqrt", **{name: name for name in ("floor", "ceil", "trunc", "rint")}}


class Element:
    """The type of every number in a program, in LLVM's words and in NumPy's."""

    def __init__(self, dtype: str, name: str, code: str) -> None:
        self.dtype = np.dtype(dtype)
        self.bytes = self.dtype.itemsize
        self.name = name
        self.code = code  # in the names of intrinsics

    @property
    def widest(self) -> int:
        """The most lanes: those that fill the registers which WIDEST doubles fill."""
        return WIDEST * 8 // self.bytes

    def lanes(self, count: int) -> str:
        """The type of so many of them side by side."""
        return self.name if count == 1 else f"<{count} x {self.name}>"

    def suffix(self, lanes: int) -> str:
        """What the name of an intrinsic ends in."""
        return self.code if lanes == 1 else f"v{lanes}{self.code}"

    def literal(self, number: float) -> str:
        """A constant. LLVM writes one of any type as the bits of a double, which must be exact in that type."""
        with np.errstate(over="ignore"):
            rounded = np.float64(self.dtype.type(number))
        return f"0x{rounded.view(np.uint64):016X}"


DOUBLE = Element("float64", "double", "f64")
ELEMENTS = {"float64": DOUBLE, "float32": Element("float32", "float", "f32")}


class Native:
    """A compiled array program, with the memory that it works in."""

    def __init__(self, program: ArrayProgram, dtype: str = "float64") -> None:
        self.element = ELEMENTS[dtype]
        program = without_zeros(program)
        kept = stored(program)
        self.offsets, self.size = _place([array for array in program.arrays() if array in kept], self.element)
        module = _Module(program, self.offsets, self.element)
        self.tables = module.tables
        self.engine = _compile(str(module))
        self.entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.engine.get_function_address("run"))
        matrix, number = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64), ctypes.c_int64
        self.drive = ctypes.CFUNCTYPE(None, ctypes.c_void_p, number, *matrix * len(MATRICES), *matrix, number)(
            self.engine.get_function_address("drive")
        )
        self._allocate()

    def twin(self) -> Native:
        """The same code with memory of its own, to run at the same time in another thread."""
        other = copy(self)
        other._allocate()
        return other

    def _allocate(self) -> None:
        self.memory = _aligned(self.size, self.element)
        self.views = {array: self.memory[o : o + array.size] for array, o in self.offsets.items()}
        self.address = self.memory.ctypes.data

    def run(self) -> None:
        """Fill every array from the leaves."""
        self.entry(self.address)

    def run_many(
        self, count: int, rows: Mapping[Array, np.ndarray], output: Array, summed: Array | None, section: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run so many times, with up to two leaves set to the next of their rows before; a row a run of the output.

        And for each `section` of runs a row of the sums of `summed`, if that is wanted.
        """
        given = {leaf: np.ascontiguousarray(matrix, dtype=self.element.dtype) for leaf, matrix in rows.items()}
        copied = {leaf: m for leaf, m in given.items() if not np.may_share_memory(m, self.views[leaf])}
        results = np.empty((count, output.size), dtype=self.element.dtype)
        size = summed.size if summed and count > 1 else 0  # those of one run are in the memory
        sums = np.zeros((-(-count // section), _padded(size, self.element)))
        places = [*self._matrices(copied), *self._matrices({output: results})[:3]]
        places += [sums.ctypes.data, sums.shape[1], self.offsets[summed] if summed else 0]
        self.drive(self.address, count, *places, section)
        if summed and count == 1:
            return results, self.views[summed].reshape(1, -1).astype(np.float64)
        return results, sums[:, :size]

    def _matrices(self, matrices: Mapping[Array, np.ndarray]) -> list[int | None]:
        """For each of two matrices: where it is, its width, and where in the memory the array is."""
        found = [n for array, rows in matrices.items() for n in (rows.ctypes.data, rows.shape[1], self.offsets[array])]
        return [*found, *[None, 0, 0] * 2][:6]


def _place(arrays: Sequence[Array], element: Element) -> tuple[dict[Array, int], int]:
    offsets, end = {}, 0
    for array in arrays:
        offsets[array] = end
        end += _padded(array.size, element)
    return offsets, end


def _padded(size: int, element: Element) -> int:
    """The room for so many numbers: whole cache lines."""
    line = LINE // element.bytes
    return -(-size // line) * line


def _aligned(size: int, element: Element) -> np.ndarray:
    raw = np.zeros(size + LINE // element.bytes, dtype=element.dtype)
    start = -raw.ctypes.data % LINE // element.bytes
    return raw[start : start + size]


def _compile(text: str) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False  # done here, on the axis that we chose
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(target, options)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    NewPassManager._dispose(passes)  # llvmlite's own object inherits a disposal that does nothing
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine


# run, again and again: each time rows of numbers go into the memory first, and a row of results comes out of it. Of
# each of the matrices that rows belong to: where it is, its width, and where in the memory a row goes to or comes from.
# What is summed up is added, in doubles, to a row for each section of runs.
MATRICES = ("in1", "in2", "out")
ARGUMENTS = ", ".join(f"ptr %{name}, i64 %width.{name}, i64 %place.{name}" for name in (*MATRICES, "sums"))
PLACE = Template("""  %bytes.$name = mul i64 %width.$name, $bytes
  %memory.$name = getelementptr $number, ptr %memory, i64 %place.$name
""")
ROW = Template("""  %offset.$name = mul i64 %time, %bytes.$name
  %row.$name = getelementptr i8, ptr %$name, i64 %offset.$name
  call void @llvm.memcpy.p0.p0.i64(ptr $target, ptr $source, i64 %bytes.$name, i1 false)
""")
DRIVE = Template("""
define void @drive(ptr %memory, i64 %count, $arguments, i64 %section) {
entry:
$places
  br label %test
test:
  %time = phi i64 [ 0, %entry ], [ %next, %turn ]
  %more = icmp slt i64 %time, %count
  br i1 %more, label %turn, label %end
turn:
$fill
  call void @run(ptr %memory)
$drain
  %number.section = udiv i64 %time, %section
  %offset.sums = mul i64 %number.section, %width.sums
  %row.sums = getelementptr double, ptr %sums, i64 %offset.sums
  call void @add(ptr %row.sums, ptr %memory.sums, i64 %width.sums)
  %next = add i64 %time, 1
  br label %test
end:
  ret void
}

define internal void @add(ptr noalias %sums, ptr noalias %numbers, i64 %count) #0 {
entry:
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %next, %turn ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %turn, label %end
turn:
  %from = getelementptr $number, ptr %numbers, i64 %k
  %to = getelementptr double, ptr %sums, i64 %k
  %given = load <$line x $number>, ptr %from, align $bytes
$widen
  %before = load <$line x double>, ptr %to, align 8
  %after = fadd <$line x double> %before, $wide
  store <$line x double> %after, ptr %to, align 8
  %next = add i64 %k, $line
  br label %test
end:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
""")


def _drive(element: Element) -> str:
    def row(name: str) -> str:
        ends = [f"%memory.{name}", f"%row.{name}"]
        target, source = ends if name.startswith("in") else reversed(ends)
        return ROW.substitute(name=name, target=target, source=source)

    names, line = (*MATRICES, "sums"), LINE // element.bytes
    return DRIVE.substitute(
        arguments=ARGUMENTS,
        places="".join(PLACE.substitute(name=n, bytes=element.bytes, number=element.name) for n in names),
        fill="".join(row(name) for name in MATRICES[:2]),
        drain=row("out"),
        number=element.name,
        bytes=element.bytes,
        line=line,
        widen="" if element is DOUBLE else f"  %wide = fpext <{line} x {element.name}> %given to <{line} x double>",
        wide="%given" if element is DOUBLE else "%wide",
    )


ATTRIBUTES = """
attributes #0 = { nounwind noinline "prefer-vector-width"="512" }
attributes #1 = { nounwind alwaysinline }
"""


class _Module:
    """The text of the whole program."""

    def __init__(self, program: ArrayProgram, offsets: dict[Array, int], element: Element) -> None:
        self.offsets = offsets  # of the arrays that are in memory
        self.element = element
        self.tables: list[np.ndarray] = []
        self.declarations: set[str] = set()
        self.functions: list[_Function] = []
        self.calls = self.calls_of(program.steps)

    def calls_of(self, steps: Sequence[Statement | Repeat], time: str = "0", inline: bool = False) -> list[str]:
        return [
            self.repeat(step) if isinstance(step, Repeat) else self.call(step, time, inline) for step in groups(steps)
        ]

    def call(self, group: Group, time: str, inline: bool) -> str:
        """A call of the function of some statements, which is inlined if it has no loops and `inline` says so."""
        inlined = inline and not group[0].loops and not any(term.loops for term in group[0].terms)
        self.functions.append(_Function(self, group, f"s{len(self.functions)}", "#1" if inlined else "#0"))
        return f"  call void @{self.functions[-1].name}(ptr %memory, i64 {time})"

    def repeat(self, step: Repeat) -> str:
        """A loop that calls the body's functions in order, one time after another."""
        k = len(self.functions)
        calls = self.calls_of(step.body, f"%r{k}", len(step.body) <= LONGEST)
        first, last, to_next = step.times[0], step.times[-1], step.times.step
        return "\n".join(
            [
                f"  br label %before{k}",
                f"before{k}:",
                f"  br label %head{k}",
                f"head{k}:",
                f"  %r{k} = phi i64 [ {first}, %before{k} ], [ %next{k}, %head{k} ]",
                *calls,
                f"  %next{k} = add nsw i64 %r{k}, {to_next}",
                f"  %done{k} = icmp eq i64 %r{k}, {last}",
                f"  br i1 %done{k}, label %after{k}, label %head{k}",
                f"after{k}:",
            ]
        )

    def table(self, positions: np.ndarray) -> int:
        """The address of a table of positions, which lives as long as the program."""
        self.tables.append(np.ascontiguousarray(positions, dtype=np.int64))
        return int(self.tables[-1].ctypes.data)

    def __str__(self) -> str:
        calls = "\n".join(self.calls)
        bodies = "\n".join(map(str, self.functions))
        main = f"define void @run(ptr %memory) {{\n{calls}\n  ret void\n}}\n"
        return "\n".join([bodies, main, _drive(self.element), *sorted(self.declarations), ATTRIBUTES])


class Register(ops.Carrier):
    """A value in LLVM's text, with its number of lanes."""

    def __init__(self, function: _Function, name: str, lanes: int) -> None:
        self.function = function
        self.name = name
        self.lanes = lanes

    def _apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        return self.function.apply(op, operands)


class _Function:
    """A statement, and those that go along with it, as a function of the memory and of the time in a Repeat."""

    def __init__(self, module: _Module, group: Group, name: str, attributes: str) -> None:
        self.module = module
        self.element = module.element
        self.axis, self.statement = choose_lanes(group[0])
        self.followers = group[1:]
        self.known: list[tuple[Access, Register]] = []  # what this turn has in registers
        self.name = name
        self.attributes = attributes
        self.lines: list[str] = []
        self.count = 0
        self.label = "entry"
        self.jammed = choose_jams(self.statement, self.axis)
        self.lanes = 1
        self.nest(0, [[]])

    def __str__(self) -> str:
        body = "\n".join(self.lines)
        head = f"define internal void @{self.name}(ptr %memory, i64 %time) {self.attributes}"
        return f"{head} {{\nentry:\n{body}\n  ret void\n}}\n"

    # Text.

    def fresh(self) -> str:
        self.count += 1
        return f"%r{self.count}"

    def emit(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def loop(
        self, stop: int, step: int, carried: list[Register], body: Callable[[str, list[Register]], list[Register]]
    ) -> list[Register]:
        """A loop over 0, step, …, below `stop`; `body` takes and gives the values that are carried around."""
        before, head, after = self.label, f"head{self.count}", f"after{self.count}"
        self.count += 1
        self.lines += [f"  br label %{head}", f"{head}:"]
        index, place = self.fresh(), len(self.lines)
        inside = [Register(self, self.fresh(), value.lanes) for value in carried]
        self.label = head
        results = body(index, inside)
        following = self.emit(f"add nuw nsw i64 {index}, {step}")
        again = self.emit(f"icmp slt i64 {following}, {stop}")
        phis = [f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{self.label} ]"]
        for value, inner, result in zip(carried, inside, results, strict=True):
            phis.append(
                f"  {inner.name} = phi {self.element.lanes(value.lanes)}"
                f" [ {value.name}, %{before} ], [ {result.name}, %{self.label} ]"
            )
        self.lines[place:place] = phis
        self.lines += [f"  br i1 {again}, label %{head}, label %{after}", f"{after}:"]
        self.label = after
        return results

    # Loops. A *tile* is a list of index lists: results that are computed side by side, in registers of their own.

    def nest(self, depth: int, tile: list[list[str]]) -> None:
        """The statement's loops from `depth` on; the vector axis in chunks, jammed ones several turns at a time."""
        if depth == len(self.statement.loops):
            self.body(tile)
            return
        extent = self.statement.loops[depth]

        def one(index: str) -> None:
            self.nest(depth + 1, [[*indices, index] for indices in tile])

        def several(index: str) -> None:
            turns = [self.shifted(index, k) for k in range(JAM)]
            self.nest(depth + 1, [[*indices, turn] for indices in tile for turn in turns])

        def vector(index: str, lanes: int) -> None:
            self.lanes = lanes
            one(index)
            self.lanes = 1

        if depth == self.axis:
            self.chunks(extent, self.element.widest, vector)
        elif depth in self.jammed:
            whole = extent // JAM * JAM
            self.walk(0, whole, JAM, several)
            self.walk(whole, extent, 1, one)
        else:
            self.walk(0, extent, 1, one)

    def walk(self, start: int, stop: int, step: int, body: Callable[[str], None]) -> None:
        """`body` for start, start + step, …, below `stop`."""
        if stop - start <= step:
            if start < stop:
                body(str(start))
            return

        def once(index: str, carried: list[Register]) -> list[Register]:
            body(self.shifted(index, start))
            return []

        self.loop(stop - start, step, [], once)

    def chunks(self, extent: int, widest: int, body: Callable[[str, int], None]) -> None:
        """`extent` turns in vectors: as many of the widest as fit, then narrower ones for the rest."""
        for start, stop, lanes in _chunks(extent, widest):
            self.walk(start, stop, lanes, lambda index, lanes=lanes: body(index, lanes))  # type: ignore[misc]

    def shifted(self, index: str, offset: int) -> str:
        if offset == 0:
            return index
        return str(int(index) + offset) if index.isdigit() else self.emit(f"add nuw nsw i64 {index}, {offset}")

    # The body: a sum of terms into the target.

    def body(self, tile: list[list[str]]) -> None:
        if self.is_row(tile):
            terms, target = self.statement.terms, self.statement.target
            sums = [self.reduce_across_lanes(term, tile) for term in terms]
            total = self.joined_terms(self.statement, sums)
            for start in range(0, len(tile), JAM):
                pointer, part = self.address(target, tile[start]), self.lanes_of(total, start, JAM)
                if self.statement.accumulate:
                    part = self.apply(ops.add, (self.load_from(pointer, JAM), part))
                self.store_to(pointer, part)
            return
        columns = [self.term(term, tile) for term in self.statement.terms]
        for indices, values in zip(tile, zip(*columns, strict=True), strict=True):
            self.finish(self.statement, indices, values)
            for follower in self.followers:
                self.finish(follower, indices, [self.term(term, [indices])[0] for term in follower.terms])
            self.known = []

    def finish(self, statement: Statement, indices: list[str], values: Sequence[Any]) -> None:
        """The statement for a turn, from the values of its terms."""
        total = self.joined_terms(statement, values)
        if statement.accumulate:
            total = self.apply(ops.add, (self.load(statement.target, indices, self.lanes, self.axis), total))
        result = self.register(total, self.lanes)
        if statement.target.array in self.module.offsets:
            self.store(statement.target, indices, result)
        if self.followers:
            self.known.append((statement.target, result))

    def is_row(self, tile: list[list[str]]) -> bool:
        """Whether all terms are sums across lanes, and each JAM results of the tile lie side by side in memory."""
        if len(tile) < JAM or self.axis is not None or not all(term.loops for term in self.statement.terms):
            return False
        target, (first, second) = self.statement.target, tile[:2]
        moves = [stride for stride, a, b in zip(target.strides, first, second, strict=True) if a != b]
        return moves == [1] and target.table is None and target.array in self.module.offsets

    def joined_terms(self, statement: Statement, values: Sequence[Any]) -> Any:
        """The sum of the terms, or the largest of them, from their values."""
        signs = [term.sign for term in statement.terms]
        total = values[0] if signs[0] > 0 else self.apply(ops.neg, (values[0],))
        for sign, value in zip(signs[1:], values[1:], strict=True):
            total = self.apply(statement.join if sign > 0 else ops.sub, (total, value))
        return total

    def start(self, lanes: int) -> Register:
        """What a reduction of the statement begins with."""
        return self.register(NOTHING if self.statement.join is ops.add else -ops.INF, lanes)

    def term(self, term: Term, tile: list[list[str]]) -> list[Any]:
        """The value of a term for each entry of the tile."""
        if not term.loops:
            return [self.evaluate(term.expression, indices, self.lanes, self.axis) for indices in tile]
        if self.axis is not None:
            starts = [self.start(self.lanes)] * len(tile)
            return list(self.reduce(term, tile, starts, 0, self.lanes, self.axis))
        return self.apart(self.reduce_across_lanes(term, tile))

    def reduce(
        self,
        term: Term,
        tile: list[list[str]],
        totals: list[Register],
        depth: int,
        lanes: int,
        axis: int,
        last: str = "",
    ) -> list[Register]:
        """`totals` joined by what the term's loops from `depth` on give; `last` is the index of the vector loop."""
        if depth == len(term.loops) - (1 if last else 0):
            ends = [last] if last else []
            values = [self.evaluate(term.expression, indices + ends, lanes, axis) for indices in tile]
            join = self.statement.join
            return [self.register(self.apply(join, pair), lanes) for pair in zip(totals, values, strict=True)]

        def once(index: str, carried: list[Register]) -> list[Register]:
            inner = [[*indices, index] for indices in tile]
            return self.reduce(term, inner, carried, depth + 1, lanes, axis, last)

        return self.loop(term.loops[depth], 1, totals, once)

    def reduce_across_lanes(self, term: Term, tile: list[list[str]]) -> Register:
        """Reductions with the lanes along their last loop, and sums across lanes at the end: a lane for each result."""
        axis = len(self.statement.loops) + len(term.loops) - 1
        registers = 4 if len(tile) == 1 else 2 if len(tile) <= JAM else 1  # for each sum
        totals: list[Register] = []
        for start, stop, lanes in _chunks(term.loops[-1], self.element.widest // 4 * registers):
            starts = [self.start(lanes)] * len(tile)

            def chunk(index: str, carried: list[Register], start: int = start, lanes: int = lanes) -> list[Register]:
                return self.reduce(term, tile, carried, 0, lanes, axis, self.shifted(index, start))

            parts = chunk("0", starts) if stop - start == lanes else self.loop(stop - start, lanes, starts, chunk)
            totals = [self.joined_in(*pair) for pair in zip(totals, parts, strict=True)] if totals else parts
        return self.across(totals)

    def joined_in(self, wide: Register, narrow: Register) -> Register:
        """Two parts of a reduction, joined in the lanes that both have."""
        if narrow.lanes == 1:
            narrow = self.side_by_side([narrow, self.start(1)])
        lanes = [min(lane, narrow.lanes) for lane in range(wide.lanes)]  # beyond its own, one that changes nothing
        more = Register(self, self.shuffle(narrow, self.start(narrow.lanes).name, lanes), wide.lanes)
        return self.join(wide, more)

    def across(self, vectors: list[Register]) -> Register:
        """Each vector's lanes joined; side by side, in a vector with a lane for each."""
        count, lanes = len(vectors), vectors[0].lanes
        if count == 1 or lanes == 1:
            return self.side_by_side([self.join_lanes(vector) for vector in vectors])
        if count > lanes:
            return self.joined([self.across(vectors[: count // 2]), self.across(vectors[count // 2 :])])
        while len(vectors) > 1:
            vectors = [self.folded(a, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        while vectors[0].lanes > count:
            vectors = [self.folded(vectors[0])]
        return vectors[0]

    def folded(self, a: Register, b: Register | None = None) -> Register:
        """Neighbouring lanes joined: those of `a`, then those of `b`."""
        lanes, other = (2 * a.lanes, b.name) if b else (a.lanes, "poison")
        even, odd = (self.shuffle(a, other, range(start, lanes, 2)) for start in (0, 1))
        return self.join(Register(self, even, lanes // 2), Register(self, odd, lanes // 2))

    def join(self, a: Register, b: Register) -> Register:
        """Two parts of a reduction of the statement."""
        total: Register = self.apply(self.statement.join, (a, b))
        return total

    def join_lanes(self, vector: Register) -> Register:
        if vector.lanes == 1:
            return vector
        if self.statement.join is not ops.add:
            while vector.lanes > 2:
                vector = self.folded(vector)
            return self.join(*self.apart(vector))
        one, many = self.element.name, self.element.lanes(vector.lanes)
        function = f"{one} @llvm.vector.reduce.fadd.{self.element.suffix(vector.lanes)}"
        self.module.declarations.add(f"declare {function}({one}, {many})")
        return Register(self, self.emit(f"call {ANY_ORDER} {function}({one} -0.0, {many} {vector.name})"), 1)

    def side_by_side(self, numbers: list[Register]) -> Register:
        """A vector of these lanes."""
        if len(numbers) == 1:
            return numbers[0]
        result, kind = "poison", self.element.lanes(len(numbers))
        for lane, number in enumerate(numbers):
            result = self.emit(f"insertelement {kind} {result}, {self.element.name} {number.name}, i32 {lane}")
        return Register(self, result, len(numbers))

    def apart(self, vector: Register) -> list[Register]:
        """Its lanes one by one."""
        if vector.lanes == 1:
            return [vector]
        kind = self.element.lanes(vector.lanes)
        names = [self.emit(f"extractelement {kind} {vector.name}, i32 {lane}") for lane in range(vector.lanes)]
        return [Register(self, name, 1) for name in names]

    # Expressions.

    def evaluate(self, expression: Expression, indices: list[str], lanes: int, axis: int | None) -> Any:
        if isinstance(expression, Number):
            return expression.value
        if isinstance(expression, Access):
            return self.load(expression, indices, lanes, axis)
        assert isinstance(expression, Apply)
        return self.apply(expression.op, tuple(self.evaluate(o, indices, lanes, axis) for o in expression.operands))

    def apply(self, op: ops.Op, operands: tuple[Any, ...]) -> Any:
        if not op.c:
            return op.forward(*operands)
        if not any(isinstance(operand, Register) for operand in operands):
            return op.forward(*operands)
        lanes = max(operand.lanes for operand in operands if isinstance(operand, Register))
        if op is ops.pow_ and not isinstance(operands[1], Register):
            return self.power(operands[0], operands[1], lanes)
        names = [self.register(operand, lanes).name for operand in operands]
        kind = self.element.lanes(lanes)
        if op.name in ARITHMETIC:
            text = f"{ARITHMETIC[op.name]} {FUSED} {kind} {names[0]}, {names[1]}"
        elif op is ops.neg:
            text = f"fneg {kind} {names[0]}"
        elif op.name in COMPARISONS:
            bits = "i1" if lanes == 1 else f"<{lanes} x i1>"
            condition = self.emit(f"fcmp {COMPARISONS[op.name]} {kind} {names[0]}, {names[1]}")
            one, zero = self.register(1.0, lanes).name, self.register(0.0, lanes).name
            text = f"select {bits} {condition}, {kind} {one}, {kind} {zero}"
        elif op is ops.where:
            bits = "i1" if lanes == 1 else f"<{lanes} x i1>"
            zero = self.register(0.0, lanes).name
            condition = self.emit(f"fcmp une {kind} {names[0]}, {zero}")
            text = f"select {bits} {condition}, {kind} {names[1]}, {kind} {names[2]}"
        elif op.name in INTRINSICS:
            function = f"@llvm.{INTRINSICS[op.name]}.{self.element.suffix(lanes)}"
            self.module.declarations.add(f"declare {kind} {function}({kind})")
            text = f"call {kind} {function}({kind} {names[0]})"
        elif kernels.pays(op.name, lanes):
            return self.kernel(op.name, Register(self, names[0], lanes))
        else:
            return self.call(op.name, [Register(self, name, lanes) for name in names], lanes)
        return Register(self, self.emit(text), lanes)

    def power(self, base: Register, exponent: float, lanes: int) -> Any:
        """x ** a number."""
        result = powers.power(base, exponent)
        if result is not None:
            return result
        return self.call("pow", [base, self.register(exponent, lanes)], lanes)

    # Elementary functions are computed in doubles, and floats widened and rounded around them: the error is then hardly
    # over half an ulp of a float, and one set of kernels serves both types.

    def kernel(self, name: str, x: Register) -> Register:
        """A function of `kernels`, on all lanes at once; on half of them if their doubles would not fit registers."""
        if x.lanes > WIDEST:
            half = x.lanes // 2
            return self.joined([self.kernel(name, self.lanes_of(x, start, half)) for start in (0, half)])
        self.module.declarations |= kernels.define(name, x.lanes)
        kind = DOUBLE.lanes(x.lanes)
        result = self.emit(f"call {kind} {kernels.symbol(name, x.lanes)}({kind} {self.widened(x)})")
        return self.narrowed(result, x.lanes)

    def call(self, name: str, operands: list[Register], lanes: int) -> Register:
        """A function of the mathematical library, lane by lane."""
        arguments = ", ".join(["double"] * len(operands))
        self.module.declarations.add(f"declare double @{name}({arguments}) nounwind willreturn memory(none)")
        wide, kind = [self.widened(operand) for operand in operands], DOUBLE.lanes(lanes)
        if lanes == 1:
            result = self.emit(f"call double @{name}({', '.join('double ' + operand for operand in wide)})")
            return self.narrowed(result, 1)
        result = "poison"
        for lane in range(lanes):
            parts = [self.emit(f"extractelement {kind} {operand}, i32 {lane}") for operand in wide]
            value = self.emit(f"call double @{name}({', '.join('double ' + part for part in parts)})")
            result = self.emit(f"insertelement {kind} {result}, double {value}, i32 {lane}")
        return self.narrowed(result, lanes)

    def widened(self, x: Register) -> str:
        """The name of the same numbers as doubles."""
        if self.element is DOUBLE:
            return x.name
        return self.emit(f"fpext {self.element.lanes(x.lanes)} {x.name} to {DOUBLE.lanes(x.lanes)}")

    def narrowed(self, doubles: str, lanes: int) -> Register:
        """Doubles as numbers of the program's type."""
        if self.element is DOUBLE:
            return Register(self, doubles, lanes)
        text = f"fptrunc {DOUBLE.lanes(lanes)} {doubles} to {self.element.lanes(lanes)}"
        return Register(self, self.emit(text), lanes)

    def lanes_of(self, x: Register, start: int, count: int) -> Register:
        """`count` lanes from `start` on."""
        return Register(self, self.shuffle(x, "poison", range(start, start + count)), count)

    def joined(self, halves: list[Register]) -> Register:
        """The lanes of two vectors in one."""
        lanes = 2 * halves[0].lanes
        return Register(self, self.shuffle(halves[0], halves[1].name, range(lanes)), lanes)

    def shuffle(self, x: Register, other: str, lanes: Sequence[int]) -> str:
        kind, mask = self.element.lanes(x.lanes), ", ".join(f"i32 {lane}" for lane in lanes)
        return self.emit(f"shufflevector {kind} {x.name}, {kind} {other}, <{len(lanes)} x i32> <{mask}>")

    def register(self, value: Any, lanes: int) -> Register:
        """`value` in so many lanes."""
        if isinstance(value, Register):
            if value.lanes == lanes:
                return value
            kind = self.element.lanes(lanes)
            first = self.emit(f"insertelement {kind} poison, {self.element.name} {value.name}, i32 0")
            mask = f"<{lanes} x i32> zeroinitializer"
            return Register(self, self.emit(f"shufflevector {kind} {first}, {kind} poison, {mask}"), lanes)
        number = self.element.literal(value)
        if lanes == 1:
            return Register(self, number, 1)
        return Register(self, "<" + ", ".join([f"{self.element.name} {number}"] * lanes) + ">", lanes)

    # Memory.

    def address(self, access: Access, indices: list[str], extra: int = 0) -> str:
        """A pointer to the element; in a table if there is one."""
        table = access.table is not None
        index = str(extra + access.base + (0 if table else self.module.offsets[access.array]))
        for stride, name in zip(access.strides, indices, strict=True):
            if stride and name != "0":
                step = name if stride == 1 else self.emit(f"mul nsw i64 {name}, {stride}")
                index = self.emit(f"add nsw i64 {step}, {index}")
        if not table:
            index = self.moved(index, access.repeat)
            return self.emit(f"getelementptr inbounds {self.element.name}, ptr %memory, i64 {index}")
        pointer = f"inttoptr (i64 {self.module.table(access.table)} to ptr)"
        entry = self.emit(f"getelementptr inbounds i64, ptr {pointer}, i64 {index}")
        position = self.emit(f"load i64, ptr {entry}, !invariant.load !0")
        shifted = self.emit(f"add nsw i64 {self.moved(position, access.repeat)}, {self.module.offsets[access.array]}")
        self.module.declarations.add("!0 = !{}")
        return self.emit(f"getelementptr inbounds {self.element.name}, ptr %memory, i64 {shifted}")

    def moved(self, index: str, repeat: int) -> str:
        """The index at this time of a Repeat."""
        if repeat == 0:
            return index
        return self.emit(f"add nsw i64 {index}, {self.emit(f'mul nsw i64 %time, {repeat}')}")

    def load(self, access: Access, indices: list[str], lanes: int, axis: int | None) -> Register:
        for target, register in self.known:
            if access.array is target.array and is_same(access, target):
                return register
        stride = access.strides[axis] if axis is not None and lanes > 1 else 0
        if access.table is None and stride == 1:
            return self.load_from(self.address(access, indices), lanes)
        if stride == 0:
            return self.load_from(self.address(access, indices), 1)
        result = "poison"
        for lane in range(lanes):
            value = self.load_from(self.address(access, indices, lane * stride), 1).name
            result = self.emit(
                f"insertelement {self.element.lanes(lanes)} {result}, {self.element.name} {value}, i32 {lane}"
            )
        return Register(self, result, lanes)

    def load_from(self, pointer: str, lanes: int) -> Register:
        text = f"load {self.element.lanes(lanes)}, ptr {pointer}, align {self.element.bytes}"
        return Register(self, self.emit(text), lanes)

    def store(self, access: Access, indices: list[str], value: Register) -> None:
        lanes = value.lanes
        stride = access.strides[self.axis] if self.axis is not None and lanes > 1 else 0
        if lanes == 1 or (access.table is None and stride == 1):
            self.store_to(self.address(access, indices), value)
            return
        for lane in range(lanes):
            part = self.emit(f"extractelement {self.element.lanes(lanes)} {value.name}, i32 {lane}")
            self.store_to(self.address(access, indices, lane * stride), Register(self, part, 1))

    def store_to(self, pointer: str, value: Register) -> None:
        kind = self.element.lanes(value.lanes)
        self.lines.append(f"  store {kind} {value.name}, ptr {pointer}, align {self.element.bytes}")


def _chunks(extent: int, widest: int) -> list[tuple[int, int, int]]:
    """(start, stop, lanes): as many of the widest vectors as fit, then narrower ones for the rest."""
    found, start, lanes = [], 0, widest
    while start < extent:
        while lanes > extent - start:
            lanes //= 2
        stop = start + (extent - start) // lanes * lanes
        found.append((start, stop, lanes))
        start = stop
    return found
