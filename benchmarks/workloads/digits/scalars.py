def cross_entropy(layers, x, y):
    hidden, last = layers
    x = [sum((w * xi for w, xi in zip(weights, x, strict=True)), bias).relu() for weights, bias in hidden]
    logits = [sum((w * xi for w, xi in zip(weights, x, strict=True)), bias) for weights, bias in last]
    return sum(z.exp() for z in logits).log() - sum(z * t for z, t in zip(logits, y, strict=True))


def loss(layers, xs, ys):
    return sum(cross_entropy(layers, x, y) for x, y in zip(xs, ys, strict=True)) / len(xs)
