"""The course's last page: what the learner wrote, beside chainrule's code, beside PyTorch's spelling of the same."""

from __future__ import annotations

import inspect
import re
from dataclasses import asdict, dataclass
from textwrap import dedent
from typing import Any

from chainrule import engine, ops


@dataclass(frozen=True)
class Row:
    """One idea. `exercises` are those in which the learner wrote it; `file` is where chainrule has it."""

    title: str
    words: str
    exercises: tuple[str, ...]
    file: str
    chainrule: str
    torch: str


MODEL = """
from chainrule import nn

model = nn.MLP(2, [4, 1], activation="tanh", output="tanh")
"""
TORCH_MODEL = """
from torch import nn

model = nn.Sequential(
    nn.Linear(2, 4), nn.Tanh(),
    nn.Linear(4, 1), nn.Tanh(),
)
"""
LOOP = """
from chainrule import losses, optim

optimizer = optim.SGD(model.parameters(), lr=rate)
for step in range(steps):
    loss = losses.sum_of_squares([model(x) for x in xs], ys)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TORCH_LOOP = """
from torch import optim

optimizer = optim.SGD(model.parameters(), lr=rate)
for step in range(steps):
    loss = ((model(xs) - ys) ** 2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TORCH_MUL = """
class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return b * grad, a * grad
"""
TORCH_TANH = """
class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        t = torch.tanh(x)
        ctx.save_for_backward(t)
        return t

    @staticmethod
    def backward(ctx, grad):
        (t,) = ctx.saved_tensors
        return (1 - t**2) * grad
"""
TORCH_BACKWARD = """
loss.backward()  # in C++: the same walk,
                 # from grad_fn to next_functions
"""


def rows() -> list[dict[str, Any]]:
    """The rows of the page, as data for JSON."""
    product = "Your closure holds the two derivatives; chainrule has them in a table, PyTorch in a class."
    tanh = "All three remember the output, because the derivative is made of it."
    order = "Results before operands. You sort by visiting, chainrule by age: operands are older than results."
    network = "The same three classes, ready-made."
    loop = "Zero, backward, step. With an optimizer, the rule of your update has a name."
    found = [
        Row("A product", product, ("mul",), "chainrule/ops.py", _op("mul"), TORCH_MUL),
        Row("tanh", tanh, ("tanh",), "chainrule/ops.py", _op("tanh"), TORCH_TANH),
        Row("The walk back", order, ("backward",), "chainrule/engine.py", _walk(), TORCH_BACKWARD),
        Row("A network", network, ("neuron", "layer", "mlp"), "chainrule/nn.py", MODEL, TORCH_MODEL),
        Row("The loop", loop, ("loss", "train"), "chainrule/optim.py", LOOP, TORCH_LOOP),
    ]
    return [asdict(row) | {"chainrule": row.chainrule.strip(), "torch": row.torch.strip()} for row in found]


def _op(name: str) -> str:
    """The op's row in the table, from its name to its derivatives."""
    found = re.search(rf"^{name} = op\(.*", inspect.getsource(ops), re.MULTILINE)
    assert found
    return re.sub(r", (\(lambda out)", r",\n    \1", found[0]).removesuffix(",") + ", …)"


def _walk() -> str:
    """`backward` and what a node does in it, without docstrings."""
    backward = dedent(inspect.getsource(engine.Value.backward))
    push = dedent(inspect.getsource(engine.Value._push))
    without = [re.sub(r'\n    """.*?"""', "", text, flags=re.DOTALL).strip() for text in (backward, push)]
    return "\n\n".join(without)
