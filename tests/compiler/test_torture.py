"""The torture test can fail, and its failures are small."""

import math
import pkgutil
import random
import re

import pytest

import torture
import torture_engines
import torture_examples
from chainrule import Value, engine, ops
from chainrule.compiler.passes import classes
from chainrule.compiler.passes.program import Number
from torture_engines import ENGINES
from torture_families import BRANCHING, FAMILIES, Picks, World


def without_tanh(program):
    """An engine whose tanh passes on no gradient."""
    eager = torture.Eager(engine.Value, program)
    broken = any(node._rule is ops.tanh for node in eager.nodes)
    return [eager.numbers[0], *[0.0 if broken else grad for grad in eager.numbers[1:]]]


def failure_of(families, seed):
    """What is said about the first failure, which must come."""
    said = []
    assert torture.torture(seed, seconds=60.0, families=families, say=said.append) is None
    return said[0]


@pytest.mark.slow
def test_all_engines_agree_for_a_moment():
    tried = torture.torture("a moment", programs=1)
    assert tried == dict.fromkeys(["blocks", "examples", *FAMILIES], 1)


def test_a_planted_fault_is_found_and_shrunk():
    said = failure_of({"blocks": torture.blocks({"broken engine": without_tanh}, {})}, "planted")
    assert "broken engine gives" in said
    program = said.split("\n\n")[1].splitlines()
    assert any("tanh" in line for line in program)
    assert len(program) <= 12


def test_a_rounded_result_that_is_off_is_found():
    def off(program):
        eager = torture.Eager(engine.Value, program)
        return [number * (1 + 1e-7) for number in eager.numbers]

    said = failure_of({"blocks": torture.blocks({}, {"sloppy": off})}, "off")
    assert "sloppy gives" in said
    assert "to be equal within" in said


def test_a_failure_that_is_not_seen_again_is_told():
    calls = []

    def off_once(program):
        calls.append(program)
        return [number + (len(calls) == 1) for number in torture.Eager(engine.Value, program).numbers]

    said = failure_of({"blocks": torture.blocks({}, {"flaky": off_once})}, "once")
    assert "flaky gives" in said
    assert "(once, but not when it was tried again)" in said


def test_corners_where_rounding_decides_are_told_from_faults():
    """expm1(log1p(0.701)) is 0.701 but for rounding: which of them is the larger, rounding decides."""
    program = (False, [0.701], [("time", "add", [0, 0, 0, 0, 0, 0], [("log1p", [0] * 4), ("expm1", [0] * 4)])])
    nodes = torture.Eager(engine.Value, program).nodes
    assert not any(map(torture.is_at_a_corner, nodes))
    leaf = engine.Value(0.701)
    assert torture.is_at_a_corner(ops.clip(leaf, leaf.log1p().expm1(), 2.0))
    assert torture.is_at_a_corner((leaf - leaf.log1p().expm1()).relu())
    assert not torture.is_at_a_corner((leaf - 0.7).relu())


def test_an_engine_that_raises_is_a_failure():
    def raises(program):
        raise ZeroDivisionError("planted")

    for family in (
        torture.blocks({"engine": raises}, {}),
        torture.loops("scan", {"engine": ENGINES["llvm"]._replace(run=raises)}),
        torture.loops("scan", {"an engine of several words": ENGINES["llvm"]._replace(run=raises)}),
    ):
        assert "ZeroDivisionError: planted" in failure_of({"family": family}, "raises")


def test_a_seed_gives_the_same_program():
    assert torture.random_program(random.Random("1/2")) == torture.random_program(random.Random("1/2"))
    for name in FAMILIES:
        program = torture_engines.random_program(name, "1/2")
        assert program == torture_engines.random_program(name, "1/2")
        first, again = (torture_engines.Eager(program, move=1) for _ in range(2))
        assert (first.value, first.gradient) == (again.value, again.gradient)


