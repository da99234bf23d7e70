"""What PyTorch says of a program."""

import torch


def _tensor(number):
    return number if isinstance(number, torch.Tensor) else torch.tensor(float(number), dtype=torch.float64)


class Torch:
    """The functions that programs use, by PyTorch."""

    def __getattr__(self, name):
        return lambda *numbers: getattr(torch, name)(*map(_tensor, numbers))

    def where(self, condition, a, b):
        return torch.where(condition, _tensor(a), _tensor(b))

    def logsumexp(self, numbers):
        return torch.logsumexp(torch.stack([_tensor(x) for x in numbers]), 0)


def by_torch(found, size):
    """Value and gradient of a program, by PyTorch."""
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in found.numbers(size)]
    loss = found.loss(Torch(), leaves, size)
    slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
    return loss.item(), [0.0 if slope is None else slope.item() for slope in slopes]
