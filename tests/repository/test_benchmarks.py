"""The scoreboard's referee: who takes part, what is counted, where results are written. No test measures a time."""

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from project import ROOT

BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    from alone import Cost
    from contest import Contest, Contestant, Runner, Workload
    from contestants import BY_LENGTH, CONTESTANTS
    from lines import count, lines_of
    from machine import KINDS, kind
    from pages import (
        BEGIN,
        END,
        METHOD,
        ROWS,
        Board,
        Score,
        item,
        mark,
        method,
        relative,
        standing,
        summary,
        write_between,
    )
    from picture import picture
    from published import published
    from workloads import EVERYTHING, SIX, WORKLOADS
finally:
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(autouse=True)
def referee(monkeypatch):
    """Modules of the benchmark can be imported; what running it changes is put back."""
    limit = sys.getrecursionlimit()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    monkeypatch.syspath_prepend(BENCHMARKS)
    with doubles_in_jax():
        yield
    sys.setrecursionlimit(limit)
    if cores:
        os.sched_setaffinity(0, cores)


@contextmanager
def doubles_in_jax():
    """Peers ask for them when they are imported, which happens once; other tests want JAX as it comes."""
    try:
        import jax
    except ImportError:
        yield
        return
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


TINY = [replace(workload, size=workload.tiny, few=min(workload.few, workload.tiny)) for workload in EVERYTHING]


@pytest.mark.parametrize("workload", TINY, ids=lambda workload: workload.name)
def test_all_that_are_installed_compute_the_same(workload):
    """On small ones everybody but torch.compile, which takes long; else one for each file and module that runs it."""
    wanted = [c for c in workload.contestants(CONTESTANTS) if c.name != "torch.compile"]
    if workload.folder not in ("four_points", "graph"):
        wanted = [*{(contestant.peer, contestant.file): contestant for contestant in reversed(wanted)}.values()][::-1]
    contest = Contest(workload, workload.contestants(CONTESTANTS))
    admitted = [contestant.name for contestant in wanted if contest.admit(contestant)]
    missing = [name for name, reason in contest.left_out.items() if "No module named" in reason]
    assert len(admitted) > 1
    assert {*admitted, *missing} == {contestant.name for contestant in wanted}, contest.left_out


class Fake(Runner):
    def __init__(self, factor=1.0, third=0.0):
        self.factor, self.third = factor, third

    def run(self, steps):
        self.loss = self.third * (steps == 3)
        for _ in range(steps):
            self.loss += self.factor * 3.0

    def numbers(self):
        return self.loss, np.array([self.loss])


def contest_of(monkeypatch, **runners):
    """A contest in which every contestant is one of these Runners, or an error."""

    def prepare(contestant, workload, problem):
        runner = runners[contestant.name]
        if isinstance(runner, Exception):
            raise runner
        return runner

    monkeypatch.setattr(Contestant, "prepare", prepare)
    workload = Workload("fake", "fake", "moons", "training", lambda size: None, 1, 1, 1)
    contest = Contest(workload, [Contestant(name, "group", "peer", "file.py") for name in runners])
    contest.run(turns=2, patience=0.0)
    return contest


def test_contestants_that_agree_are_timed(monkeypatch):
    contest = contest_of(monkeypatch, ours=Fake(), near=Fake(1 + 1e-13))
    assert not contest.left_out
    assert [len(times) for times in contest.times.values()] == [2, 2]


def test_one_that_disagrees_by_more_than_1e_12_is_left_out(monkeypatch):
    contest = contest_of(monkeypatch, ours=Fake(), wrong=Fake(third=1e-10))
    assert contest.left_out["wrong"] == "its numbers differ from ours by 1.1e-11"
    assert "wrong" not in contest.times


def test_one_that_computes_no_number_is_left_out(monkeypatch):
    assert "by nan" in contest_of(monkeypatch, ours=Fake(), lost=Fake(float("nan"))).left_out["lost"]


def test_one_that_is_not_installed_or_fails_is_left_out_with_the_reason(monkeypatch):
    missing, broken = ModuleNotFoundError("No module named 'jax'"), ZeroDivisionError("division by zero")
    left_out = contest_of(monkeypatch, ours=Fake(), missing=missing, broken=broken).left_out
    assert left_out["missing"] == "ModuleNotFoundError: No module named 'jax'"
    assert left_out["broken"] == "ZeroDivisionError: division by zero"


