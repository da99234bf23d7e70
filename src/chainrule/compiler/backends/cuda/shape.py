"""How many threads a block has, and how many examples it takes at a time."""

from __future__ import annotations

from typing import Protocol

from chainrule.compiler.backends.cuda.dealing import Block
from chainrule.compiler.backends.llvm.text import ELEMENTS, Element
from chainrule.compiler.passes.batch import size_of_an_example
from chainrule.compiler.passes.program import ArrayProgram, Statement

THREADS = 128  # of a block whose threads share examples, or have one each
FEW = 64  # of a block whose threads have several examples each
ABREAST = 16  # bytes of neighbouring examples that a thread takes side by side
KEPT = 2**16  # bytes of shared memory that a block's examples should not exceed by much
RESIDENT = 2048  # threads that a processor runs at once, at most
OTHERS = 1024  # bytes of shared memory that the system keeps of each block


class Limits(Protocol):
    shared_per_block: int
    shared_per_processor: int


def examples_at_once(program: ArrayProgram, dtype: str) -> int:
    """How many examples a block takes at a time, given the program of one.

    Each thread has one, or several if there are products of matrices, whose weights they then share. Where that many do
    not fit the block's memory, its threads share one example.
    """
    element = ELEMENTS[dtype]
    if not any(map(_is_product, program.statements)):
        return THREADS
    each = 2 * size_of_an_example(program) * element.bytes
    abreast = ABREAST // element.bytes
    while FEW * abreast * each > 3 * KEPT and abreast > 1:
        abreast //= 2
    return FEW * abreast if FEW * abreast * each <= 3 * KEPT else 1


def block_for(program: ArrayProgram, element: Element) -> Block:
    """The block for a program of so many examples."""
    examples = max((array.examples for array in program.arrays()), default=0)
    if examples >= FEW and examples != THREADS or examples == THREADS and any(map(_is_product, program.statements)):
        return Block(FEW, examples, examples // FEW)
    return Block(THREADS, examples)


def room_for(limits: Limits, block: Block) -> int:
    """Bytes of shared memory for a block: so that several fit a processor."""
    most = limits.shared_per_block
    if block.owns and block.abreast == 1:  # an example's numbers are next to each other for all threads, wherever
        return limits.shared_per_processor // (RESIDENT // block.threads) - OTHERS
    return min(most, limits.shared_per_processor // 2 - OTHERS) if block.examples else most


def _is_product(statement: Statement) -> bool:
    """Whether turns of a loop share an operand of a sum."""
    sums = [list(term.expression.accesses()) for term in statement.terms if term.loops]
    return any(len(a) > 1 and any(access.strides[d] == 0 for access in a) for a in sums for d in range(len(statement.loops)))
