"""The LLVM backend: one function per group of statements, with known trip counts and widths that suit the processor.

    ArrayProgram ──fusion──► groups ──module──► text ──native──► machine code, and memory to run in
                                        └─ nests: the loops of a group of statements, and reductions; `lanes` chooses
                                             └─ registers: rules of the op table, loads and stores, on LLVM's registers
                                                  └─ kernels: exp, tanh, sin, … on all lanes at once, as `vectors`

`target` describes the processor, `formats` the two types of numbers, and `library` has elementary functions for
processors without C's library. All of it writes through `text`. Only `native` imports llvmlite.
"""

from chainrule.compiler.backends.llvm.native import Native

__all__ = ["Native"]