def test_if_ours_fails_there_is_no_contest(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        contest_of(monkeypatch, ours=ZeroDivisionError())


def test_a_workload_has_the_contestants_that_find_their_file():
    by_name = {workload.name: [c.name for c in workload.contestants(CONTESTANTS)] for workload in EVERYTHING}
    assert "tuned C by hand" in by_name["moons"]
    assert "tuned C by hand" not in by_name["digits"]
    assert all(names[0] == "chainrule" for names in (by_name[workload.name] for workload in (*WORKLOADS, *SIX)))
    assert by_name["Kalman filter"] == ["chainrule", "chainrule (eager)", "JAX", "numba by hand"]
    assert by_name["graph"][0] == "chainrule (eager)"


def example(x):  # 1
    """Not counted.

    Nor this.
    """
    import math

    # nor this
    y = math.exp(
        x,
    )  # three lines
    return y + 1


def test_lines_are_those_of_code(tmp_path):
    assert count(example) == 5
    source = tmp_path / "plain.c"
    source.write_text("/* a\n   b */\n#include <math.h>\n\nint f(void) /* c */\n{\n    return 1;\n}\n")
    assert count(source) == 4


def test_what_is_imported_late_does_not_count_as_compiling(tmp_path, monkeypatch):
    alone = importlib.import_module("alone")
    (workload,) = [workload for workload in WORKLOADS if workload.name == "four points"]
    chosen = {contestant.name: contestant for contestant in workload.contestants(CONTESTANTS)}
    told = []

    def process(command, **options):
        told.append(json.loads(options["input"]))
        seconds = 0.5 if "late" in told[-1] else 2.0
        return SimpleNamespace(stdout=f'[{{"compiling": {seconds}, "megabytes": 1.0}}, ["late", "json"]]')

    monkeypatch.setattr(alone.subprocess, "run", process)
    found = alone.cost(workload, chosen["chainrule"])
    assert (found.compiling, found.with_imports) == (0.5, 2.0)
    assert told == [[], *[["late", "json"]] * alone.TRIES]
    (tmp_path / "late_package.py").write_text("")
    (tmp_path / "broken_package.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    alone.import_all(["broken_package", "no.such.package", "late_package"])
    assert "late_package" in sys.modules
    del sys.modules["late_package"]


def test_steps_for_all_lengths_of_names_are_compiled_before_steps_are_timed():
    (workload,) = [workload for workload in WORKLOADS if workload.name == "microgpt"]
    by_name = {contestant.name: contestant for contestant in workload.contestants(CONTESTANTS)}
    ragged, names = by_name[BY_LENGTH], ["ann", "bo", "eve", "al"]
    runner, fresh = ragged.prepare(workload, names), ragged.prepare(workload, names[:1])
    assert runner.get_ready()
    paths = runner.model.trainer.loss._traces.by_structure
    assert len(paths) == 2
    before = {structure: [*kept.known.paths] for structure, kept in paths.items()}
    for each in (runner, fresh):
        each.run(1)
    assert {structure: [*kept.known.paths] for structure, kept in paths.items()} == before
    assert runner.losses == fresh.losses
    assert runner.model.loss_and_gradient("ann")[0] == pytest.approx(fresh.model.loss_and_gradient("ann")[0], rel=1e-13)
    assert runner.model.trainer.optimizer.steps == 1
    assert not any(by_name[name].prepare(workload, names[:1]).get_ready() for name in ("chainrule", "C by hand"))


def test_what_only_later_steps_need_is_compiled_after_the_first_and_counted_by_itself():
    alone = importlib.import_module("alone")
    (workload,) = [workload for workload in WORKLOADS if workload.name == "microgpt"]
    told = []

    class Late(Fake):
        def run(self, steps):
            told.append("step")
            super().run(steps)

        def get_ready(self):
            told.append("ready")
            time.sleep(0.05)
            return True

    late = SimpleNamespace(load=lambda _: None, prepare=lambda *_: Late(), cores=1, at_once=1, managed=False, few=False)
    found = alone.measure(workload, late)
    assert told == ["step", "ready", "step", "step"]
    assert found.compiling < 0.04 < found.everything
    late.prepare = lambda *_: Fake()
    assert alone.measure(workload, late).everything is None


def test_lines_of_a_gpt_grow_with_what_is_done_by_hand():
    (workload,) = [workload for workload in WORKLOADS if workload.name == "microgpt"]
    lines = {c.name: lines_of(c, workload) for c in workload.contestants(CONTESTANTS) if c.name != "JAX"}
    assert 20 < lines["PyTorch"] < lines["NumPy by hand"] < lines["C by hand"] < 300
    assert lines["chainrule"] < lines["chainrule (512 names)"] < lines["C by hand"]


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.042, "0.04"), (0.6, "0.60"), (0.9, "0.90, a tie"), (1.0, "1.00"), (20, "20")]
)
def test_a_ratio_near_one_is_called_a_tie(ratio, text):
    assert relative(ratio) == text


