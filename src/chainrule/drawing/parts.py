"""The graph of a loss with one card per neuron, layer or module of a model, in place of their nodes.

Nothing records which call made a node, but the parameters tell. The rules, applied to the oldest node first:

1. A node that has a parameter as an operand belongs to the module that holds it. So does a product with something
   computed from parameters alone, such as exp(w)·x.
2. A node whose operands, apart from constants, all belong to one *call* of a module belongs to that call: the sum of
   the products, the activation. A call uses each parameter once, so two nodes that have both used one belong to
   different calls.
3. A node that joins several modules or calls belongs to none of them.

Whatever no longer leads to a parameter is the loss. Behind the last node of rule 1, or the sum of such nodes, only an
activation still belongs to the module: a single op with one operand, unless the neuron is linear. A penalty, which
depends on parameters but on no data, is part of the loss too. A plain number counts as data where it is multiplied by
a parameter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from chainrule import ops
from chainrule.core.arguments import counted
from chainrule.core.graph import number_of
from chainrule.drawing.networks import gradient_norm, is_under, own_parameters
from chainrule.drawing.picture import Edge, Node, Number, Picture, TooLargeError, largest, strength
from chainrule.drawing.values import SYMBOLS, as_code, links, nodes_below
from chainrule.nn import Module, Neuron

MOST_WALKED = 150_000  # nodes, which take about two seconds
INPUTS_SHOWN = 12
LEVELS = {"neuron": 0, "layer": 1, "module": 2}  # how far up from the module that holds the parameter

# Parts outside the model. No path of attributes looks like this.
LOSS, INPUTS, BETWEEN = "(loss)", "(inputs)", "(between)"


def picture_of_parts(root: Any, model: Module, level: str, number: Number, limit: int) -> Picture:
    """One card for each part of the model that `root` depends on, for the inputs, and for the loss."""
    nodes = nodes_below(root, MOST_WALKED)
    if nodes is None:
        raise TooLargeError(
            f"the graph has more than {MOST_WALKED:,} nodes, which would take too long to sort into parts: "
            "draw the loss of fewer examples, or the network by itself with draw(model)"
        )
    return _Cards(root, nodes, model, level, number).picture(limit)


class _Cards:
    """The picture of a graph whose nodes are sorted into parts."""

    def __init__(self, root: Any, nodes: Sequence[Any], model: Module, level: str, number: Number) -> None:
        self.root, self.nodes, self.level, self.number = root, nodes, level, number
        self.modules = dict(model.named_modules())
        self.part = part_of_nodes(nodes, model, level)
        self.members: dict[str, list[Any]] = defaultdict(list)
        for node in nodes:
            if id(node) in self.part:
                self.members[self.part[id(node)]].append(node)
        leaves = self.members.get(INPUTS, [])
        self.one_by_one = len(leaves) <= INPUTS_SHOWN and not any(node._operands for node in leaves)

    def picture(self, limit: int) -> Picture:
        parts = [path for path in self.modules if path in self.members]
        if len(parts) > limit:
            coarser = "layer" if self.level == "neuron" else "module"
            raise TooLargeError(
                f"the graph has {len(parts):,} parts of the kind {self.level!r}, more than `limit` = {limit}: "
                f'draw it with collapse="{coarser}", or raise `limit`'
            )
        crossings, outputs = self.crossings()
        cards = [*self.inputs(), *(self.module(path, list(outputs[path].values())) for path in parts)]
        cards += [self.between()] if BETWEEN in self.members else []
        cards += [self.loss()] if LOSS in self.members else []
        known = {card.key for card in cards}
        widest = largest([flow for _, flow in crossings.values()])
        edges = []
        for (source, target), (count, flow) in crossings.items():
            if source in known:
                hint = f"{counted(count, 'edge')}, sum of |gradients| {self.number(flow)}"
                edges.append(Edge(source, target, (), strength(flow, widest), hint=hint))
        return Picture(cards, edges)

    def crossings(self) -> tuple[dict[tuple[str, str], tuple[int, float]], dict[str, dict[int, Any]]]:
        """For pairs of cards, their edges' count and sum of |gradients|; for parts, the nodes that are used outside."""
        found: dict[tuple[str, str], tuple[int, float]] = {}
        outputs: dict[str, dict[int, Any]] = defaultdict(dict)
        outputs[self.part[id(self.root)]][id(self.root)] = self.root
        for node in self.nodes:
            target = self.part.get(id(node))
            if target is None or all(self.part.get(id(operand), target) == target for operand in node._operands):
                continue
            for link in links(node, ask=False):
                source = self.part.get(id(link.operand), target)
                if source == target or not (link.operand._operands or source == INPUTS):
                    continue
                outputs[source][id(link.operand)] = link.operand
                pair = self.key(link.operand), self.key(node)
                count, flow = found.get(pair, (0, 0.0))
                found[pair] = count + 1, flow + abs(link.flow)
        return found, outputs

    def key(self, node: Any) -> str:
        part = self.part[id(node)]
        return f"x{self.members[INPUTS].index(node)}" if part == INPUTS and self.one_by_one else part or "(model)"

    def inputs(self) -> list[Node]:
        leaves = self.members.get(INPUTS, [])
        if not self.one_by_one:
            return [Node(INPUTS, "leaf", "inputs", rows=[("", f"{sum(not n._operands for n in leaves):,} numbers")])]
        cards = []
        for node in leaves:
            data, kind = self.number(number_of(node)), "constant" if node._constant else "leaf"
            rows = [("", data)] if node._constant else [("data", data), ("grad", self.number(node.grad))]
            cards.append(Node(self.key(node), kind, node.label, rows=rows))
        return cards

    def module(self, path: str, outputs: list[Any]) -> Node:
        module = self.modules[path]
        parameters = [node for node in self.members[path] if not node._operands]
        others = counted(len(self.members[path]) - len(parameters), "other node")
        hint = f"{module!r}: {counted(len(parameters), 'parameter')}, {others}"
        rows = [*self.numbers(outputs), ("‖grad‖", self.number(gradient_norm(parameters)))]
        return Node(path or "(model)", "module", as_code(path) or type(module).__name__, rows=rows, hint=hint)

    def numbers(self, outputs: list[Any]) -> list[tuple[str, str]]:
        """The number of a single output; otherwise how many there are and their mean."""
        if len(outputs) == 1:
            return [("data", self.number(number_of(outputs[0])))]
        mean = sum(number_of(node) for node in outputs) / max(1, len(outputs))
        return [("outputs", f"{len(outputs):,}"), ("mean", self.number(mean))]

    def between(self) -> Node:
        nodes = self.members[BETWEEN]
        tags = Counter(SYMBOLS.get(node._op, node._op) for node in nodes)
        common = ", ".join(tag for tag, _ in tags.most_common(3))
        return Node(BETWEEN, "computed", "between", rows=[("nodes", f"{len(nodes):,}"), ("ops", common)])

    def loss(self) -> Node:
        data, grad = self.number(number_of(self.root)), self.number(self.root.grad)
        rows = [("data", data), ("grad", grad), ("nodes", f"{len(self.members[LOSS]):,}")]
        return Node(LOSS, "computed", self.root.label or "loss", rows=rows)


