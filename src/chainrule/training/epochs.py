"""The epochs of a run of `fit`, by its plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from chainrule.training import plan as plans
from chainrule.training.plan import Plan, first_plan, second_plan
from chainrule.training.single_examples import IndivisibleError
from chainrule.training.task import Columns, Position, Task
from chainrule.training.ways import ByExample, Eager, Sharded, Way, Whole

if TYPE_CHECKING:
    from chainrule.training.history import History
    from chainrule.training.saver import Saver

WAYS: dict[str, type[Way]] = {
    plans.EAGER: Eager,
    plans.WHOLE: Whole,
    plans.BY_EXAMPLE: ByExample,
    plans.SHARDED: Sharded,
}


class Epochs:
    """Runs a task's epochs; `history.engine` says which way."""

    def __init__(self, task: Task, position: Position, saver: Saver | None, history: History) -> None:
        self.task, self.position, self.saver, self.history = task, position, saver, history

    def run(self, count: int, compiled: bool | str) -> Iterator[Columns]:
        """The columns of the history, epoch by epoch; several epochs at a time where nothing looks in between."""
        if count <= 0 or self.history.stopped:
            return
        plan = first_plan(self.task, compiled, self.position.compiled)
        if plan.way == plans.MEASURED:
            self.history.engine = plan.in_words(self.task)
            eager = Eager(self.task, self.position, self.saver)
            if len(self.task.data) > plans.MANY:
                seconds = eager.try_out(plans.MANY)
            else:
                started = time.perf_counter()
                columns = eager.epoch()
                seconds = time.perf_counter() - started
                count -= 1
                yield columns
            plan = second_plan(self.task, count, seconds)
            self.position.compiled = False
        yield from self._by(plan, count)

    def _by(self, plan: Plan, count: int) -> Iterator[Columns]:
        """`count` epochs; compiled steps are made again when a callback changes what they have built in."""
        while True:
            settings = self.task.fixed_settings
            for columns in self._way(plan).epochs(count):
                yield columns
                count -= len(columns["loss"])
                if plan.compiles and self.task.watched and self.task.fixed_settings != settings:
                    break
            if not count:
                return

    def _way(self, plan: Plan) -> Way:
        """The plan's way; the eager one if that is impossible and was not asked for."""
        try:
            way = self._made(plan.way)
        except (TypeError, ValueError) as error:
            if plan.asked:
                raise
            plan = Plan(plans.EAGER, f"because this cannot be compiled: {error}")
            way = self._made(plan.way)
            self.position.compiled = False
        if plan.compiles:
            self.position.compiled = True
        self.history.engine = plan.in_words(self.task, way.found)
        return way

    def _made(self, name: str) -> Way:
        try:
            return WAYS[name](self.task, self.position, self.saver)
        except IndivisibleError:
            if name == plans.BY_EXAMPLE and self.task.is_one_batch:
                return self._made(plans.WHOLE)
            raise
