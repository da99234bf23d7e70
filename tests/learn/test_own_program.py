"""The figures run what the learner wrote. What they have not written, or what fails, is lent, and named."""

import json

import pytest

from chainrule.learn.grading import grade
from chainrule.learn.own_program import assemble, report
from learner import COURSE, OWN, PROGRAM, SOLUTIONS


@pytest.mark.parametrize("name", OWN)
def test_the_learner_of_these_tests_has_passed(name):
    assert grade(COURSE.exercises[name], OWN[name], OWN).passed


def with_own(**own):
    return PROGRAM | {"own": own}


def test_the_learners_own_code_is_what_runs():
    marked = {name: code + f"\nprint('code of {name}')" for name, code in OWN.items() if name in ("neuron", "train")}
    program = assemble(with_own(**OWN | marked), ["tanh", "relu", "sigmoid"])
    assert (program.lent, program.failing) == ((), ())
    assert all(code.splitlines()[-1].strip() in program.source for code in OWN.values())
    assert "squash" in program.names


def test_what_is_not_written_is_lent():
    program = assemble(with_own(add=OWN["add"], neuron=OWN["neuron"]))
    assert program.lent == tuple(name for name in OWN if name not in ("add", "neuron"))
    assert program.failing == ()
    assert assemble(with_own()).lent == tuple(OWN)


BROKEN = {
    "train": "def train(model, xs, ys, steps, rate):\n    return [3.46, 2.56, 2.11, 1.41][:steps]",
    "mlp": SOLUTIONS["mlp"].replace("self.layers = ", "self.floors = "),
    "neuron": SOLUTIONS["neuron"].replace("random.uniform", "random.unifrom"),
    "backward": "def backward(self):\n    raise RuntimeError",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_fails_is_lent_and_named(name):
    program = assemble(with_own(**OWN | {name: BROKEN[name]}))
    assert program.lent == program.failing == (name,)


def test_a_neuron_without_a_tanh_to_respell_is_lent_to_other_activations():
    by_exp = OWN["neuron"].replace("Value.tanh(number)", "1 - 2 / ((number * 2).exp() + 1)")
    assert by_exp != OWN["neuron"]
    given = with_own(**OWN | {"neuron": by_exp})
    assert assemble(given).failing == ()
    assert assemble(given, ["tanh", "relu"]).failing == ("neuron",)


def test_the_page_is_told_what_is_lent():
    given = with_own(**OWN | {"train": BROKEN["train"]})
    assert json.loads(report(json.dumps(given))) == {"lent": ["train"], "failing": ["train"]}
