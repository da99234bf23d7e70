"""Builds the native engine from the op table, and the course's site from lessons/, into wheels and sdists.

Without a C compiler or Node.js the package installs all the same; `chainrule learn` then says what is missing. An sdist
carries the built site instead of its sources, so wheels made from it need no Node.js. `CHAINRULE_PURE=1` leaves the
native engine out, for a wheel that runs everywhere; with `CHAINRULE_NATIVE=required` a build without it fails.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

PACKAGE = Path("src/chainrule")
HEADER = PACKAGE / "native" / "ops.h"
SITE = PACKAGE / "learn" / "site"
LESSONS = Path("lessons")

# Bit for bit what Python computes: no contraction, no fast-math, the same libm.
FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra"]
MSVC_FLAGS = ["/O2", "/fp:precise", "/std:c11"]


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

    def build_extension(self, ext: Extension) -> None:
        msvc = self.compiler.compiler_type == "msvc"
        ext.extra_compile_args = MSVC_FLAGS if msvc else FLAGS
        ext.libraries = [] if msvc else ["m"]
        super().build_extension(ext)


native = Extension(
    "chainrule._native",
    [str(PACKAGE / "native" / "engine.c")],
    depends=[str(PACKAGE / "ops.py"), *map(str, PACKAGE.glob("native/*"))],
    optional=os.environ.get("CHAINRULE_NATIVE") != "required",
)


def tools() -> tuple[str, str] | None:
    """Node.js and npm, where there are sources of the course to build with them."""
    node, npm = shutil.which("node"), shutil.which("npm")
    return (node, npm) if LESSONS.is_dir() and node and npm else None


def build_course() -> None:
    """Build the course's site, if that can be done here; otherwise keep the one that is there."""
    found = tools()
    try:
        if found:
            run_node(*found)
    except (OSError, subprocess.CalledProcessError) as error:
        warn(f"building the course failed: {error}")
    if not (SITE / "index.html").exists():
        warn("this package has NO COURSE, and no `chainrule learn`: build it where there is Node.js 20 or later")


def run_node(node: str, npm: str) -> None:
    if not (LESSONS / "node_modules" / ".package-lock.json").exists():  # npm writes it last
        subprocess.run([npm, "ci", "--ignore-scripts", "--fetch-retries=1"], cwd=LESSONS, check=True)
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(PACKAGE.parent.absolute())}
    environment.pop("CHAINRULE_ENGINE", None)  # there may be only one yet
    subprocess.run([node, "build.mjs"], cwd=LESSONS, env=environment, check=True)


def warn(message: str) -> None:
    print(f"\n*** chainrule: {message}\n", file=sys.stderr)


class BuildPython(build_py):
    def run(self) -> None:
        if not self.editable_mode:  # a checkout builds its course by `make lessons`
            build_course()
        super().run()


class PackSources(sdist):
    def run(self) -> None:
        build_course()
        super().run()


# The course's pages are made by running chainrule. Build frontends ask what that takes by the command `egg_info`.
asked = "egg_info" in sys.argv

setup(
    ext_modules=[] if os.environ.get("CHAINRULE_PURE") else [native],
    cmdclass={"build_ext": BuildNative, "build_py": BuildPython, "sdist": PackSources},
    setup_requires=["numpy>=1.26"] if asked and tools() else [],
)
