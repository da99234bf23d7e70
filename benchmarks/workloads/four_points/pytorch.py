import torch


def loss(parameters, x, y):
    for w, b in zip(parameters[::2], parameters[1::2], strict=True):
        x = torch.tanh(torch.addmm(b, x, w.T))
    return ((x[:, 0] - y) ** 2).sum()
