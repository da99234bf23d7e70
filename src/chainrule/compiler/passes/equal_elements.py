"""Equal elements: an array whose elements are all computed from the same numbers has one of them.

s[0] = parameter[0]
repeat r<40:                                     s[0] = parameter[0]
  i<198: u[198r+i] = 0.2·s[0]                    u[0] = 0.2·s[0]
  …                                              repeat r<40:
  i<198: x[201+200r+i] = u[198r+i]·v[198r+i]       i<198: x[201+200r+i] = u[0]·v[198r+i]

Whoever writes `0.2 * rate` for each cell of a grid, at each step, has such an array.
"""

from __future__ import annotations

from collections import Counter

from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Statement


def with_equal_elements_once(program: ArrayProgram) -> ArrayProgram:
    """The same program, where such an array has one element, which is computed before the loop in time around it."""
    kept = {*program.leaves.values(), *program.results}
    writers = Counter(statement.target.array for statement in program.statements)
    once: dict[Array, Array] = {}
    steps: list[Statement | Repeat] = []

    def change(access: Access) -> Access:
        return _first(once[access.array], len(access.strides)) if access.array in once else access

    for step in program.steps:
        body, written = [], {statement.target.array for statement in step.body}
        for given in step.body:
            statement, array = given.map(change), given.target.array
            alone = writers[array] == 1 and array not in kept and (array.size > 1 or isinstance(step, Repeat))
            if alone and _is_equal(statement) and written.isdisjoint(a.array for a in statement.accesses()):
                once[array] = Array(array.name, 1, array.kind)
                steps.append(_once(statement, once[array]))
            else:
                body.append(statement)
        steps += [step.with_body(body)] if isinstance(step, Repeat) else body
    return program.with_steps(steps)


def _is_equal(statement: Statement) -> bool:
    """Whether all elements that a statement sets, at all times, are computed from the same numbers."""
    outer = len(statement.loops)
    same = all(a.table is None and not a.repeat and not any(a.strides[:outer]) for a in statement.accesses())
    return same and not statement.accumulate


def _once(statement: Statement, element: Array) -> Statement:
    """The statement for one element."""
    outer = len(statement.loops)
    found = statement.map(lambda access: access.with_strides(access.strides[outer:]))
    return Statement(_first(element, 0), (), found.terms, join=statement.join)


def _first(array: Array, loops: int) -> Access:
    """The first element, inside loops that do not move it."""
    return Access(array, 0, (0,) * loops)
