"""The LLVM backend: one function per group of statements, with known trip counts and vectors of up to four registers.

    ArrayProgram ──module──► text ──native──► machine code, and memory to run in
                     └─ nests: the loops of a group of statements
                          ├─ memory: loads and stores
                          ├─ reductions: sums and maxima across lanes
                          └─ registers: rules of the op table, run on registers of LLVM's language
                               └─ kernels: exp, tanh, sin, … on all lanes at once

All of it writes through `text`. Only `native` imports llvmlite.
"""

from chainrule.compiler.backends.llvm.native import Native

__all__ = ["Native"]
