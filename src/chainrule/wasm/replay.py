"""A recorded graph as a WebAssembly module: every node once forward and, for the gradient, once backward.

Numbers lie in linear memory. The graph is that of one example, whose inputs and results are a *row*; the exported
functions go through rows, two at a time as far as they go, and add the gradients up. Nodes are computed in the order in
which they were made and pass their gradients on in the reverse order, as `backward()` does, so the results are the same
to the last bit, except for elementary functions, which are our own (see `elementary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from chainrule import ops
from chainrule.wasm import encoding as e
from chainrule.wasm.functions import Library
from chainrule.wasm.lanes import ONE, Lanes
from chainrule.wasm.rules import Piece, Template, Writer, filled

CHUNK = 2**15  # bytes of a function; V8 takes much longer for one that is larger
DEEPEST = 16  # numbers on the stack while an expression is computed
BUFFERS = {"parameter": "parameters", "frozen": "parameters", "captured": "captured"}  # of leaves, by kind
ROW, BOTH = 0, 1  # locals: the address of the row, or of the first of two; and a pair on its way to memory
ZERO = e.i32(0)


@dataclass
class Graph:
    """Nodes in order of creation: `rules[i]` is an op, or the kind of a leaf (see `compiler.trace.graph`).

    `numbers` are the leaves' data. `places[i]` says where a leaf stands among the parameters, inputs or captured ones.
    A leaf of kind "frozen" is a parameter without a gradient. `initial` has the numbers of all leaves, by kind, even
    where the graph does not reach them.
    """

    rules: Sequence[ops.Op | str]
    operands: Sequence[tuple[int, ...]]
    numbers: Sequence[float]
    places: Sequence[int]
    results: Sequence[int]
    initial: Mapping[str, Sequence[float]]

    @property
    def sizes(self) -> dict[str, int]:
        """How many parameters, inputs and captured leaves there are."""
        return {kind: len(numbers) for kind, numbers in self.initial.items()}

    @classmethod
    def of(
        cls,
        rules: Sequence[ops.Op | str],
        operands: Sequence[tuple[int, ...]],
        nodes: Sequence[Any],
        results: Sequence[int],
        leaves: Mapping[str, Sequence[Any]],
        numbers: Sequence[float],
        initial: Mapping[str, Sequence[float]],
    ) -> Graph:
        """The graph of these nodes; `leaves` are all of each kind, in order."""
        named = [node for some in leaves.values() for node in some if node is not None]
        if len({*map(id, named)}) < len(named):
            raise ValueError("the same Value stands twice among `inputs` and `wrt`: give each once")
        places = {id(node): place for some in leaves.values() for place, node in enumerate(some)}
        return cls(rules, operands, numbers, [places.get(id(node), 0) for node in nodes], results, initial)

    @cached_property
    def taken(self) -> list[tuple[int, ...]]:
        """For each node, which of its operands it passes a gradient to: on ways from the result to the parameters."""
        leads = [rule == "parameter" for rule in self.rules]
        taken: list[tuple[int, ...]] = []
        for place, (rule, operands) in enumerate(zip(self.rules, self.operands, strict=True)):
            partials = rule.partials if isinstance(rule, ops.Op) else ()
            some = tuple(
                [k for k, (o, partial) in enumerate(zip(operands, partials, strict=True)) if leads[o] and partial]
            )
            leads[place] = leads[place] or bool(some)
            taken.append(some)
        reached = set(self.results)
        for place in reversed(range(len(taken))):
            if place in reached:
                reached.update(self.operands[place][k] for k in taken[place])
            else:
                taken[place] = ()
        return taken


@dataclass(frozen=True)
class Forward:
    """The template of an op's result. Hole k is for operand k."""

    code: Template
    locals: int


@dataclass(frozen=True)
class Backward:
    """The template that passes a gradient on to some operands.

    Holes, of n operands: 0 to n - 1 the operands' numbers, n the result, n + 1 its gradient, then for each operand the
    code that loads its gradient to add to (or none), and the code that stores it.
    """

    code: Template
    reads: frozenset[int]  # the holes up to n that it has
    copies: frozenset[int]  # operands whose gradient is the same as that of the result


Kind = tuple[ops.Op, float | None]  # of a node: its op, and a constant exponent


