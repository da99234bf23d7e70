"""The order of the backward pass as a game: nodes speak, that is call their `_backward`, in any order.

The page sends the order so far with every click, and `order_json` plays it from the beginning: nothing is kept between
calls, so neither a fresh Python nor a changed class can contradict what the page shows. What is said about a turn
follows from the gradients before and after it and from who has spoken, never from the graph of a lesson.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import factorial, isclose, isnan
from typing import Any

from chainrule.learn.explaining import explain
from chainrule.learn.graphs import Call, LearnersGraph, built
from chainrule.stepping.formula_text import show
from chainrule.stepping.steps import spell

MOST_STATES = 4096  # sets of nodes that have spoken: beyond these, orders are not counted
MOST_LISTED = 4  # wrong gradients in a sentence
TIMES = {1: "once", 2: "twice"}
ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def order_json(code: str, own: str = "", order: str = "[]") -> str:
    """The graph that `code` builds, and what happens if its nodes speak in this `order`, a JSON list of indices.

    graph      as the stepper draws it, without steps
    turns      one per entry of `order`: the node, everybody's gradients after it, the edges as the stepper's steps,
               what happened in words, and the mark that the node has earned so far
    verdict    once everybody has spoken: in words, with the right gradients and the indices of wrong ones; else null
    impatient  an order in which every node speaks as soon as it has heard something
    patient    an order in which every node waits for all that use it
    error      what the learner's code raised, or null; then the turns end before it

    >>> reply = json.loads(order_json("a = Value(3.0)\\ns = a + a\\ns", order="[1]"))
    >>> reply["turns"][0]["words"]
    's passed its 1 on to a, twice.'
    """
    reply: dict[str, Any] = {"graph": None, "turns": [], "verdict": None, "error": None}
    try:
        game = Game(LearnersGraph(*built(code, own)))
        reply["graph"] = {"root": game.graph.root, "nodes": game.graph.described(), "steps": []}
        reply |= {"impatient": game.impatient(), "patient": game.patient()}
        for i in json.loads(order):
            reply["turns"].append(game.turn(i))
        if game.spoken.keys() >= set(game.speakers):

            def played(order: Iterable[int]) -> list[float]:
                again = Game(LearnersGraph(*built(code, own)))
                for i in order:
                    again.turn(i)
                return again.graph.grads()

            heard = dict.fromkeys(turn.call.i for turn in game.turns if turn.grad != 0)
            reply["verdict"] = game.verdict(played(game.patient()), played(heard))
    except BaseException as error:
        reply["error"] = asdict(explain(error))
    return json.dumps(reply)


@dataclass(frozen=True)
class Turn:
    """A call, and who had not spoken yet among the users of its node."""

    call: Call
    missing: list[int]
    again: int  # how often the node had spoken before

    @property
    def grad(self) -> float:
        return self.call.before[self.call.i]


class Game:
    """A graph whose result has gradient 1 and all others 0, and the turns so far."""

    def __init__(self, graph: LearnersGraph) -> None:
        self.graph = graph
        self.operands = graph.operands
        self.speakers = [i for i, operands in enumerate(self.operands) if operands]
        if not self.speakers:
            raise ValueError("the last line must be the result of an operation, such as `a + a`")
        self.turns: list[Turn] = []
        for node in graph.nodes:
            node.grad = 0.0
        graph.nodes[graph.root].grad = 1.0

    @cached_property
    def users(self) -> list[list[int]]:
        """Who uses each node, nearest to the result first."""
        return [[i for i in reversed(self.speakers) if k in self.operands[i]] for k in range(len(self.operands))]

    @property
    def spoken(self) -> Counter[int]:
        """How often each node has spoken."""
        return Counter(turn.call.i for turn in self.turns)

    def patient(self) -> list[int]:
        return self.speakers[::-1]

    def impatient(self) -> list[int]:
        """First come, first served."""
        order = [self.graph.root]
        for i in order:  # which grows
            order += [k for k in dict.fromkeys(self.operands[i]) if self.operands[k] and k not in order]
        return order

    def turn(self, i: int) -> dict[str, Any]:
        """Let node `i` speak; what happened, as data for JSON."""
        if i not in self.speakers:
            raise ValueError(f"node {i} was not made by an operation, so it has nobody to speak to")
        spoken, before = self.spoken, self.graph.grads()
        self.graph.nodes[i]._backward()
        call = Call(i, before, self.graph.grads())
        turn = Turn(call, [user for user in self.users[i] if not spoken[user]], spoken[i])
        sentences = [self._deed(turn), *self._remarks(turn)]
        self.turns.append(turn)
        return {
            "node": i,
            "grads": self._spelled(call.after),
            "steps": self.graph.told(call),
            "words": " ".join(sentences),
            "mark": self._mark(i),
        }

    def verdict(self, patient: Sequence[float], once: Sequence[float]) -> dict[str, Any]:
        """The gradients against the right ones.

        `patient` are those of the same class in a right order, and `once` those if in this order each speaks
        once, when it first has something to say.
        """
        got, right = self.graph.grads(), self.graph.true_grads() or patient
        wrong = self._different(got, right)
        words = self._verdict(wrong, got, right, not self._different(once, right))
        if self._different(patient, right):
            words += " It is not the order alone: a `_backward` of this class does not do what the derivatives say."
        return {"words": words, "right": self._spelled(right), "wrong": wrong}

    def _different(self, got: Sequence[float], right: Sequence[float]) -> list[int]:
        return [i for i, constant in enumerate(self.graph.constants) if not constant and not _same(got[i], right[i])]

    # In words.

    def _deed(self, turn: Turn) -> str:
        """What was passed on."""
        call, name, number = turn.call, self.graph.names[turn.call.i], show(turn.grad)
        got = {
            to: after - before
            for to, (before, after) in enumerate(zip(call.before, call.after, strict=True))
            if repr(before) != repr(after) and not self.graph.constants[to]
        }
        if not got:
            return f"{name} passed on 0." if turn.grad == 0 else f"{name} spoke with {number}, and nothing changed."
        uses = Counter(self.operands[call.i])
        if not all(_same(change, uses[to] * turn.grad) for to, change in got.items()):
            gifts = _joined([f"{self.graph.names[to]} got {show(change)}" for to, change in got.items()])
            return f"{name} spoke with {number}: {gifts}."
        comma = "," if len(got) == 1 else ""
        receivers = _joined([f"to {self.graph.names[to]}" + _often(uses[to], comma) for to in got])
        return f"{name} passed its {number} on {receivers}."

    def _remarks(self, turn: Turn) -> Iterator[str]:
        """What was out of turn, and what came too late for somebody."""
        i, call = turn.call.i, turn.call
        name, spoken = self.graph.names[i], self.spoken
        if turn.missing:
            heard = [user for user in self.users[i] if user not in turn.missing]
            whom = f"from {self._listed(heard)} only" if heard else "nothing yet"
            verb = "has" if len(turn.missing) == 1 else "have"
            yield f"{name} has heard {whom}: {self._listed(turn.missing)} {verb} not spoken."
        if turn.again:
            earlier = any(other.grad != 0 for other in self.turns if other.call.i == i)
            what = "it passed on all that it holds, also what it had passed on before" if earlier else "it had 0 before"
            yield f"This was its {ORDINALS.get(turn.again + 1, f'{turn.again + 1}th')} time: {what}."
        late = [k for k in dict.fromkeys(self.operands[i]) if spoken[k] and repr(call.before[k]) != repr(call.after[k])]
        if late:
            verb, stays = ("has", "it speaks") if len(late) == 1 else ("have", "they speak")
            yield f"{self._listed(late)} {verb} spoken already: this goes no further, unless {stays} again."

    def _mark(self, i: int) -> str:
        """What was out of turn with a node so far, in a few words; empty if nothing was."""
        turns = [turn for turn in self.turns if turn.call.i == i]
        early = [len(turn.missing) for turn in turns if turn.missing]
        marks = ["heard nothing" if early[0] == len(self.users[i]) else "too early"] if early else []
        return ", ".join(marks + ([TIMES.get(len(turns), f"{len(turns)} times")] if len(turns) > 1 else []))

    def _verdict(self, wrong: list[int], got: Sequence[float], right: Sequence[float], once_is_right: bool) -> str:
        if wrong:
            rest = [f"and {len(wrong) - MOST_LISTED} more"] if len(wrong) > MOST_LISTED else []
            found = [f"{self.graph.names[i]} has {show(got[i])}, not {show(right[i])}" for i in wrong[:MOST_LISTED]]
            return f"Everybody has spoken, and the gradients are wrong: {'; '.join(found + rest)}."
        strays = [i for i in dict.fromkeys(turn.call.i for turn in self.turns) if self._mark(i)]
        if strays:
            spoke = f"{self._listed(strays)} spoke out of turn"
            why = "here it made no difference" if once_is_right else "two errors have cancelled"
            return f"Everybody has spoken, and every gradient is right, although {spoke}: {why}."
        count = count_orders({i: self.users[i] for i in self.speakers})
        return f"Everybody has spoken, and every gradient is right.{_counted(count, len(self.speakers))}"

    def _listed(self, nodes: Sequence[int]) -> str:
        return _joined([self.graph.names[i] for i in nodes])

    def _spelled(self, grads: Sequence[float]) -> list[dict[str, str] | None]:
        pairs = zip(grads, self.graph.constants, strict=True)
        return [None if constant else spell(grad) for grad, constant in pairs]


def count_orders(users: Mapping[int, Sequence[int]]) -> int | None:
    """In how many orders each node comes after all its `users`; None if that would take long to count.

    Orders are counted together when the same nodes have spoken in them, because what can follow is the same.

    >>> count_orders({0: [], 1: [0], 2: [0], 3: [1, 2]})
    2
    """
    place = {node: k for k, node in enumerate(users)}
    waits_for = [sum(1 << place[user] for user in set(each)) for each in users.values()]
    ways, states = {0: 1}, 0
    for _ in waits_for:
        onward: Counter[int] = Counter()
        for spoken, count in ways.items():
            for k, needed in enumerate(waits_for):
                if not spoken >> k & 1 and needed & ~spoken == 0:
                    onward[spoken | 1 << k] += count
            if states + len(onward) > MOST_STATES:
                return None
        ways, states = onward, states + len(onward)
    return sum(ways.values())


def _counted(count: int | None, nodes: int) -> str:
    if count is None or nodes == 1:
        return ""
    orders = f"the {factorial(nodes):,} orders in which {nodes} nodes can speak once each"
    return f" Of {orders}, {'only one lets' if count == 1 else f'{count:,} let'} everybody hear everything first."


def _same(a: float, b: float) -> bool:
    return isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) or (isnan(a) and isnan(b))


def _often(times: int, comma: str) -> str:
    return "" if times == 1 else f"{comma} {TIMES.get(times, f'{times} times')}"


def _joined(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)
