"""Builds the native engine from the op table. Without a C compiler the package installs all the same.

`CHAINRULE_PURE=1` leaves the native engine out, for a wheel that runs everywhere.
"""

from __future__ import annotations

import importlib.util
import os
import zlib
from pathlib import Path
from types import ModuleType

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/chainrule")
HEADER = PACKAGE / "native" / "ops.h"


def load_by_path(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PACKAGE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildNative(build_ext):
    def run(self) -> None:
        table = load_by_path("ops").TABLE.values()
        checksum = zlib.crc32((PACKAGE / "ops.py").read_bytes())
        HEADER.write_text(load_by_path("native/header").engine_header(table, checksum))
        super().run()


native = Extension(
    "chainrule._native",
    [str(PACKAGE / "native" / "engine.c")],
    depends=[str(PACKAGE / "ops.py"), *map(str, PACKAGE.glob("native/*"))],
    # Bit for bit what Python computes: no contraction, no fast-math, the same libm.
    extra_compile_args=["-O3", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra"],
    libraries=["m"],
    optional=True,
)

setup(ext_modules=[] if os.environ.get("CHAINRULE_PURE") else [native], cmdclass={"build_ext": BuildNative})
