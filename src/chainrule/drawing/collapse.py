"""The graph of a loss with one card per neuron, layer or module of a model, in place of their nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from chainrule.core.graph import number_of
from chainrule.drawing.networks import gradient_norm
from chainrule.drawing.parts import BETWEEN, INPUTS, LOSS, part_of_nodes
from chainrule.drawing.picture import Edge, Node, Number, Picture, TooLargeError, largest, strength
from chainrule.drawing.values import SYMBOLS, as_code, links, nodes_below
from chainrule.nn import Module

MOST_WALKED = 150_000  # nodes, which take about two seconds
INPUTS_SHOWN = 12


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
        cards += [self.module(path, list(outputs[path].values())) for path in parts]
        if BETWEEN in self.members:
            cards.append(self.between())
        if LOSS in self.members:
            cards.append(self.loss())
        known = {card.key for card in cards}
        widest = largest([flow for _, flow in crossings.values()])
        edges = []
        for (source, target), (count, flow) in crossings.items():
            if source in known:
                hint = f"{count:,} edges, sum of |gradients| {self.number(flow)}"
                edges.append(Edge(source, target, (), strength(flow, widest), hint=hint))
        return Picture(cards, edges)

    def crossings(self) -> tuple[dict[tuple[str, str], tuple[int, float]], dict[str, dict[int, Any]]]:
        """For each pair of cards, how many edges join them and the sum of the |gradients| along these; and the nodes
        of each part that are used outside it, by id.
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
            rows = [("", self.number(number_of(node)))]
            if not node._constant:
                rows = [("data", self.number(number_of(node))), ("grad", self.number(node.grad))]
            cards.append(Node(self.key(node), "constant" if node._constant else "leaf", node.label, rows=rows))
        return cards

    def module(self, path: str, outputs: list[Any]) -> Node:
        module = self.modules[path]
        parameters = [node for node in self.members[path] if not node._operands]
        hint = f"{module!r}: {len(parameters):,} parameters, {len(self.members[path]) - len(parameters):,} other nodes"
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