def board_of(workload, kind=KINDS[0], left_out=(), **seconds):
    """A Board of one contest, in which contestants took so long."""
    contest = Contest(workload, workload.contestants(CONTESTANTS))
    contest.times |= {name.replace("_", " "): list(times) for name, times in seconds.items()}
    contest.left_out |= dict(left_out)
    costs = {"JAX": Cost(0.5, 12.0), BY_LENGTH: Cost(0.9, 50.0, everything=11.25)}
    score = Score(contest, dict.fromkeys(contest.times, 7), costs)
    return Board([score], "a processor, 2 cores", kind, "2026-01-01", 0.0, 20.0)


def test_pages_say_who_is_ahead_and_who_was_left_out():
    left_out = {"numba by hand": "ModuleNotFoundError: No module named 'numba'"}
    times = {"chainrule": [2e-6, 3e-6], "JAX": [5e-6], "C by hand": [2.5e-6], "tuned C by hand": [1e-6]}
    board = board_of(WORKLOADS[1], left_out=left_out, **times)
    page = "\n".join(board.results())
    assert page.startswith("## a processor, with AVX-512\n")
    assert "Faster than ours: moons (tuned C by hand 2.0 ×)." in page
    assert "As fast, to within 1.5 ×: moons (C by hand)." in page
    assert "| JAX | 5.00 µs | 5.00 µs | 2.50 | 1 | 0.50 s | 12.0 MB | 7 |" in page
    assert "Left out: numba by hand (ModuleNotFoundError: No module named 'numba')." in page
    drawn = picture(board)
    assert drawn.count("<circle") == 4
    assert "2.00 µs" in drawn


def test_pages_show_a_program_for_all_lengths_and_one_for_each(pages):
    microgpt = next(workload for workload in WORKLOADS if workload.name == "microgpt")
    times = {"chainrule": [8e-6], BY_LENGTH: [6e-6], "C by hand": [7e-6]}
    pages.publish(board_of(microgpt, KINDS[0], **times))
    pages.publish(board_of(microgpt, KINDS[1], **{name: [2 * best] for name, (best,) in times.items()}))
    results, text = pages.RESULTS.read_text(), pages.README.read_text()
    assert f"| {BY_LENGTH} | 6.00 µs | 6.00 µs | 0.75, a tie | 1 | 0.90 s, all 11.25 s | 50.0 MB | 7 |" in results
    row = "| **8.00 µs** (6.00 µs by length) |  |  |  | 7.00 µs | 7.00 µs, C by hand |"
    assert f"{row} **16.0 µs** (12.0 µs by length) | 14.0 µs, C by hand |" in text
    assert "- By length: a program for each" in text


def test_programs_have_a_table_of_their_own():
    board = board_of(SIX[1], **{"chainrule": [8e-6], "JAX": [3e-4], "numba by hand": [4e-6]})
    page = "\n".join(board.results())
    assert "| gradients of programs | chainrule | JAX | numba by hand |" in page
    assert "| **Kalman filter**: likelihood of 100 positions | **8.00 µs** | 300 µs | 4.00 µs |" in page
    assert "Faster than ours: Kalman filter (numba by hand 2.0 ×)." in page
    assert "<img" not in page, "it shows the workloads"


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """The scoreboard's module, with pages that have the marks and nothing else."""
    scoreboard = importlib.import_module("scoreboard")
    places = {"RESULTS": tmp_path / "results.md", "README": tmp_path / "README.md", "PICTURES": tmp_path}
    for name, path in places.items():
        monkeypatch.setattr(scoreboard, name, path)
    scoreboard.RESULTS.write_text("".join(f"{mark(part)}\n{END}\n" for part in (*KINDS, METHOD)))
    scoreboard.README.write_text(f"{BEGIN}\n{END}\n")
    return scoreboard


def test_a_run_leaves_what_was_taken_on_the_other_kind_of_processor(pages):
    pages.publish(board_of(WORKLOADS[1], KINDS[0], chainrule=[1e-6], JAX=[2e-6]))
    pages.publish(board_of(WORKLOADS[1], KINDS[1], chainrule=[3e-6], JAX=[4e-6]))
    pages.publish(board_of(WORKLOADS[1], KINDS[0], chainrule=[5e-6], JAX=[6e-6]))
    assert [board.kind for board in published(pages.RESULTS.read_text())] == [*KINDS]
    text = pages.README.read_text()
    row = "| **5.00 µs** |  |  | 6.00 µs |  | 6.00 µs, JAX | **3.00 µs** | 4.00 µs, JAX |"
    assert f"| **moons**: step of 2-16-16-1 on 100 points {row}" in text
    assert "- Taken on a processor, with AVX-512, 2026-01-01.\n" in text
    assert "- The last two columns: a processor, without AVX-512, 2026-01-01.\n" in text
    assert {path.name for path in pages.PICTURES.glob("*.svg")} == {
        "scoreboard_with_avx512.svg",
        "scoreboard_without_avx512.svg",
    }


