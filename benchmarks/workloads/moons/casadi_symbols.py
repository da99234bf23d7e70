import casadi

SHAPES = [(2, 16), (16, 16), (16, 1)]
kind = casadi.SX


def relu(x):
    return (x > 0) * x


def example(p, x, y):
    offset = 0
    for inputs, outputs in SHAPES:
        size = (inputs + 1) * outputs
        x = (casadi.vertcat(x, 1).T @ casadi.reshape(p[offset : offset + size], inputs + 1, outputs)).T
        x = relu(x) if outputs > 1 else x
        offset += size
    return relu(1 - y * x)


def rest(p):
    return 1e-4 * casadi.dot(p, p)
