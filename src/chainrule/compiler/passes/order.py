"""The order of a graph's nodes in which loops are sought, and a later one, in which what can wait is postponed."""

from __future__ import annotations

from functools import cached_property
from math import inf

from chainrule.compiler.passes.loops import Loop, find_loops
from chainrule.compiler.passes.postpone import large, postponed
from chainrule.compiler.trace.graph import Graph


class Order:
    """A graph in an order in which loops are sought, and the loops that are seen in it.

    Programs of more than `most` statements are of no use.
    """

    def __init__(self, graph: Graph, most: float = inf) -> None:
        self.graph, self.most = graph, most

    def fewer_than(self, statements: int) -> float:
        """The most statements that are worth looking for if so many are found."""
        return min(statements, self.most)

    @cached_property
    def loops(self) -> list[Loop]:
        return find_loops(self.graph)

    @cached_property
    def loops_inside(self) -> list[Loop]:
        """The loops inside of loops, of which one may read what another has computed."""
        return find_loops(self.graph, inside=True)

    @cached_property
    def later(self) -> Order | None:
        """The order in which what can wait comes later, with its large loops; None if nothing can."""
        graph = postponed(self.graph)
        if graph is self.graph:
            return None
        order = Order(graph, self.most)
        order.loops, order.later = large(order.loops), None
        is_new = [*map(str, order.loops)] != [*map(str, self.loops)]
        return order if is_new else None  # as where a whole step is one loop already