class Templates:
    """What is written for each kind of node."""

    def __init__(self, library: Library, lanes: Lanes = ONE) -> None:
        self.lanes, self.locals = lanes, 0
        self.function = library.number if lanes is ONE else library.number_for_pairs
        self._forward: dict[Kind, Forward] = {}
        self._backward: dict[tuple[Kind, tuple[int, ...]], Backward] = {}

    def forward(self, kind: Kind) -> Forward:
        """The template that computes a node."""
        found = self._forward.get(kind)
        if found is None:
            op, (writer, operands) = kind[0], self._start(kind)
            result = _run(op, "rule", op, *operands)
            writer.expect(result)
            writer.number(result)
            self.locals = max(self.locals, writer.locals)
            found = self._forward[kind] = Forward(_joined(writer.code), writer.locals)
        return found

    def backward(self, kind: Kind, taken: tuple[int, ...]) -> Backward:
        """The template that passes a node's gradient on to the operands that are `taken`."""
        found = self._backward.get((kind, taken))
        if found is None:
            op, (writer, operands) = kind[0], self._start(kind)
            n, passed = len(operands), {}
            out, grad = writer.hole(n), writer.hole(n + 1)
            for k in taken:
                slope = _run(op, "partial derivative", op.partials[k], out, *operands)
                passed[k] = grad * slope if isinstance(slope, Piece) or slope != 1.0 else grad
            writer.expect(*passed.values())
            for k, number in passed.items():
                writer.code += [ZERO, n + 2 + 2 * k]
                writer.number(number)
                writer.code += [n + 3 + 2 * k]
            self.locals = max(self.locals, writer.locals)
            reads = frozenset(part for part in writer.code if isinstance(part, int) and part <= n)
            copies = frozenset(k for k, number in passed.items() if number is grad)
            found = self._backward[kind, taken] = Backward(_joined(writer.code), reads, copies)
        return found

    def _start(self, kind: Kind) -> tuple[Writer, list[Any]]:
        """A writer, and the operands as pieces; the last one as a number if it is part of the kind."""
        op, exponent = kind
        writer = Writer(self.function, BOTH + 1, self.lanes)
        operands: list[Any] = [writer.hole(k) for k in range(op.arity)]
        return writer, operands if exponent is None else [*operands[:-1], exponent]


def _run(op: ops.Op, what: str, rule: Any, *operands: Any) -> Any:
    try:
        return rule(*operands)
    except (TypeError, AttributeError) as error:
        raise TypeError(
            f"the {what} of `{op.name}` cannot become WebAssembly ({error}): write it with `+ - *` and chainrule's ops"
        ) from error


def _joined(code: Template) -> Template:
    """The template with neighbouring instructions as one."""
    joined: Template = []
    for part in code:
        if joined and isinstance(part, bytes) and isinstance(joined[-1], bytes):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


@dataclass
class Memory:
    """Where everything lies: offset and number of doubles of each buffer, by name."""

    buffers: dict[str, tuple[int, int]] = field(default_factory=dict)
    size: int = 0

    def add(self, name: str, count: int) -> int:
        """The offset of a new buffer."""
        offset = self.size
        self.buffers[name] = offset, count
        self.size += 8 * count
        return offset


