"""How many threads a block has, and how many examples it takes at a time.

Where an example's numbers are few, each thread has examples of its own, and takes them through the whole program: one,
or, if there are products of matrices, several side by side, which then share the weights that it loads. Where they are
many, the threads of a block share a few examples.
"""

from __future__ import annotations

from math import prod
from typing import Protocol

from chainrule.compiler.backends.cuda.dealing import Block
from chainrule.compiler.backends.llvm.text import ELEMENTS, Element
from chainrule.compiler.passes.batch import size_of_an_example
from chainrule.compiler.passes.program import ArrayProgram, Statement

THREADS = 128  # of a block whose threads have one example each
OWNING = (128, 64, 32)  # of a block whose threads have several
SHARING = 256  # of a block whose threads share examples
ABREAST = 16  # bytes of neighbouring examples that a thread takes side by side
LIVE = 0.8  # numbers that a gradient keeps at a time, for each one that the result is computed from
FULL = 0.82  # of the shared memory that a block can have, for the examples that its threads share
RESIDENT = 1024  # threads that a processor should run at once, where each has an example
MANY = 256  # blocks that keep a large GPU busy
LARGE = 2**14  # numbers of a matrix of weights that do not fit beside the examples
OTHERS = 1024  # bytes of shared memory that the system keeps of each block


class Limits(Protocol):
    """What a GPU has."""

    shared_per_block: int
    shared_per_processor: int


def examples_at_once(program: ArrayProgram, dtype: str, count: int, limits: Limits) -> int:
    """How many of `count` examples a block takes at a time, given the program of one: fewer, if blocks would be few."""
    if not any(map(_is_product, program.statements)):
        return THREADS
    size = ELEMENTS[dtype].bytes
    abreast, each = ABREAST // size, LIVE * size_of_an_example(program) * size
    half = room_for(limits, Block(THREADS, THREADS * abreast, abreast))
    several = [threads * abreast for threads in OWNING if threads * abreast * each <= half]
    if several:
        return next((examples for examples in several if count >= MANY * examples), several[-1])
    return abreast if abreast * each <= FULL * limits.shared_per_block else 1


def block_for(program: ArrayProgram, element: Element) -> Block:
    """The block for a program of so many examples."""
    examples = max((array.examples for array in program.arrays()), default=0)
    products = any(_is_product(s) for s in program.statements if s.target.array.kind == "value")  # no derivatives
    abreast = ABREAST // element.bytes
    if examples == THREADS and not products:
        return Block(THREADS, examples)
    if examples >= min(OWNING) * abreast:
        return Block(examples // abreast, examples, abreast)
    return Block(SHARING if products else THREADS, examples)


def room_for(limits: Limits, block: Block) -> int:
    """Bytes of shared memory for a block."""
    if block.owns and block.abreast == 1:  # neighbouring threads load neighbouring numbers, from whatever memory
        return limits.shared_per_processor // (RESIDENT // block.threads) - OTHERS
    if block.owns:  # two blocks on a processor, so that one works where the other waits
        return min(limits.shared_per_block, limits.shared_per_processor // 2 - OTHERS)
    return limits.shared_per_block


def _is_product(statement: Statement) -> bool:
    """Whether turns of a loop share an operand of a sum."""
    sums = [list(term.expression.accesses()) for term in statement.terms if term.loops]
    loops = range(len(statement.loops))
    return any(len(read) > 1 and any(not access.strides[d] for access in read) for read in sums for d in loops)


def advice_on(program: ArrayProgram) -> str:
    """What to run a program with instead, if most of its work is products of matrices too large for a block."""
    work = {statement: _work(statement) for statement in program.statements}
    large = sum(count for statement, count in work.items() if _is_large_product(statement))
    if 2 * large <= sum(work.values()):
        return ""
    return "most of this is products of large matrices, which backend='jax' hands to a library made for them"


def _work(statement: Statement) -> int:
    return prod(statement.loops) * sum(prod(term.loops) for term in statement.terms)


def _is_large_product(statement: Statement) -> bool:
    """Whether its weights, or their gradients, are more than what a block keeps."""
    touched = (statement.target, *statement.accesses())
    large = any(access.array.size > LARGE for access in touched if not access.array.examples)
    return large and _is_product(statement)
