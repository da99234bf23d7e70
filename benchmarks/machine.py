"""What a benchmark ran on, for the record."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

import llvmlite.binding as llvm

KINDS = ("with AVX-512", "without AVX-512")  # of processors: compilers make different code for them
PACKAGES = ("numpy", "llvmlite", "micrograd", "minigrad", "casadi", "torch", "jax", "numba")


def machine() -> str:
    """The processor, the cores, the system and the versions, in a line."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.machine()}"
    return f"{_processor()}, {os.cpu_count()} cores, {system}, {python}, gcc {_gcc_version()}; {_versions()}"


def kind() -> str:
    """Which of the two this processor is."""
    return KINDS[0] if llvm.get_host_cpu_features().get("avx512f") else KINDS[1]


def import_time(rounds: int) -> float:
    """Milliseconds of `import chainrule` beyond a bare interpreter: the best of each, the two taking turns."""

    def milliseconds(program: str) -> float:
        start = perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        return 1e3 * (perf_counter() - start)

    pairs = [(milliseconds("pass"), milliseconds("import chainrule")) for _ in range(rounds)]
    return min(loaded for _, loaded in pairs) - min(bare for bare, _ in pairs)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _versions() -> str:
    found = []
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found)


def _gcc_version() -> str:
    try:
        return subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    except OSError:
        return "not found"
