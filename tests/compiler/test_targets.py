"""Code for processors with other registers: its inner loops stay in them, and load less than they compute.

The programs are compiled for each processor, whatever the tests run on, and counted in the assembly text.
"""

import re
from dataclasses import replace
from functools import cache

import pytest

from assembly import inner_loops
from chainrule import compile, data, losses, nn, ops, optim
from chainrule.compiler.backends.llvm import kernels
from chainrule.compiler.backends.llvm.fusion import groups, without_zeros
from chainrule.compiler.backends.llvm.lanes import choose_lanes, choose_tile
from chainrule.compiler.backends.llvm.native import assembly, host
from chainrule.compiler.backends.llvm.target import Target
from chainrule.compiler.backends.llvm.text import ELEMENTS
from chainrule.compiler.passes.known_numbers import with_known_numbers
from chainrule.compiler.passes.program import Access, Array, ArrayProgram, Repeat, Statement, Term
from chainrule.compiler.run.steps import CompiledSteps

LINUX = "x86_64-unknown-linux-gnu"
AVX512 = Target.of(LINUX, "x86-64-v4", "+avx512f,+avx512vl,+avx512dq,+avx512bw,+avx2,+fma")
AVX2 = Target.of(LINUX, "x86-64-v3", "+avx2,+fma")
NEON = Target.of("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")
TARGETS = {"AVX-512": AVX512, "AVX2": AVX2, "NEON": NEON}
MOST_LOADS = {"AVX-512": 0.5, "AVX2": 0.75, "NEON": 0.5}  # for each fused multiplication and addition
FEWEST_SUMS = 8  # side by side: they take four cycles, and two begin in each
LONG = 8  # terms of a sum that is worth a loop


def moons_step():
    model, points = nn.MLP(2, [16, 16, 1], rng=1), data.micrograd_moons()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    loss = lambda xs: losses.hinge([model(x) for x in xs], points.targets)  # noqa: E731
    return CompiledSteps(loss, points.inputs, optimizer).code.laid_out


def big_batch():
    model = nn.MLP(2, [16, 16, 1], rng=1)
    program = compile(lambda x, y: (1.0 - y * model(x)).relu(), wrt=model.parameters())
    program.batch_value_and_grad([[0.1, 0.2]] * 320, [1.0] * 320)
    return program._last_run[1].laid_out


def digits_layer():
    layer = nn.Layer(784, 50, rng=1)
    program = compile(lambda x: sum(layer(x)), wrt=layer.parameters())
    program.batch_value_and_grad([[0.1] * 784] * 100)
    return program._last_run[1].laid_out


PROGRAMS = {f.__name__: cache(f) for f in (moons_step, big_batch, digits_layer)}


def products(program, dtype, target):
    """For each product of matrices in a program, the best of its inner loops; others do the rest."""
    loops = inner_loops(assembly(program, dtype, target))
    for number, group in enumerate(groups(without_zeros(with_known_numbers(program)).steps)):
        assert not isinstance(group, Repeat)
        axis, statement = choose_lanes(group[0])
        tile = choose_tile(statement, axis, target)
        lengths = [term.loops for term in statement.terms if term.loops]
        if len(tile) == (2 if axis is None else 1) and min(statement.loops) >= LONG and max(map(max, lengths)) >= LONG:
            own = [loop for loop in loops if loop.function == f"s{number}"]
            yield str(statement), min((loop for loop in own if loop.fmas), key=lambda loop: loop.loads / loop.fmas)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", TARGETS)
def test_products_of_matrices_stay_in_registers(target, name, dtype):
    found = dict(products(PROGRAMS[name](), dtype, TARGETS[target]))
    assert len(found) == (2 if name == "digits_layer" else 3)
    for statement, loop in found.items():
        assert loop.stack == 0, statement
        assert loop.fmas >= FEWEST_SUMS, statement
        assert loop.loads <= MOST_LOADS[target] * loop.fmas, statement