class Replay:
    """The code of one example, or of two side by side.

    `forward` and `backward` are the functions' numbers, to be called in turn with a row.
    """

    def __init__(self, graph: Graph, module: e.Module, memory: Memory, templates: Templates, gradient: bool) -> None:
        self.graph, self.module, self.memory, self.templates = graph, module, memory, templates
        self.lanes, count = templates.lanes, len(graph.rules)
        self.taken = graph.taken if gradient else [()] * count
        room = self.lanes.count * count
        self.data = memory.add(f"data {self.lanes.count}", room)
        self.grads = memory.add(f"grads {self.lanes.count}", room * gradient)
        self.kinds = [self._kind(place) for place in range(count)]
        self.numbers = [self._leaf(place) for place in range(count)]  # code that puts each on the stack
        self.slots = [self.grads + self.lanes.size * place for place in range(count)]  # addresses of gradients
        if gradient:
            for place, rule in enumerate(graph.rules):
                if rule == "parameter":
                    self.slots[place] = memory.buffers["gradient"][0] + 8 * graph.places[place]
        self.forward = self._functions(self._forward())
        self.backward = self._functions(self._backward()) if gradient else []

    @property
    def stride(self) -> int:
        """From a row to the next, in bytes."""
        return 8 * (self.graph.sizes["input"] + len(self.graph.results))

    def _kind(self, place: int) -> Kind | None:
        """None for leaves."""
        graph, rule, operands = self.graph, self.graph.rules[place], self.graph.operands[place]
        if isinstance(rule, str):
            return None
        known = rule is ops.pow_ and graph.rules[operands[1]] == "constant"
        return rule, graph.numbers[operands[1]] if known else None

    def _leaf(self, place: int) -> bytes:
        """Code for the number of a leaf, or of a node that lies in memory."""
        kind, k = self.graph.rules[place], self.graph.places[place]
        if kind == "constant":
            return self.lanes.constant(self.graph.numbers[place])
        if kind == "input":
            first = e.get(ROW) + self.lanes.load_same(8 * k)
            return first if self.lanes is ONE else e.get(ROW) + first + e.load_second(8 * k + self.stride)
        if isinstance(kind, str):
            return ZERO + self.lanes.load_same(self.memory.buffers[BUFFERS[kind]][0] + 8 * k)
        return ZERO + self.lanes.load(self.data + self.lanes.size * place)

    def _forward(self) -> Iterable[bytes]:
        """Statements that compute the nodes, and then store the results in the row.

        A node that one other needs, and nobody afterwards, is not stored: it is computed where it is needed, on the
        stack, if it needs no locals.
        """
        graph, numbers, depths = self.graph, self.numbers, [1] * len(self.graph.rules)
        once = self._needed_once()
        for place, kind in enumerate(self.kinds):
            if kind is None:
                continue
            template, operands = self.templates.forward(kind), graph.operands[place]
            code = filled(template.code, [numbers[operand] for operand in operands])
            if once[place] and not template.locals and len(code) < CHUNK:
                depth = max([k + depths[operand] for k, operand in enumerate(operands)])
                if depth < DEEPEST:
                    numbers[place], depths[place] = code, depth
                    continue
            yield ZERO + code + self.lanes.store(self.data + self.lanes.size * place)
        for k, place in enumerate(graph.results):
            yield self._result(8 * (graph.sizes["input"] + k), numbers[place])

    def _result(self, offset: int, number: bytes) -> bytes:
        """Code that stores a number in the row."""
        if self.lanes is ONE:
            return e.get(ROW) + number + e.store(offset)
        stores = [e.get(ROW) + e.get(BOTH) + e.store_lane(offset + k * self.stride, k) for k in range(2)]
        return number + e.put(BOTH) + b"".join(stores)

    def _needed_once(self) -> list[bool]:
        """Whether each node is an operand of one node, once, and of no use for the gradient."""
        uses = [0] * len(self.kinds)
        for place, operands in enumerate(self.graph.operands):
            for operand in operands:
                uses[operand] += 1
            taken, kind = self.taken[place], self.kinds[place]
            if taken and kind:
                for hole in self.templates.backward(kind, taken).reads:
                    uses[operands[hole] if hole < len(operands) else place] += 2
        for place in self.graph.results:
            uses[place] += 2
        return [count == 1 for count in uses]

    def _backward(self) -> Iterable[bytes]:
        """Statements that set the gradients of the nodes, and add to those of the parameters.

        The first gradient that a node receives is stored and the others are added. If it receives only one, which is
        that of the node above, as in sums, it has no place of its own.
        """
        graph, slots, (root,) = self.graph, self.slots, self.graph.results
        received = [0] * len(self.kinds)
        for place, operands in enumerate(graph.operands):
            for k in self.taken[place]:
                received[operands[k]] += 1
        stored = [rule == "parameter" for rule in graph.rules]
        before, after = self._received(root, stored[root])
        yield ZERO + before + self.lanes.constant(1.0) + after
        for place in reversed(range(len(self.kinds))):
            taken = self.taken[place]
            if not taken:
                continue
            operands, kind = graph.operands[place], self.kinds[place]
            assert kind is not None
            copies = self.templates.backward(kind, taken).copies
            passed: dict[int, bool] = {}  # operands; whether they have a gradient already
            for k in taken:
                operand = operands[k]
                if k in copies and received[operand] == 1 and not stored[operand]:
                    slots[operand] = slots[place]
                else:
                    passed[k], stored[operand] = stored[operand], True
            if passed:
                yield filled(self.templates.backward(kind, tuple(passed)).code, self._fills(place, passed))

    def _fills(self, place: int, passed: Mapping[int, bool]) -> list[bytes]:
        """What fills the template of a node that passes its gradient on."""
        operands = self.graph.operands[place]
        gradient = ZERO + self.lanes.load(self.slots[place])
        fills = [*[self.numbers[operand] for operand in operands], self.numbers[place], gradient]
        for k, operand in enumerate(operands):
            fills += self._received(operand, passed[k]) if k in passed else (b"", b"")
        return fills

    def _received(self, place: int, added: bool) -> tuple[bytes, bytes]:
        """What stands before and after a gradient that a node receives, above an address of 0."""
        slot = self.slots[place]
        if not added:
            return b"", self.lanes.store(slot)
        if self.lanes is ONE or self.graph.rules[place] != "parameter":
            return ZERO + self.lanes.load(slot), self.lanes.instructions["add"] + self.lanes.store(slot)
        sums = [e.get(BOTH) + e.lane(k) + e.F64_ADD for k in range(2)]  # one row after the other
        return b"", e.put(BOTH) + ZERO + e.load(slot) + b"".join(sums) + e.store(slot)

    def _functions(self, statements: Iterable[bytes]) -> list[int]:
        """Functions of a row that run the statements, so many in each that they compile fast."""
        bodies, body, size = [], list[bytes](), 0
        for statement in statements:
            body.append(statement)
            size += len(statement)
            if size > CHUNK:
                bodies.append(b"".join(body))
                body, size = [], 0
        bodies.append(b"".join(body))
        locals_ = self.lanes.kind * (1 + self.templates.locals)
        return [self.module.add(e.Function(e.I32, b"", code, locals_)) for code in bodies]
