def score(layers, x):
    for layer in layers:
        x = [sum((w * xi for w, xi in zip(weights, x, strict=True)), bias) for weights, bias in layer]
        if layer is not layers[-1]:
            x = [h.relu() for h in x]
    return x[0]


def loss(layers, xs, ys):
    hinges = [(1.0 - y * score(layers, x)).relu() for x, y in zip(xs, ys, strict=True)]
    squares = sum(p * p for layer in layers for weights, bias in layer for p in (*weights, bias))
    return sum(hinges) * (1.0 / len(hinges)) + 1e-4 * squares