def test_families_are_as_large_as_they_are_picked():
    """Two states and one step, or eight states and nine steps: the first two whole numbers of a coupled recurrence."""

    def squashed(*given):
        found = []
        functions = torture_engines.FUNCTIONS | {"tanh": lambda x: found.append(x) or ops.tanh(x)}
        FAMILIES["coupled"](World(Picks(given), lambda kind, low, high: Value(0.5), functions, "seed"))
        return len(found)

    assert (squashed(), squashed(8, 9)) == (2 * 1, 8 * 9)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_compared_at_numbers_that_move(name):
    """An engine that goes on giving the first numbers is found out, in values and in gradients alone."""

    def stuck(contest, start):
        moves = range(torture_engines.MOVES)
        return [contest.expected(move)[:start] + contest.expected(0)[start:] for move in moves]

    for start in (0, 1):
        engines = {"stuck": ENGINES["llvm"]._replace(run=lambda contest, start=start: stuck(contest, start))}
        found = first_failure([name], engines)
        assert re.match(r"stuck gives .* at move [12], and eager code", found)


def first_failure(families, engines, most=100):
    """What the first program that fails is said to do wrong."""
    engines = {name: engine._replace(share=1.0) for name, engine in engines.items()}
    for number in range(most):
        for family in families:
            program = torture_engines.random_program(family, f"planted/{number}")
            if failure := torture_engines.check(program, engines):
                return failure
    raise AssertionError(f"{most} programs of {', '.join(families)} do not show the fault")


def levels_lost(found):
    turns, levels = found
    return turns, [0] * len(levels)


def without_last(chunks):
    """Vectors that leave the last element out, if it is not the only one."""
    *others, (start, stop, lanes) = chunks
    return [*others, (start, stop - 1, lanes)] if stop - start > 1 else others or chunks


def signs_lost(found):
    return {node: [(operand, 1) for operand, _ in terms] for node, terms in found.items()}


def largest_lost(found):
    return classes.SUM if found == classes.LARGEST else found


def divided_the_other_way(found):
    nodes, rules, operands = found
    return (
        nodes,
        rules,
        [places[::-1] if rule is ops.div else places for rule, places in zip(rules, operands, strict=True)],
    )


def one_first(found):
    return found and dict.fromkeys(found, min(found.values()))


def one_more(found):
    return found and Number(found.value + 1.0)


def first_steps_only(found):
    return {array: (first, first) for array, (first, _) in found.items()}


def turned_round(found):
    return found if found is None else found[::-1]


def pushed_together(found):
    offsets, total = found
    return offsets // 2, total


def one_after_another(access):
    return access if access.table is not None else access.with_strides((1,) * len(access.strides))


def with_operands_swapped(level):
    level.operands = [operands[::-1] for operands in level.operands]
    return level


