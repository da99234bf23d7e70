"""The course's last page: its spellings of chainrule and PyTorch run, and agree with what the learner wrote."""

import ast

import pytest
import torch

from chainrule import Value, data, losses, nn, optim
from chainrule.learn.bridge import rows
from learner import COURSE

ROWS = {row["title"]: row for row in rows()}


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_the_exercises_are_in_the_course_and_the_codes_are_python(row):
    assert all(name in COURSE.exercises for name in row["exercises"])
    ast.parse(row["torch"])
    ast.parse(row["chainrule"].replace(", …)", ")"))
    assert all(len(line) < 100 for line in row["chainrule"].splitlines())


@pytest.mark.parametrize(("title", "name", "numbers"), [("A product", "Mul", (2.0, -3.0)), ("tanh", "Tanh", (0.5,))])
def test_pytorchs_ops_have_chainrules_gradients(title, name, numbers):
    space = {"torch": torch}
    exec(ROWS[title]["torch"], space)
    tensors = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in numbers]
    space[name].apply(*tensors).backward()
    values = [Value(x) for x in numbers]
    (values[0] * values[1] if name == "Mul" else values[0].tanh()).backward()
    assert [t.grad.item() for t in tensors] == pytest.approx([v.grad for v in values])


def trained(code, **names):
    space = {"rate": 0.1, "steps": 200, **names}
    exec(code, space)
    return float(space["loss"].data)


def test_both_networks_learn_xor():
    points = data.xor()
    ys = [2.0 * y - 1.0 for y in points.targets]
    space = {}
    exec(ROWS["A network"]["chainrule"], space)
    assert isinstance(space["model"], nn.MLP)
    model = nn.MLP(2, [4, 1], activation="tanh", output="tanh", rng=1)
    names = {"losses": losses, "optim": optim}
    assert trained(ROWS["The loop"]["chainrule"], model=model, xs=points.inputs, ys=ys, **names) < 0.3
    torch.manual_seed(1)
    exec(ROWS["A network"]["torch"], space)
    xs, targets = torch.tensor(points.inputs), torch.tensor(ys)[:, None]
    assert trained(ROWS["The loop"]["torch"], model=space["model"], xs=xs, ys=targets) < 0.3