# Which part each node belongs to.


def part_of_nodes(nodes: Sequence[Any], model: Module, level: str) -> dict[int, str]:
    """The part of each node, by the node's id: a path in the model, LOSS, INPUTS or BETWEEN.

    Constants that are not data have none. "neuron" is the innermost module that holds a parameter, "layer" the module
    around it, "module" the next one out, up to the model itself.

    >>> from chainrule import Value, nn
    >>> neuron, x = nn.Neuron(1, activation="tanh"), Value(1.0)
    >>> loss = (neuron([x]) - 1.0) ** 2
    >>> parts = part_of_nodes(nodes_below(loss, 100), neuron, "neuron")
    >>> [parts.get(id(node)) for node in (x, neuron.b, loss)]
    ['(inputs)', '', '(loss)']
    """
    paths = [path for path, _ in model.named_modules()]
    coarse = {path: _around(path, paths, LEVELS[level]) for path in paths}
    parts = {key: coarse.get(part, part) for key, part in _Sorting(nodes, model).parts().items()}
    if level != "neuron":
        for node in nodes:  # what joins the neurons of one layer belongs to the layer
            if parts.get(id(node)) == BETWEEN:
                below = {parts.get(id(operand), INPUTS) for operand in node._operands} - {INPUTS}
                parts[id(node)] = below.pop() if len(below) == 1 else BETWEEN
    return parts


def _around(path: str, paths: list[str], levels: int) -> str:
    """The module `levels` levels up, or the outermost."""
    above = sorted((other for other in paths if is_under(path, other)), key=len, reverse=True)
    return [path, *above][min(levels, len(above))]


class _Call:
    """A call of a module: the ids of the parameters that it has used so far."""

    __slots__ = ("joined", "part", "used")

    def __init__(self, part: str, used: set[int]) -> None:
        self.part, self.used = part, used
        self.joined: _Call | None = None  # the call that this one turned out to be part of

    def whole(self) -> _Call:
        call = self
        while call.joined is not None:
            call = call.joined
        return call

    def join(self, other: _Call) -> bool:
        """Whether both are one call; two of the same module become one unless both have used the same parameter."""
        first, second = self.whole(), other.whole()
        if first is second:
            return True
        if first.part != second.part or not first.used.isdisjoint(second.used):
            return False
        small, large = (first, second) if len(first.used) < len(second.used) else (second, first)
        large.used |= small.used
        small.joined, small.used = large, set()
        return True


