"""The benchmark's referee: who may take part, and where results are written. No test measures a time."""

import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def referee(monkeypatch):
    """The modules `races` and `compiler`; what importing and running them changes is put back."""
    before, limit = set(sys.modules), sys.getrecursionlimit()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("races"), importlib.import_module("compiler")
    sys.setrecursionlimit(limit)
    if cores:
        os.sched_setaffinity(0, cores)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def race(races, **entries):
    result = races.Race("a race", "µs a step", entries, lambda run: [run(1), run(2)])
    result.run(rounds=2, patience=0.0)
    return result


def test_contestants_that_agree_are_timed(referee):
    races, _ = referee
    entry = races.Entry("scalars", lambda peer: lambda steps: 3.0 * steps)
    near = races.Entry("scalars", lambda peer: lambda steps: 3.0 * steps * (1 + 1e-13))
    result = race(races, ours=entry, near=near)
    assert not result.left_out
    assert [len(times) for times in result.times.values()] == [2, 2]


def test_one_that_disagrees_by_more_than_1e_12_is_left_out(referee):
    races, _ = referee
    ours = races.Entry("scalars", lambda peer: lambda steps: 3.0 * steps)
    wrong = races.Entry("scalars", lambda peer: lambda steps: 3.0 * steps + (steps == 2) * 1e-10)
    result = race(races, ours=ours, wrong=wrong)
    assert "differ from ours by 1.7e-11" in result.left_out["wrong"]
    assert "wrong" not in result.times


def test_one_that_computes_no_number_is_left_out(referee):
    races, _ = referee
    ours = races.Entry("scalars", lambda peer: lambda steps: 3.0 * steps)
    lost = races.Entry("scalars", lambda peer: lambda steps: float("nan"))
    assert "differ from ours by nan" in race(races, ours=ours, lost=lost).left_out["lost"]


def test_one_that_is_not_installed_or_fails_is_left_out_with_the_reason(referee):
    races, _ = referee
    ours = races.Entry("scalars", lambda peer: lambda steps: 3.0 * steps)
    missing = races.Entry("no_such_peer", lambda peer: lambda steps: 3.0 * steps)
    broken = races.Entry("scalars", lambda peer: 1 / 0)
    left_out = race(races, ours=ours, missing=missing, broken=broken).left_out
    assert left_out["missing"] == "ModuleNotFoundError: No module named 'peers.no_such_peer'"
    assert left_out["broken"] == "ZeroDivisionError: division by zero"


def test_if_ours_fails_there_is_no_race(referee):
    races, _ = referee
    with pytest.raises(ZeroDivisionError):
        race(races, ours=races.Entry("scalars", lambda peer: 1 / 0))


def test_the_table_replaces_what_stood_between_the_marks(referee, tmp_path):
    _, compiler = referee
    page = tmp_path / "page.md"
    page.write_text(f"before\n{compiler.BEGIN}\nold\n{compiler.END}\nafter\n")
    compiler.write_between(page, ["new", "lines"])
    assert page.read_text() == f"before\n{compiler.BEGIN}\nnew\nlines\n{compiler.END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match=r"page\.md must have the lines"):
        compiler.write_between(page, [])


def test_microgpt_by_hand_is_the_one_in_scalars(referee):
    """The peers' gradients, one of them written by hand, and five steps of Adam."""
    scalars, by_hand = (importlib.import_module(f"peers.{name}") for name in ("gpt_scalars", "gpt_numpy"))
    benchmark = importlib.import_module("microgpt")
    expected, found = map(benchmark._check, (scalars.WithOptimizer(), by_hand.Numpy()))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
    assert expected[2] == pytest.approx(benchmark._check(scalars.Script(scalars.NATIVE))[2], abs=1e-12)


def test_microgpts_table(referee):
    benchmark = importlib.import_module("microgpt")
    rows = [benchmark.Row("slow", 2000.0, "a note", 10, 123.4), benchmark.Row("fast", 1.5, "", 20, float("nan"))]
    assert benchmark.table(rows)[2:] == ["| fast | 1.50 | 20 |  |  |", "| slow | 2,000 | 10 | 123 | a note |"]
    lines = {name: benchmark.lines_of(contestant) for name, contestant in benchmark.CONTESTANTS.items()}
    assert 20 < lines["PyTorch"] < lines["NumPy by hand"] < lines["C by hand"] < 300


def test_the_readme_has_the_marks(referee):
    _, compiler = referee
    text = compiler.README.read_text()
    assert text.count(compiler.BEGIN) == text.count(compiler.END) == 1
