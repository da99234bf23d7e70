import casadi

SPLIT = 785 * 50
kind = casadi.MX


def example(p, x, y):
    first, second = casadi.vertsplit(p, [0, SPLIT, SPLIT + 51 * 10])
    hidden = casadi.fmax(casadi.horzcat(x.T, 1) @ casadi.reshape(first, 785, 50), 0)
    logits = (casadi.horzcat(hidden, 1) @ casadi.reshape(second, 51, 10)).T
    return casadi.logsumexp(logits) - casadi.dot(logits, y)
