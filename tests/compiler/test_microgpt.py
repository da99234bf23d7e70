"""The GPT of examples/microgpt.py: against PyTorch, and the same on Values, compiled, and compiled for a batch."""

import random

import numpy as np
import pytest
import torch

from chainrule import Value
from scripts import load

microgpt = load("microgpt")
NAMES = ["ada", "maximilianjames", "jo"]


def a_gpt():
    return microgpt.GPT(random.Random(7))


def numbers(gpt):
    return np.array([parameter.data for parameter in gpt.parameters()])


def torch_loss_and_gradient(gpt, name):
    """Written in tensors, with PyTorch's own attention, norm and cross-entropy."""
    functions = torch.nn.functional
    w = {
        key: torch.tensor([[v.data for v in row] for row in rows], dtype=torch.float64, requires_grad=True)
        for key, rows in vars(gpt).items()
    }
    tokens, targets, _ = (torch.tensor(part) for part in microgpt.example(name))
    n = len(tokens)

    def norm(x):
        return functions.rms_norm(x, (16,), eps=1e-5)

    def heads(x):
        return x.view(n, 4, 4).transpose(0, 1)

    x = norm(w["token"][tokens] + w["position"][:n])
    query, key, value = (heads(norm(x) @ w[which].T) for which in ("query", "key", "value"))
    heard = functions.scaled_dot_product_attention(query, key, value, is_causal=True)
    x = x + heard.transpose(0, 1).reshape(n, 16) @ w["mix"].T
    x = x + (norm(x) @ w["widen"].T).relu() @ w["narrow"].T
    loss = functions.cross_entropy(x @ w["predict"].T, targets)
    loss.backward()
    return loss.item(), np.concatenate([matrix.grad.numpy().ravel() for matrix in w.values()])


def loss_and_gradient(trainer, names):
    trainer.optimizer.zero_grad()
    loss = trainer.backward(names)
    return loss, np.array([parameter.grad for parameter in trainer.gpt.parameters()])


def eager_loss_and_gradient(gpt, name):
    return loss_and_gradient(microgpt.Eager(gpt, steps=1), [name])


def test_it_has_the_parameters_of_microgpt():
    assert len(a_gpt().parameters()) == 4192


@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradient_are_those_of_pytorch(name):
    gpt = a_gpt()
    (loss, gradient), (expected, expected_gradient) = (
        f(gpt, name) for f in (eager_loss_and_gradient, torch_loss_and_gradient)
    )
    assert loss == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_compiled_for_any_name_it_is_the_same():
    gpt = a_gpt()
    eager = [eager_loss_and_gradient(gpt, name) for name in NAMES]
    tokens, targets, weights = microgpt.padded(NAMES)
    trainer = microgpt.Batched(gpt, steps=1)
    for i, (expected, expected_gradient) in enumerate(eager):
        loss, gradient = trainer.loss.value_and_grad(tokens[i], targets[i], weights[i])
        assert loss == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=1e-12)
    loss, gradient = loss_and_gradient(trainer, NAMES)
    assert loss == pytest.approx(np.mean([loss for loss, _ in eager]), abs=1e-12)
    np.testing.assert_allclose(gradient, np.mean([g for _, g in eager], axis=0), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "size"), [("compiled", 1), ("ragged", 1), ("batched", 3)])
def test_training_goes_the_same_way(mode, size):
    names = [name for name in microgpt.read_names(microgpt.NAMES) if len(name) < microgpt.SIZES[0]]  # one program
    batches = microgpt.in_batches(names, size, 12, random.Random(0))
    gpts, curves = [a_gpt(), a_gpt()], []
    for kind, gpt in zip(("eager", mode), gpts, strict=True):
        trainer = microgpt.TRAINERS[kind](gpt, 12)
        curves.append(trainer.train(batches[:1]) + trainer.train(batches[1:]))
    assert curves[1][0] == pytest.approx(curves[0][0], abs=1e-12)
    np.testing.assert_allclose(curves[1], curves[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(*map(numbers, gpts), rtol=0, atol=1e-6)
    assert np.mean(curves[0][-4:]) < np.mean(curves[0][:4])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compiled", "batched"])
def test_single_precision_is_near(mode):
    expected, _ = eager_loss_and_gradient(a_gpt(), "ada")
    trainers = [microgpt.TRAINERS[mode](a_gpt(), 10, dtype) for dtype in ("float64", "float32")]
    double, single = (trainer.train([["ada"]] * 5) for trainer in trainers)
    assert single[0] == pytest.approx(expected, rel=1e-6)
    assert single == pytest.approx(double, rel=1e-4)


def test_what_is_read_from_a_file(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("Ada\nbob Zoë\nwolfeschlegelsteinhausen\n", encoding="utf-8")
    assert microgpt.read_names(file) == ["ada", "bob"]
    file.write_text("42\n")
    with pytest.raises(ValueError, match="holds no word of 1 to 15 letters a to z"):
        microgpt.read_names(file)


def test_names_are_padded_with_positions_that_do_not_count():
    tokens, targets, weights = microgpt.padded(["ab"])
    assert tokens[0].tolist() == [0, 1, 2] + 13 * [0]
    assert targets[0].tolist() == [1, 2, 0] + 13 * [0]
    assert weights[0].tolist() == 3 * [1 / 3] + 13 * [0]
    tokens, targets, weights = microgpt.padded(["ab", "c"], positions=8, multiple=4)
    assert tokens.tolist() == [[0, 1, 2, 0, 0, 0, 0, 0], [0, 3, 0, 0, 0, 0, 0, 0], 8 * [0], 8 * [0]]
    assert weights[1:].tolist() == [[0.5, 0.5, 0, 0, 0, 0, 0, 0], 8 * [0], 8 * [0]]


def test_samples_follow_the_model():
    """With weights that say `a after the edge, b after a, the edge after b`, there is one name."""
    gpt = a_gpt()
    for matrix in vars(gpt).values():
        for row in matrix:
            row[:] = [Value(0.0) for _ in row]
    for token, following in ((0, 1), (1, 2), (2, 0)):
        gpt.token[token][token].data = 1.0
        gpt.predict[following][token].data = 100.0
    assert microgpt.sample(gpt, random.Random(0)) == "ab"
