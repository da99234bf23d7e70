"""The graph of a loss with a card for each neuron, layer or module of a model, in place of their nodes.

Nobody noted which call made a node, but the parameters tell. Nodes are gone through from the oldest:

1. A node with a parameter among its operands belongs to the module that holds it; so does a product with something
   that was computed from parameters alone, such as exp(w)·x.
2. A node all of whose operands belong to one *call* of a module (constants aside) belongs to it as well: the sum of the
   products, the activation. A call uses a parameter once; so where two nodes meet that have both used it, two calls
   meet.
3. What joins nodes of several modules or calls belongs to none of them.

What does not lead to another parameter any more is the loss. So behind the last node of rule 1, and sums of such, only
an activation stays with its module: one op of a single operand, unless the neuron is linear. A penalty, which depends
on parameters but on no data, is part of the loss too; a plain number counts as data where it meets a parameter in a
product.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from chainrule import ops
from chainrule.core.graph import number_of
from chainrule.drawing.networks import is_under, own_parameters
from chainrule.drawing.picture import Edge, Node, Picture, TooLargeError, largest, strength
from chainrule.drawing.values import SYMBOLS, as_code, links, nodes_below
from chainrule.nn import Module, Neuron

LEVELS = {"neuron": 0, "layer": 1, "module": 2}  # how far up from the module that holds the parameter
MOST_WALKED = 150_000  # nodes, which take about two seconds
INPUTS_SHOWN = 12

# Parts that are not of the model; a path of attributes never looks like this.
LOSS, INPUTS, BETWEEN = "(loss)", "(inputs)", "(between)"


def picture_of_parts(root: Any, model: Module, level: str, number: Callable[[float], str], limit: int) -> Picture:
    """A card for each part of the model that `root` depends on, for the inputs, and for the loss."""
    nodes = nodes_below(root, MOST_WALKED)
    if nodes is None:
        raise TooLargeError(
            f"the graph has more than {MOST_WALKED:,} nodes, which would take too long to sort into parts: "
            "draw the loss of fewer examples, or the network by itself with draw(model)"
        )
    return _Cards(root, nodes, model, level, number).picture(limit)


def part_of_nodes(nodes: Sequence[Any], model: Module, level: str) -> dict[int, str]:
    """The part that each node belongs to, by its id: a path in the model, LOSS, INPUTS or BETWEEN. Constants that
    are not data have none. "neuron" is the innermost module that holds a parameter, "layer" the one around that,
    "module" the next; the model itself at most.

    >>> from chainrule import Value, nn
    >>> neuron, x = nn.Neuron(1, activation="tanh"), Value(1.0)
    >>> loss = (neuron([x]) - 1.0) ** 2
    >>> parts = part_of_nodes(nodes_below(loss, 100), neuron, "neuron")
    >>> [parts.get(id(node)) for node in (x, neuron.b, loss)]
    ['(inputs)', '', '(loss)']
    """
    parts = _Sorting(nodes, model).result()
    paths = [path for path, _ in model.named_modules()]
    coarse = {path: _around(path, paths, LEVELS[level]) for path in paths}
    coarsened = {key: coarse.get(part, part) for key, part in parts.items()}
    if level != "neuron":
        for node in nodes:  # what joins the neurons of one layer belongs to the layer
            if coarsened.get(id(node)) == BETWEEN:
                below = {coarsened.get(id(operand), INPUTS) for operand in node._operands} - {INPUTS}
                coarsened[id(node)] = below.pop() if len(below) == 1 else BETWEEN
    return coarsened


def _around(path: str, paths: list[str], levels: int) -> str:
    """The module so many levels up from one."""
    above = sorted((other for other in paths if is_under(path, other)), key=len, reverse=True)
    return [path, *above][min(levels, len(above))]


class _Call:
    """A call of a part: the parameters that it has used so far."""

    __slots__ = ("joined", "part", "used")

    def __init__(self, part: str, used: set[int]) -> None:
        self.part = part
        self.used = used
        self.joined: _Call | None = None  # the call that this one turned out to be part of

    def whole(self) -> _Call:
        call = self
        while call.joined is not None:
            call = call.joined
        return call


class _Sorting:
    """Sorts nodes, oldest first, into the innermost modules of a model."""

    def __init__(self, nodes: Sequence[Any], model: Module) -> None:
        self.nodes = nodes
        self.parameters = {id(parameter): path for path, parameter in own_parameters(model)}
        linear = [module for _, module in model.named_modules() if isinstance(module, Neuron) and not module.nonlin]
        self.linear = {id(parameter) for neuron in linear for parameter in neuron.parameters()}
        self.calls: dict[int, _Call] = {}  # of the nodes that belong to a part, rule 1 or 2
        self.with_data: set[int] = set()  # nodes that depend on data
        self.by_parameter: dict[int, Any] = {}  # nodes of rule 1, and what joins such alone -> one of the parameters
        self.mixed: set[int] = set()  # rule 3
        self.numbers: set[int] = set()  # constants that are data

    def result(self) -> dict[int, str]:
        for node in self.nodes:
            if node._operands:
                self.assign(node)
        leading, uses = self.leading(), Counter(id(operand) for node in self.nodes for operand in node._operands)
        parts = self.parameters | dict.fromkeys(self.numbers, INPUTS)
        for node in self.nodes:
            if id(node) not in parts and not node._constant:
                parts[id(node)] = self.part(node, leading, uses)
        return parts

    def assign(self, node: Any) -> None:
        """Rules 1, 2 and 3."""
        parts: set[str] = set()  # of the parameters that it meets
        used: set[int] = set()
        calls: list[_Call] = []
        outsiders = data = penalty = False
        product = node._rule is ops.mul
        for operand in node._operands:
            key = id(operand)
            call = self.calls.get(key)
            if key in self.parameters:
                parts.add(self.parameters[key])
                used.add(key)
            elif operand._constant:
                if product and any(id(other) in self.parameters for other in node._operands):
                    self.numbers.add(key)
                    data = True
            elif call is not None:
                calls.append(call.whole())
                if key in self.with_data:
                    data = True
                elif product:
                    parts.add(call.part)
            else:
                outsiders = True
                data |= key in self.with_data or not operand._operands
                penalty |= key in self.mixed and key not in self.with_data
        if data:
            self.with_data.add(id(node))
        if len(parts) == 1 and not penalty:
            self.calls[id(node)] = self.call_of(parts.pop(), used, calls)
            self.by_parameter[id(node)] = next(iter(used), 0)
        elif calls and not parts and not outsiders and _joined(calls):
            several = len(set(calls)) > 1
            self.calls[id(node)] = calls[0].whole()
            met = [self.by_parameter.get(id(operand)) for operand in node._operands if not operand._constant]
            if several and None not in met:  # a sum of products
                self.by_parameter[id(node)] = met[0]
        elif parts or calls or any(id(operand) in self.mixed for operand in node._operands):
            self.mixed.add(id(node))

    def call_of(self, part: str, used: set[int], others: list[_Call]) -> _Call:
        """A call that has used these parameters, joined with those of the operands that can be the same one."""
        call = _Call(part, used)
        for other in others:
            if other.part == part:
                _join(call, other)
        return call.whole()

    def leading(self) -> set[int]:
        """The nodes that lead to others at which parameters meet data."""
        leading: set[int] = set()
        for node in reversed(self.nodes):
            meets = id(node) in self.by_parameter and id(node) in self.with_data
            if meets or id(node) in leading:
                leading.update(map(id, node._operands))
        return leading

    def part(self, node: Any, leading: set[int], uses: Counter[int]) -> str:
        key = id(node)
        call = self.calls.get(key)
        if call is None:
            return INPUTS if key not in self.mixed else BETWEEN if key in leading else LOSS
        if key in leading or (key in self.by_parameter and key in self.with_data):
            return call.part
        return call.part if self.is_activation(node, uses) else LOSS

    def is_activation(self, node: Any, uses: Counter[int]) -> bool:
        """Whether it is an op of one operand on the last node of a call, and that not of a linear neuron."""
        before, *others = node._operands
        parameter = self.by_parameter.get(id(before))
        single = all(other._constant for other in others) and len(others) <= len(getattr(node._rule, "defaults", ()))
        last = id(before) in self.with_data and parameter is not None and uses[id(before)] == 1
        return last and single and parameter not in self.linear


def _join(call: _Call, other: _Call) -> bool:
    """Make one call of two, unless both have used the same parameter."""
    call, other = call.whole(), other.whole()
    if call is other:
        return True
    if not call.used.isdisjoint(other.used):
        return False
    small, large = (call, other) if len(call.used) < len(other.used) else (other, call)
    large.used |= small.used
    small.joined, small.used = large, set()
    return True


def _joined(calls: list[_Call]) -> bool:
    """Whether they are one call, or can be made one."""
    first = calls[0]
    return all(other.part == first.part and _join(first, other) for other in calls[1:])


class _Cards:
    """The picture of a graph whose nodes are sorted into parts."""

    def __init__(
        self, root: Any, nodes: Sequence[Any], model: Module, level: str, number: Callable[[float], str]
    ) -> None:
        self.root = root
        self.nodes = nodes
        self.modules = dict(model.named_modules())
        self.level = level
        self.number = number
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
        cards = self.inputs()
        cards += [self.module(path, outputs[path]) for path in parts]
        if BETWEEN in self.members:
            cards.append(self.others(BETWEEN))
        if LOSS in self.members:
            cards.append(self.loss())
        known = {card.key for card in cards}
        widest = largest([flow for _, flow in crossings.values()])
        edges = [
            Edge(
                source,
                target,
                (),
                strength(flow, widest),
                hint=f"{count:,} edges, sum of |gradients| {self.number(flow)}",
            )
            for (source, target), (count, flow) in crossings.items()
            if source in known
        ]
        return Picture(cards, edges)

    def crossings(self) -> tuple[dict[tuple[str, str], tuple[int, float]], dict[str, list[Any]]]:
        """How many edges lead from card to card, with the sizes of the gradients that came back along them; and the
        nodes of each part that something outside of it uses.
        """
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
        return found, {part: list(nodes.values()) for part, nodes in outputs.items()}

    def key(self, node: Any) -> str:
        part = self.part[id(node)]
        return f"x{self.members[INPUTS].index(node)}" if part == INPUTS and self.one_by_one else part or "(model)"

    def inputs(self) -> list[Node]:
        leaves = self.members.get(INPUTS, [])
        if not self.one_by_one:
            return [Node(INPUTS, "leaf", "inputs", rows=[("", f"{sum(not n._operands for n in leaves):,} numbers")])]
        cards = []
        for node in leaves:
            rows = [("", self.number(number_of(node)))]
            if not node._constant:
                rows = [("data", self.number(number_of(node))), ("grad", self.number(node.grad))]
            cards.append(Node(self.key(node), "constant" if node._constant else "leaf", node.label, rows=rows))
        return cards

    def module(self, path: str, outputs: list[Any]) -> Node:
        module = self.modules[path]
        parameters = [node for node in self.members[path] if not node._operands]
        norm = sum(parameter.grad**2 for parameter in parameters) ** 0.5
        hint = f"{module!r}: {len(parameters):,} parameters, {len(self.members[path]) - len(parameters):,} other nodes"
        rows = [*self.numbers(outputs), ("‖grad‖", self.number(norm))]
        return Node(path or "(model)", "module", as_code(path) or type(module).__name__, rows=rows, hint=hint)

    def numbers(self, outputs: list[Any]) -> list[tuple[str, str]]:
        """Of one output its number, of several how many and their mean."""
        if len(outputs) == 1:
            return [("data", self.number(number_of(outputs[0])))]
        mean = sum(number_of(node) for node in outputs) / max(1, len(outputs))
        return [("outputs", f"{len(outputs):,}"), ("mean", self.number(mean))]

    def others(self, part: str) -> Node:
        tags = Counter(SYMBOLS.get(node._op, node._op) for node in self.members[part])
        common = ", ".join(tag for tag, _ in tags.most_common(3))
        return Node(part, "computed", "between", rows=[("nodes", f"{len(self.members[part]):,}"), ("ops", common)])

    def loss(self) -> Node:
        rows = [
            ("data", self.number(number_of(self.root))),
            ("grad", self.number(self.root.grad)),
            ("nodes", f"{len(self.members[LOSS]):,}"),
        ]
        return Node(LOSS, "computed", self.root.label or "loss", rows=rows)
