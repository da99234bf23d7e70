import numpy as np


def loss_and_gradient(parameters, x, y):
    layers = list(zip(parameters[::2], parameters[1::2], strict=True))
    outputs = [x]
    for w, b in layers:
        outputs.append(np.tanh(outputs[-1] @ w.T + b))
    error = outputs[-1][:, 0] - y
    slope = 2 * error[:, None]
    gradients = []
    for (w, _), before, after in reversed(list(zip(layers, outputs, outputs[1:], strict=False))):
        slope = slope * (1 - after * after)
        gradients = [slope.T @ before, slope.sum(axis=0), *gradients]
        slope = slope @ w
    return error @ error, gradients