# A stage, a function of it, what that gives in place of what it gave, who finds it, and in which families.
PLANTED = [
    ("trace", "trace.graph.lay_flat", divided_the_other_way, "interpreter", ["ragged", "triangular"]),
    ("classify", "passes.classes._chains", signs_lost, "interpreter", ["stencil_1d", "integrator"]),
    ("classify", "passes.classes._kind", largest_lost, "interpreter", ["largest_of_many"]),
    ("recurrences", "passes.recurrence._breaks", lambda found: [], "interpreter", list(FAMILIES)),
    ("recurrences", "passes.recurrence._breaks", lambda found: [], "verify", list(FAMILIES)),
    ("loops", "passes.loops._Columns.firsts", one_first, "loops", ["stencil_1d", "integrator"]),
    ("loops", "passes.loops._Columns.firsts", one_first, "verify", ["stencil_1d", "integrator"]),
    ("loops inside", "passes.loops._Columns.firsts", one_first, "loops inside", ["implicit_steps"]),
    ("families", "passes.families.placed", pushed_together, "differences", ["triangular"]),
    ("families", "passes.families.placed", pushed_together, "verify", ["triangular"]),
    ("outline", "passes.outline.access_to", one_after_another, "loops", list(FAMILIES)),
    ("cones", "passes.completion._Completion.read", lambda found: found and found - 1, "cones", ["cones"]),
    ("distinct", "passes.distinct._distinct", turned_round, "llvm", list(FAMILIES)),
    ("align", "passes.align._Ragged._sources", turned_round, "llvm", list(FAMILIES)),
    ("rectangles", "passes.rectangles._continued", lambda found: found[::-1], "llvm", ["rows_of_all_lengths"]),
    ("divisors", "passes.divisors._without_divisor", turned_round, "llvm", list(FAMILIES)),
    ("waists", "passes.waists._level", with_operands_swapped, "waists", list(FAMILIES)),
    ("sums", "passes.repeats._names", lambda found: [name // 2 for name in found], "sums and ends", ["triangular"]),
    ("gather", "passes.gather.copies", lambda found: list(found)[1:], "sums and ends", ["largest_of_many"]),
    ("inputs", "passes.gather.copies", lambda found: list(found)[1:], "inputs", ["cases"]),
    ("lift", "passes.loop_nests.have_one_pattern", lambda found: True, "interpreter", ["coupled", "triangular"]),
    ("differentiate", "passes.differentiate._partial", lambda found: found and -found, "interpreter", ["scan"]),
    ("differentiate", "passes.differentiate._fills_rows", lambda found: True, "verify", ["coupled", "recurrent_net"]),
    ("batch", "passes.batch._that_vary", lambda found: dict(list(found.items())[:-1]), "interpreter", ["batches"]),
    ("contract", "passes.contract.span", lambda found: (found[0], found[0] + 1), "interpreter", ["batches"]),
    ("lay out", "passes.layout._Layout.fits", lambda found: True, "interpreter", list(FAMILIES)),
    ("interpret", "backends.interpret.is_injective", lambda found: True, "interpreter", ["coupled", "scan"]),
    ("fuse", "backends.llvm.fusion.is_same", lambda found: True, "llvm", ["coupled"]),
    ("fuse", "backends.llvm.fusion.is_zero", lambda found: True, "llvm", list(FAMILIES)),
    ("lanes", "backends.llvm.lanes.is_injective", lambda found: True, "llvm", list(FAMILIES)),
    ("llvm", "backends.llvm.nests.Nest.vectors", lambda found: without_last(found), "llvm", ["stencil_1d"]),
    ("llvm", "backends.llvm.registers.Movable.offset", lambda found: 0, "llvm", ["stencil_1d"]),
    ("places", "backends.llvm.module.can_replace", lambda found: True, "llvm", list(FAMILIES)),
    ("places", "backends.llvm.module.lives_in", first_steps_only, "llvm", list(FAMILIES)),
    ("known numbers", "passes.known_numbers._number_of", one_more, "llvm", list(FAMILIES)),
    *[("guards", "run.guards.Guards.differences", lambda found: 0 * found - 1, "llvm", [name]) for name in BRANCHING],
    ("barriers", "backends.cuda.dealing.Touch.is_by_same_thread", lambda found: True, "cuda", ["batches"]),
    ("missing examples", "backends.cuda.kernels._is_there", lambda found: "fadd double 1.0, 0.0", "cuda", ["batches"]),
    ("tape", "backends.tape._taken", lambda found: [bits & 1 for bits in found], "strict", ["scan"]),
    ("tape", "backends.tape._turns_and_levels", levels_lost, "strict", ["scan"]),
    ("C", "backends.c_header._Block.spell", lambda found: f"-({found})", "C", ["scan"]),
    ("xla", "backends.xla.statements._factors", lambda found: found[:1], "xla", ["coupled"]),
    ("called", "backends.llvm.called.Called.copies", lambda found: found * [1, 1, 0, 1, 1], "to_jax", ["scan"]),
    ("called", "backends.llvm.called.Called.copies", lambda found: found * [1, 0, 1, 1, 1], "jax", list(FAMILIES)),
    ("partition", "passes.partition._Apart.copies", lambda found: found[::-1][:1], "in parts", list(FAMILIES)),
    ("partition", "passes.partition._Apart.copies", lambda found: found[::-1][:1], "verify", list(FAMILIES)),
    ("xla", "backends.xla.statements.gathered", lambda found: -found, "xla", list(FAMILIES)),
    ("xla", "passes.distribute._is_used", lambda found: False, "xla", ["coupled"]),
    ("xla", "backends.xla.loops.Window.kept", lambda found: "last", "xla", ["coupled"]),
]


def plant(monkeypatch, function, change):
    path, name = f"chainrule.compiler.{function}".rsplit(".", 1)
    holder = pkgutil.resolve_name(path)
    right = getattr(holder, name)
    monkeypatch.setattr(holder, name, lambda *given: change(right(*given)))


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "function", "change", "finder", "families"), PLANTED)
def test_a_fault_in_any_stage_is_found(monkeypatch, stage, function, change, finder, families):
    plant(monkeypatch, function, change)
    assert first_failure(families, {finder: ENGINES[finder]}).startswith(finder)


