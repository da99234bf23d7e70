"""From LLVM text to PTX, which a GPU's driver compiles."""

from __future__ import annotations

from chainrule.compiler.backends.cuda.kernels import Kernels
from chainrule.compiler.backends.cuda.printing import Printer
from chainrule.compiler.backends.llvm.native import optimized
from chainrule.compiler.backends.llvm.target import Target

TRIPLE = "nvptx64-nvidia-cuda"


def ptx(kernels: Kernels, processor: str) -> str:
    """The kernels for a GPU such as "sm_90"."""
    text = Printer(kernels).text()
    module, machine = optimized(text, Target(TRIPLE, processor, "", 128, 32, True))
    return str(machine.emit_assembly(module))
