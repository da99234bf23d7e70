"""The text of a whole program: one function per group of statements, `run` that calls them, and `drive`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from chainrule.compiler.backends.llvm.drive import drive
from chainrule.compiler.backends.llvm.memory import Memory
from chainrule.compiler.backends.llvm.nests import Nest
from chainrule.compiler.backends.llvm.registers import Arithmetic
from chainrule.compiler.backends.llvm.text import Element, Text
from chainrule.compiler.passes.fusion import Group, groups
from chainrule.compiler.passes.program import Array, ArrayProgram, Repeat, Statement

LONGEST = 256  # statements of a Repeat that are compiled as one: LLVM's work on straight-line code is superlinear
ATTRIBUTES = """
attributes #0 = { nounwind noinline "prefer-vector-width"="512" }
attributes #1 = { nounwind alwaysinline }
"""


class Module:
    """An array program in LLVM's language. `offsets` says where in memory its arrays are; others are in registers."""

    def __init__(self, program: ArrayProgram, offsets: Mapping[Array, int], element: Element) -> None:
        self.offsets = offsets
        self.element = element
        self.tables: list[np.ndarray] = []  # of positions, which the code refers to by address
        self.declarations: set[str] = set()
        self.functions: list[str] = []
        self.calls = self._calls(program.steps)

    def __str__(self) -> str:
        main = "\n".join(["define void @run(ptr %memory) {", *self.calls, "  ret void\n}\n"])
        return "\n".join([*self.functions, main, drive(self.element), *sorted(self.declarations), ATTRIBUTES])

    def _calls(self, steps: Sequence[Statement | Repeat], time: str = "0", inline: bool = False) -> list[str]:
        return [
            self._repeat(step) if isinstance(step, Repeat) else self._call(step, time, inline) for step in groups(steps)
        ]

    def _call(self, group: Group, time: str, inline: bool) -> str:
        """A call of the function of some statements, which is inlined if it has no loops and `inline` says so."""
        inlined = inline and not group[0].loops and not any(term.loops for term in group[0].terms)
        text, name = Text(self.element, self.declarations), f"@s{len(self.functions)}"
        Nest(Memory(Arithmetic(text), self.offsets, self.tables), group)
        head = f"define internal void {name}(ptr %memory, i64 %time) {'#1' if inlined else '#0'}"
        self.functions.append(text.function(head))
        return f"  call void {name}(ptr %memory, i64 {time})"

    def _repeat(self, step: Repeat) -> str:
        """A loop that calls the functions of the body in order, once for each time."""
        k = len(self.functions)
        calls = self._calls(step.body, f"%r{k}", len(step.body) <= LONGEST)
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