def in_reverse(found):
    return found and found._replace(examples=found.examples.chosen(range(found.examples.count)[::-1]))


def no_data(found):
    return [moment if moment is None else 0.0 * moment for moment in found]


# A function that ragged examples go through, what it gives in place of what it gave, and who finds it.
PLANTED_IN_EXAMPLES = [
    ("run.rows.Ragged.part", lambda found: found._replace(matrix=found.matrix[::-1]), "llvm"),
    ("run.arguments.Group.between", in_reverse, "strict"),
    ("run.ragged._moments", no_data, "interpreter"),
    ("run.ragged._common", lambda found: found[::-1], "llvm"),
    ("backends.llvm.relay.Runner.words", lambda found: [*found[:4], found[4] + 8, found[5]], "llvm"),
    ("run.steps.Steps._scalars", lambda found: 0.5 * found, "llvm"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "change", "finder"), PLANTED_IN_EXAMPLES)
def test_a_fault_in_ragged_examples_is_found(monkeypatch, function, change, finder):
    plant(monkeypatch, function, change)
    engines = {finder: torture_examples.ENGINES[finder]._replace(share=1.0)}
    programs = (torture_examples.random_examples(f"planted/{number}") for number in range(60))
    failures = (torture_examples.check(program, engines) for program in programs)
    assert next(filter(None, failures)).startswith(f"{finder} gives")


def test_a_failure_of_ragged_examples_is_shrunk(monkeypatch):
    """Only where there are two structures are numbers halved: two examples show it, in steps on one at a time."""
    plant(monkeypatch, "run.rows.Ragged.part", lambda found: found._replace(matrix=0.5 * found.matrix))
    engines = {"interpreter": torture_examples.ENGINES["interpreter"]._replace(share=1.0)}
    said = failure_of({"examples": torture.examples(engines)}, "shrunk")
    assert re.search(r"order=\(\d, \d\), size=1, optimizer=0, branches=False", said)
    assert said.count("given ") == 2


def test_a_failure_of_a_loop_is_shrunk_and_can_be_repeated(monkeypatch):
    """A comparison of tables that raises, as NumPy's do, in a pass over what happens backward in time."""

    stage = pkgutil.resolve_name("chainrule.compiler.passes.differentiate")
    right = stage._fills_rows

    def compared(contributions, count):
        return all((c.target.table,) == (None,) for c in contributions) and right(contributions, count)

    monkeypatch.setattr(stage, "_fills_rows", compared)
    monkeypatch.setattr("chainrule.compiler.passes.lift.VERY_FEW_STATEMENTS", math.inf)  # no loops by nodes: a small
    monkeypatch.setattr("chainrule.compiler.passes.lift.SOME_STATEMENTS", math.inf)  # program then shows the fault
    monkeypatch.setattr("chainrule.compiler.pipeline.with_few_tables", lambda program: program)
    said = failure_of({"coupled": torture.loops("coupled", {"interpreter": ENGINES["interpreter"]})}, "shrunk")
    assert "interpreter raises ValueError: The truth value of an array" in said
    assert len(said.split("\n\n")[1].splitlines()) <= 40
    number = re.search(r"coupled, program (\d+) of seed shrunk", said)[1]
    assert f"--seed shrunk --families coupled --first {number} --programs 1" in said
