"""Our elementary functions in LLVM's language equal the Python functions bit for bit, and compile for GPUs."""

import ast
import ctypes
import inspect
import itertools
import math
import random
import re
import shutil
import struct
import subprocess

import pytest

from chainrule import ops
from chainrule.compiler.backends.llvm import kernels, library, native
from chainrule.compiler.backends.llvm.registers import COMPARISONS as COMPARED
from chainrule.compiler.backends.llvm.registers import INSTRUCTIONS, INTRINSICS
from chainrule.compiler.backends.llvm.target import Target
from chainrule.compiler.backends.llvm.text import DOUBLE, ELEMENTS, Text
from chainrule.wasm import elementary

COUNT = 3_000  # arguments a function
FUNCTIONS = {function.__name__: function for function in elementary.FUNCTIONS}
GPUS = {"sm_75": "+ptx70", "sm_90": "+ptx78"}
SPECIAL = [0.0, math.inf, 5e-324, 2.0**-1022, 1e-300, 1e-120, 2.0**-54, 1e-8, 0.5, 1.0 - 2.0**-53, 1.0, 1.0 + 2.0**-52]
SPECIAL += [1.5, 2.0, 3.0, 27.3, 709.782712893384, 745.1332191019411, 1074.0, 1e5, 2.0**53, 1e22, 1e150, 1e308]
SPECIAL += [-x for x in SPECIAL] + [math.nan]
ENGINES = []  # which must live as long as their code


def arity(name):
    return len(inspect.signature(FUNCTIONS[name]).parameters)


def module(names, entry):
    """A module with these functions, and what `entry(name, arguments)` makes of a call of each."""
    calls = []
    for name in names:
        arguments = ", ".join(f"double %x{k}" for k in range(arity(name)))
        calls.append(entry(name, arguments, f"call double {library.symbol(name)}({arguments})"))
    return "\n".join([*sorted(set().union(*map(library.define, names))), *calls])


def machine_code(names, change=lambda text: text):
    """Functions by name, as machine code, after a change of the text."""

    def entry(name, arguments, call):
        return f"define double @entry.{name}({arguments}) {{\n  %y = {call}\n  ret double %y\n}}\n"

    engine = native.compiled(change(module(names, entry)), native.host())
    ENGINES.append(engine)
    number = ctypes.c_double
    return {
        name: ctypes.CFUNCTYPE(number, *[number] * arity(name))(engine.get_function_address(f"entry.{name}"))
        for name in names
    }


@pytest.fixture(scope="module")
def compiled():
    return machine_code(FUNCTIONS)


def points(name):
    """Of all sizes, and where functions are used; special ones; and beside the numbers that the code compares with."""
    rng = random.Random(name)
    kinds = (
        lambda: struct.unpack("<d", rng.randbytes(8))[0],
        lambda: rng.choice((-1.0, 1.0)) * 2.0 ** rng.uniform(-60, 11),
        lambda: rng.uniform(-1.0, 1.0),
        lambda: rng.uniform(-30.0, 30.0),
        lambda: rng.uniform(-760.0, 720.0),
    )
    yield from (tuple(rng.choice(kinds)() for _ in range(arity(name))) for _ in range(COUNT))
    yield from itertools.product(SPECIAL, repeat=arity(name))
    trees = [ast.parse(inspect.getsource(module)) for module in elementary.MODULES]
    compared = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    limits = {node.value for test in compared for node in ast.walk(test) if isinstance(node, ast.Constant)}
    for x in sorted(limits):
        near = (math.nextafter(x, -math.inf), x, math.nextafter(x, math.inf))
        yield from itertools.product(near, repeat=arity(name))


def bits(number):
    return b"NaN" if math.isnan(number) else struct.pack("<d", number)