def test_the_readme_has_a_sentence_on_the_programs_and_the_table_as_it_was(pages):
    pages.publish(board_of(WORKLOADS[1], KINDS[0], chainrule=[1e-6], JAX=[2e-6]))
    before = pages.README.read_text().splitlines()
    pages.publish(board_of(SIX[1], KINDS[1], **{"chainrule": [2e-6], "JAX": [4e-6], "numba by hand": [1e-6]}))
    said = item(
        "Gradients of six of the fifty programs, as multiples of our time: JAX 2.00 to 2.00, numba by hand 0.50 to "
        "0.50 (a processor, without AVX-512, 2026-01-01)."
    )
    after = pages.README.read_text().splitlines()
    assert [line for line in after if line not in before] == said
    assert [line for line in after if line not in said] == before
    assert "Kalman filter" in pages.RESULTS.read_text()


def test_a_processor_is_of_one_of_the_kinds():
    assert kind() in KINDS


def test_the_table_replaces_what_stood_between_the_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_between(page, ["new", "lines"])
    assert page.read_text() == f"before\n{BEGIN}\nnew\nlines\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match=r"page\.md must have the lines"):
        write_between(page, [])


RESULTS = (BENCHMARKS / "results.md").read_text()


def test_the_readme_shows_what_the_results_say_in_at_most_seven_rows():
    text = importlib.import_module("scoreboard").README.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    boards = published(RESULTS)
    lines = summary(boards)
    assert text.split(f"{BEGIN}\n")[1].split(f"\n{END}")[0] == "\n".join(lines)
    assert sum(line.startswith("| **") for line in lines) == len(WORKLOADS) <= ROWS == 7
    assert f"- Taken on {boards[0].taken()}." in lines
    assert all(line in RESULTS for line in standing(boards[0].tasks))


def test_the_results_show_all_workloads_and_programs():
    shown = {score.contest.workload.name for board in published(RESULTS) for score in board.scores}
    assert shown == {workload.name for workload in EVERYTHING}


def test_the_results_say_how_they_are_measured():
    assert RESULTS.endswith("\n".join([mark(METHOD), *method(), END, ""]))


@pytest.fixture
def fifty(referee):
    pytest.importorskip("jax")
    return importlib.import_module("fifty")


def test_every_program_of_the_suite_is_written_in_jax_too(fifty):
    assert len(fifty.PROGRAMS) == 50
    assert fifty.JAX_PROGRAMS.keys() == fifty.PROGRAMS.keys()


def test_a_program_in_jax_that_computes_something_else_is_not_timed(fifty, monkeypatch):
    found = fifty.PROGRAMS["sorting_network"]
    row = fifty.race(found, found.small, turns=2, patience=0.0)
    assert (row.name, row.size, row.nodes) == ("sorting_network", 6, 55)
    sort = fifty.JAX_PROGRAMS["sorting_network"]
    monkeypatch.setitem(fifty.JAX_PROGRAMS, "sorting_network", lambda x, n: sort(x, n) + 1e-6 * x[0])
    with pytest.raises(ValueError, match="sorting_network of size 6: JAX differs from eager code"):
        fifty.race(found, found.small, turns=2, patience=0.0)


def test_what_falls_out_of_the_frame_is_named(fifty):
    rows = [
        fifty.Row("heat_in_a_rod", 8, 100, None, 6.0, 1.0, ours=3e-5, by_jax=1e-5),
        fifty.Row("spline", 8, 100, 7, 0.5, 1.0, ours=1e-5, by_jax=2e-4),
        fifty.Row("cloth", 8, 100, 7, 0.5, 1.0, ours=1e-5, by_jax=1e-5),
    ]
    text = "\n".join(fifty.summary(rows))
    assert "Ours is faster on 1 of 3, as fast to within 1.5 × on 1." in text
    assert "JAX is faster on 1: heat in a rod 3.0 ×." in text
    assert "Node by node: heat in a rod." in text
    assert "Compiling for more than 5 s: heat in a rod 6 s." in text
    assert rows[0].cells() == ["heat in a rod", "8", "100", "–", "6.0", "1.0", "30.0", "10.0", "0.33"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a target of another family")
@pytest.mark.parametrize("target", ["x86-64-v3"])
def test_a_target_is_what_everybody_compiles_for(target):
    """In a process of its own: ours and C's flags; a processor that has no masks is not among those with AVX-512."""
    emulation = importlib.import_module("emulation")
    assert emulation.architecture() == "native"
    asked = (
        "import emulation, machine; emulation.pretend(); from chainrule.compiler.backends.llvm.native import host; "
        "print(emulation.architecture(), host().cpu, host().bits, host().registers, host().fma, machine.kind())"
    )
    paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT / "src")])
    environment = {**os.environ, **emulation.settings(target), "PYTHONPATH": paths}
    found = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"{target} {target} 256 16 True without AVX-512"
