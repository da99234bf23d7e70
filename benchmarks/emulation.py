"""AVX2 on a processor that has more: all contestants without what newer processors add.

`scoreboard.py --target x86-64-v3` begins again with the settings below, by which every library limits itself; C is
compiled for that level, and so are our code and numba's. The ratios tell about registers and instructions. They do not
tell about an older processor's caches and clock, so nothing is written to results.md.
"""

from __future__ import annotations

import os

TARGETS = ("x86-64-v3",)
FEATURES = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2")
SETTINGS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}
XLA_FLAGS = "--xla_cpu_max_isa=AVX2"
VARIABLE = "BENCHMARK_TARGET"


def architecture() -> str:
    """What C is compiled for, as gcc's `-march` wants it."""
    return os.environ.get(VARIABLE, "native")


def settings(target: str) -> dict[str, str]:
    """The environment in which all libraries keep to this target."""
    return {**SETTINGS, VARIABLE: target}


def pretend() -> None:
    """Let llvmlite, which ours and numba ask, name the target as this processor, if there is one."""
    target = os.environ.get(VARIABLE)
    if target is None:
        return
    import llvmlite.binding as llvm

    features = type(llvm.get_host_cpu_features())(dict.fromkeys(FEATURES, True))
    llvm.get_host_cpu_name = lambda: target
    llvm.get_host_cpu_features = lambda: features
