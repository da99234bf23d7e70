"""Exported headers through a C compiler: every warning is an error, and the functions are called as C would."""

import ctypes
import itertools
import re
import subprocess

import numpy as np

COUNT = itertools.count()
STRICTEST = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]


class Compiled:
    """The functions of a header; a call takes the input buffers in order and gives the others, without workspace."""

    def __init__(self, header, folder, *flags, optimize="-O1"):
        self.header = header
        self.sizes = {name: int(size) for name, size in re.findall(r"#define (\w+) (\d+)$", header, re.MULTILINE)}
        self.dtype = (
            np.float32 if "float *" in header or "const float" in header or "float outputs" in header else np.float64
        )
        functions = re.findall(r"^static inline void (\w+)\((.*?)\)", header, re.DOTALL | re.MULTILINE)
        self.buffers = {name: re.findall(r"(const )?\w+ (\w+)\[(\w+)\]", arguments) for name, arguments in functions}
        (folder / "exported.h").write_text(header)
        calls = []
        for name, buffers in self.buffers.items():
            passed = ", ".join(f"b[{k}]" for k in range(len(buffers)))
            kind = "float" if self.dtype == np.float32 else "double"
            calls.append(f"void call_{name}({kind} **b);\nvoid call_{name}({kind} **b) {{ {name}({passed}); }}")
        source, self.library = folder / "calls.c", folder / f"calls{next(COUNT)}.so"  # a name is loaded once only
        source.write_text('#include "exported.h"\n' + "\n".join(calls) + "\n")
        command = ["gcc", *STRICTEST, optimize, "-ffp-contract=off", *flags, "-shared", "-fPIC", "-o"]
        done = subprocess.run([*command, self.library, source, "-lm"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.loaded = ctypes.CDLL(str(self.library))

    def __call__(self, name, **given):
        """The buffers that the function fills."""
        arrays = {}
        for const, buffer, size in self.buffers[name]:
            if const:
                arrays[buffer] = np.array(given.pop(buffer), dtype=self.dtype)
                assert len(arrays[buffer]) == self.sizes[size]
            else:
                arrays[buffer] = np.full(self.sizes[size], np.nan, dtype=self.dtype)
        assert not given
        pointers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays.values()])
        getattr(self.loaded, f"call_{name}")(pointers)
        return {name: array for name, array in arrays.items() if name in ("outputs", "gradient")}
