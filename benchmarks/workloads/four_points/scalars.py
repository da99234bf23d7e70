def loss(layers, xs, ys):
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        for layer in layers:
            x = [sum((w * xi for w, xi in zip(weights, x, strict=True)), bias).tanh() for weights, bias in layer]
        total += (x[0] - y) ** 2
    return total