def different(name, ours):
    """The arguments whose results have other bits."""
    return [x for x in points(name) if bits(ours(*x)) != bits(FUNCTIONS[name](*x))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equal_to_the_python_function_bit_for_bit(name, compiled):
    assert different(name, compiled[name]) == []


def test_a_wrong_last_bit_in_a_table_is_noticed():
    right = elementary.exponential.EXP2_TABLE[5]
    literals = [DOUBLE.literal(number) for number in (right, math.nextafter(right, 2.0))]
    wrong = machine_code(["exp"], lambda text: text.replace(*literals))
    assert different("exp", wrong["exp"]) != []


def test_every_primitive_op_is_an_instruction_or_one_of_these():
    primitives = {row.name for row in ops.TABLE.values() if row.c}
    assert primitives == {*INSTRUCTIONS, *INTRINSICS, *COMPARED} | {*FUNCTIONS}


def test_the_text_has_no_flag_that_changes_results():
    text = "".join(set().union(*map(library.define, FUNCTIONS)))
    assert not re.search(r"\b(fast|contract|reassoc|nnan|ninf|nsz|arcp|afn)\b", text)


def test_what_is_outside_the_small_part_of_python_is_refused():
    tree = ast.parse("def f(x: float) -> float:\n    return x ** 2.0").body[0]
    with pytest.raises(NotImplementedError, match=r"`f` has `x \*\* 2.0`"):
        library._Translation(tree).block(tree.body)


class TestTexts:
    """A `Text` calls them in place of the mathematical library's."""

    @pytest.mark.parametrize("dtype", ELEMENTS)
    @pytest.mark.parametrize("lanes", [1, 4])
    def test_calls(self, dtype, lanes):
        text = Text(ELEMENTS[dtype], functions=library.functions)
        text.library("atan2", ["%x", "%y"], lanes)
        assert text.declarations >= library.define("atan2")
        assert sum("call double @chainrule.atan2(double" in line for line in text.lines) == lanes
        assert not any("@atan2" in line for line in [*text.lines, *text.declarations])

    @pytest.mark.parametrize("name", ["sin", "cos"])
    def test_kernels_call_them_for_large_angles(self, name):
        own = kernels.define(name, 4, functions=library.functions)
        assert library.define(name) <= own
        assert not any(f"@{name}(" in text for text in own)
        assert any(f"declare double @{name}(" in text for text in kernels.define(name, 4))


def entry_point(name, kind, count, symbol):
    """A function that a GPU's module shows, which calls one that it does not."""
    arguments = ", ".join(f"{kind} %x{k}" for k in range(count))
    lines = [f"define void @{name}(ptr %to, {arguments}) {{", f"  %y = call {kind} {symbol}({arguments})"]
    return "\n".join([*lines, f"  store {kind} %y, ptr %to", "  ret void\n}\n"])


@pytest.fixture(scope="module", params=GPUS)
def ptx(request):
    """The name of a GPU, and in its language: the functions, and all kernels of one lane, which call no others."""
    parts = set().union(*map(library.define, FUNCTIONS))
    parts |= {entry_point(f"double_{name}", "double", arity(name), library.symbol(name)) for name in FUNCTIONS}
    for element, name in [(e, name) for e in ELEMENTS.values() for name in kernels.kernels_for(e)]:
        parts |= kernels.define(name, 1, element, library.functions)
        entry = f"kernel_{name}_{element.name}"
        parts.add(entry_point(entry, element.name, arity(name), kernels.symbol(name, 1, element)))
    text = "\n".join([*sorted(parts), "attributes #0 = { nounwind }"])
    target = Target("nvptx64-nvidia-cuda", request.param, GPUS[request.param], 64, 64, True)
    optimized, machine = native.optimized(text, target)
    return request.param, machine.emit_assembly(optimized)


class TestGPUs:
    def test_every_operation_is_rounded_by_itself(self, ptx):
        """`add.f64`, without a rounding, may be fused with a product by NVIDIA's assembler; `add.rn.f64` may not."""
        found = {*re.findall(r"\b(?:add|sub|mul|div|sqrt|fma|mad)\.[.\w]*f(?:32|64)\b", ptx[1])}
        assert found == {f"{op}.rn.f{n}" for op in ("add", "sub", "mul", "div", "sqrt", "fma") for n in (32, 64)}

    def test_nothing_is_called_that_is_not_there(self, ptx):
        assert ".extern" not in ptx[1]

    @pytest.mark.skipif(not shutil.which("ptxas"), reason="there is no NVIDIA assembler")
    def test_the_assembler_takes_it(self, ptx, tmp_path):
        (tmp_path / "functions.ptx").write_text(ptx[1])
        command = ["ptxas", f"-arch={ptx[0]}", "-o", str(tmp_path / "functions.cubin"), str(tmp_path / "functions.ptx")]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
