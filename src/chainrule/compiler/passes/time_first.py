"""Arrays whose rows lie apart in time are transposed, so that a Repeat goes from row to row.

repeat r<10:                                  repeat r<10:
  i<99: h[1+r+11i] = h[r+11i]·x[r+10i]          i<99: h[99+99r+i] = h[99r+i]·x[99r+i]

In a batch of examples of which each has its own times, the times of one example are neighbours. What a time touches is
then spread over the whole array. LLVM's layout takes care of that; a backend that runs the program as it is needs this.
"""

from __future__ import annotations

from math import prod

from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Shape, Statement, changed, span

APART = 2**12  # numbers from the first to the last that a time touches; below, an array is handed over as a whole


def time_first(program: ArrayProgram) -> ArrayProgram:
    """The same program, with time as the first axis of arrays in which it was the last."""
    widths = _widths(program)
    fixed = {*program.leaves.values(), *program.results}
    for step in program.steps:
        for statement in step.body:
            for access, loops in () if _is_fill(statement) else statement.accesses_in_loops():
                width = widths.get(access.array)
                if width and (access.array in fixed or not _fits(access, loops, step.count, width)):
                    del widths[access.array]

    def change(access: Access) -> Access:
        if access.array not in widths:
            return access
        width = widths[access.array]
        height = access.array.size // width

        def place(distance: int) -> int:
            return distance // width if distance % width == 0 else distance * height

        base = access.base % width * height + access.base // width
        return Access(access.array, base, [*map(place, access.strides)], None, place(access.repeat))

    return program.with_steps(
        changed(program.steps, lambda statement: statement if _is_fill(statement) else statement.map(change))
    )


def _widths(program: ArrayProgram) -> dict[Array, int]:
    """The arrays through which a Repeat moves by less than a loop in it does, and how far that loop moves."""
    found: dict[Array, int] = {}
    for step in program.steps:
        for statement in step.body:
            for access, loops in statement.accesses_in_loops():
                strides = [abs(s) for s, n in zip(access.strides, loops, strict=True) if n > 1]
                far = [stride for stride in strides if stride > abs(access.repeat) * (step.count - 1)]
                divides = far and access.array.size % min(far) == 0 and access.array.numbers is None
                low, high = span(access, loops) if access.repeat and divides else (0, 0)
                if high - low > APART:
                    found[access.array] = min(far)
    return found


def _is_fill(statement: Statement) -> bool:
    """Whether it writes the same number to every element of an array, in whatever order."""
    target, alike = statement.target, not list(statement.accesses())
    whole = span(target, statement.loops) == (0, target.array.size) and target.table is None and not target.repeat
    return alike and whole and prod(statement.loops) == target.array.size


def _fits(access: Access, loops: Shape, count: int, width: int) -> bool:
    """Whether each loop, and time, goes either from row to row or along one, and none leaves its row."""
    if access.table is not None:
        return False
    along = [stride if stride % width else 0 for stride in access.strides]
    inside = Access(access.array, access.base % width, along, repeat=access.repeat if access.repeat % width else 0)
    low, high = span(inside, loops, count)
    return low >= 0 and high <= width