@pytest.mark.parametrize(("wrong", "what"), [({"registers": 32}, "stack"), ({"registers": 8}, "loads")])
def test_widths_for_other_registers_are_noticed(wrong, what):
    loops = [loop for _, loop in products(big_batch(), "float64", replace(AVX2, **wrong))]
    limits = {"stack": 0.0, "loads": MOST_LOADS["AVX2"]}
    assert any(getattr(loop, what) > limits[what] * loop.fmas for loop in loops)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_across_lanes_permute_no_whole_registers(name):
    """`vpermpd` reorders doubles across both halves; pairs of halves are enough, and half as many."""
    text = assembly(PROGRAMS[name](), "float64", AVX2)
    assert "vhaddpd" in text
    assert "vpermpd" not in text


@pytest.mark.parametrize("target", ["AVX-512", "AVX2"])
def test_short_sums_across_lanes_stay_in_registers(target):
    """`c[i,j] = Σk<16 a[i,k]·b[j,k]`: LLVM would reorder a few turns that are written out, and load more often."""
    a, b, c = Array("a", 48 * 16, "captured"), Array("b", 48 * 16, "captured"), Array("c", 48 * 48, "value")
    term = Term(ops.mul(Access(a, 0, (16, 0, 1)), Access(b, 0, (0, 16, 1))), (16,))
    program = ArrayProgram([Statement(Access(c, 0, (48, 1)), (48, 48), [term])], {"a": a, "b": b}, c)
    loops = inner_loops(assembly(program, "float64", TARGETS[target]))
    loop = max(loops, key=lambda loop: loop.fmas)
    assert (loop.stack, loop.fmas) == (0, 24 if target == "AVX-512" else 12)
    assert loop.loads <= MOST_LOADS[target] * loop.fmas


def test_kernels_read_their_coefficients_where_registers_are_few():
    a, c = Array("a", 64, "captured"), Array("c", 64, "value")
    program = ArrayProgram([Statement(Access(c, 0, (1,)), (64,), [Term(ops.exp(Access(a, 0, (1,))))])], {"a": a}, c)
    texts = {name: assembly(program, "float64", target) for name, target in TARGETS.items()}
    assert [name for name, text in texts.items() if "kernel.exp.v8f64.numbers" in text] == ["AVX2"]
    kernel = texts["AVX2"].partition("\nkernel.exp.v8f64:")[2].partition("jne")[0].splitlines()
    assert sum("vfmadd" in line and "(%r" in line for line in kernel) >= 10
    assert not any("(%rsp)" in line for line in kernel)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_coefficients_lie_where_their_loads_say(dtype, lanes):
    element = ELEMENTS[dtype]
    text = "\n".join(kernels.define("exp", lanes, element, tabled=True))
    loads = re.findall(r"numbers, i64 (\d+)\n.*, align (\d+), !invariant", text)
    assert len(loads) > 5
    assert [row for row, align in loads if int(row) * lanes * element.bytes % int(align)] == []


def test_registers_follow_from_features():
    assert [(t.bits, t.registers) for t in TARGETS.values()] == [(512, 32), (256, 16), (128, 32)]
    assert Target.of(LINUX) == Target(LINUX, "", "", 128, 16, fma=False)
    assert [Target.of(LINUX, features=f"+avx2,{sign}fma").turns(2, 2) for sign in "+-"] == [6, 6]
    assert host().bits >= 128


@pytest.mark.parametrize("target", ["AVX-512", "AVX2"])
def test_conditions_are_not_numbers_in_between(target):
    """`c[i] = max k a[k,i]` is a comparison, a look for NaN and a choice, without 1.0 where one of them holds."""
    a, c = Array("a", 64 * 64, "captured"), Array("c", 64, "value")
    largest = Statement(Access(c, 0, (1,)), (64,), [Term(Access(a, 0, (1, 64)), (64,))], join=ops.larger)
    text = assembly(ArrayProgram([largest], {"a": a}, c), "float64", TARGETS[target])
    (loop,) = (loop for loop in inner_loops(text) if loop.function == "s0")
    assert any(line.startswith("vcmp") for line in loop.instructions)
    assert not any(line.startswith("vadd") for line in loop.instructions)
