import torch


def loss(parameters, x, y):
    *hidden, (w, b) = zip(parameters[::2], parameters[1::2], strict=True)
    for v, a in hidden:
        x = torch.relu(torch.addmm(a, x, v.T))
    margins = 1 - y * torch.addmm(b, x, w.T)[:, 0]
    return torch.relu(margins).mean() + 1e-4 * sum((p * p).sum() for p in parameters)