class _Origin(NamedTuple):
    """What is known of a node that is neither a parameter nor a constant. By default, it is an input."""

    call: _Call | None = None  # rules 1 and 2
    data: bool = True  # whether it depends on data
    weighted: bool = False  # rule 1, or a sum of such nodes
    mixed: bool = False  # rule 3


class _Operands:
    """The operands of a node: parameters, constants, and nodes of known origin."""

    def __init__(self, node: Any, parameters: dict[int, str], origins: dict[int, _Origin]) -> None:
        keys = [id(operand) for operand in node._operands]
        product = node._rule is ops.mul
        self.parameters = {key: parameters[key] for key in keys if key in parameters}
        self.others = [origins[key] for key in keys if key in origins]
        self.calls = [other.call.whole() for other in self.others if other.call]
        numbers = [id(operand) for operand in node._operands if operand._constant]
        self.numbers = numbers if product and self.parameters else []  # constants that are data
        self.data = bool(self.numbers) or any(other.data for other in self.others)
        self.modules = self.modules_used() if product else set(self.parameters.values())

    def modules_used(self) -> set[str]:
        """By a product: those that hold its parameters, or the parameters that a factor was computed from."""
        computed = {other.call.part for other in self.others if other.call and not other.data}
        return computed.union(self.parameters.values())

    def rule_1(self) -> _Origin | None:
        if len(self.modules) != 1 or any(other.mixed and not other.data for other in self.others):  # a penalty
            return None
        (module,) = self.modules
        call = _Call(module, set(self.parameters))
        for other in self.calls:
            call.join(other)
        return _Origin(call.whole(), self.data, weighted=True)

    def rule_2(self) -> _Origin | None:
        if not self.calls or self.modules or len(self.calls) < len(self.others):
            return None
        if not all(map(self.calls[0].join, self.calls)):
            return None
        is_sum = len(set(self.calls)) > 1 and all(other.weighted for other in self.others)
        return _Origin(self.calls[0].whole(), self.data, weighted=is_sum)

    def rule_3(self) -> _Origin:
        mixed = any(other.mixed for other in self.others)
        return _Origin(None, self.data, mixed=mixed or bool(self.calls or self.modules))


class _Sorting:
    """Sorts nodes, oldest first, into the innermost modules of a model."""

    def __init__(self, nodes: Sequence[Any], model: Module) -> None:
        self.nodes = nodes
        self.parameters = {id(parameter): path for path, parameter in own_parameters(model)}
        self.linear = {path for path, part in model.named_modules() if isinstance(part, Neuron) and not part.nonlin}
        self.uses = Counter(id(operand) for node in nodes for operand in node._operands)
        self.numbers: set[int] = set()  # constants that are data
        self.origins: dict[int, _Origin] = {}
        for node in nodes:
            if id(node) not in self.parameters and not node._constant:
                self.origins[id(node)] = self.origin(node) if node._operands else _Origin()

    def origin(self, node: Any) -> _Origin:
        operands = _Operands(node, self.parameters, self.origins)
        self.numbers.update(operands.numbers)
        return operands.rule_1() or operands.rule_2() or operands.rule_3()

    def parts(self) -> dict[int, str]:
        """The part of each node but the constants that are not data."""
        leading = self.leading()
        parts = self.parameters | dict.fromkeys(self.numbers, INPUTS)
        for node in self.nodes:
            if (origin := self.origins.get(id(node))) is None:
                continue
            if origin.call is not None:
                own = id(node) in leading or self.is_activation(node)
                parts[id(node)] = origin.call.part if own else LOSS
            else:
                parts[id(node)] = INPUTS if not origin.mixed else BETWEEN if id(node) in leading else LOSS
        return parts

    def leading(self) -> set[int]:
        """The nodes at which parameters meet data, and those that lead to them."""
        leading = {key for key, origin in self.origins.items() if origin.weighted and origin.data}
        for node in reversed(self.nodes):
            if id(node) in leading:
                leading.update(map(id, node._operands))
        return leading

    def is_activation(self, node: Any) -> bool:
        """Whether the node is an op with one operand, the last node of a call, and that not of a linear neuron."""
        before, *others = node._operands
        origin = self.origins.get(id(before), _Origin())
        if origin.call is None or not (origin.weighted and origin.data) or self.uses[id(before)] != 1:
            return False
        single = all(other._constant for other in others) and len(others) <= len(getattr(node._rule, "defaults", ()))
        return single and origin.call.part not in self.linear
