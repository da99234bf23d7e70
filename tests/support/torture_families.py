"""Families of scalar code for the torture. Each is a function that writes one kind of program, on any kind of number.

A family sees a `World`: whole numbers that decide on the structure, leaves, plain numbers, and functions by name. So
the same code runs on Values, on symbols and on PyTorch's tensors, and a program is no more than the whole numbers that
were picked. Smaller ones make smaller programs: a failure is shrunk by picking less.
"""

import random
from functools import reduce
from itertools import pairwise
from operator import add


class World:
    """What the code of a family is written over. Its functions are those of the op table: `w.tanh(x)`."""

    def __init__(self, picks, leaf, functions, seed):
        self._picks = picks
        self._leaf = leaf
        self._functions = functions
        self._numbers = random.Random(f"{seed} numbers")

    def pick(self, low, high):
        """A whole number in this range."""
        return self._picks.next(low, high)

    def few(self, low, high):
        """A whole number in this range, and rather a small one: a wide program takes long, and shows little more."""
        return self._picks.next(low, high, small=True)

    def one_of(self, *options):
        """One of these, the first being the simplest."""
        return options[self.pick(0, len(options) - 1)]

    def parameter(self, low=-0.9, high=0.9):
        """A leaf that derivatives are wanted for."""
        return self._leaf("parameter", low, high)

    def datum(self, low=-0.9, high=0.9):
        """A leaf that is an argument where the code is a function."""
        return self._leaf("datum", low, high)

    def number(self, low=-0.9, high=0.9):
        """A plain number, the same at every run."""
        return self._numbers.uniform(low, high)

    def many(self, make, count):
        return [make() for _ in range(count)]

    def some(self, count):
        """So many things that steps can read: plain numbers, all different or all alike, data, or parameters."""
        kind = self.pick(0, 3)
        if kind == 0:
            return [self.number()] * count
        return self.many([self.number, self.datum, self.parameter][kind - 1], count)

    def __getattr__(self, name):
        return self._functions[name]


class Picks:
    """Whole numbers: repeated from a list, and beyond its end drawn, or the least if there is nothing to draw from."""

    def __init__(self, given=(), rng=None):
        self.given = list(given)
        self.rng = rng
        self.taken = []

    def next(self, low, high, small=False):
        place = len(self.taken)
        if place < len(self.given):
            value = min(max(self.given[place], low), high)
        else:
            value = self._drawn(low, high, small) if self.rng else low
        self.taken.append(value)
        return value

    def _drawn(self, low, high, small):
        return self.rng.randint(low, self.rng.randint(low, high) if small else high)


def dot(a, b):
    return sum_of([x * y for x, y in zip(a, b, strict=True)])


def sum_of(terms):
    """Left to right, without a zero to start from."""
    return reduce(add, terms)


def chopped(things, size):
    """In lists of this size; the last has what is left."""
    return [things[k : k + size] for k in range(0, len(things), size)]


def readout(w, state, history):
    """One number of the last state, or of all of them."""
    kind = w.pick(0, 4)
    if kind == 0:
        return sum_of(state)
    if kind == 1:
        return state[0]
    if kind == 2:
        return sum_of([v * v for row in history for v in row])
    if kind == 3:
        return sum(row[-1] * w.number() for row in history)
    return sum((v - w.number()) ** 2 for v in history[len(history) // 2])


def coupled(w):
    """Recurrences of two to eight states that read one another, and perhaps what they were; one step may be odd."""
    states, steps = w.few(2, 8), w.pick(1, 12)
    squash = w.one_of(w.tanh, w.sin, w.sigmoid, w.atan, w.relu, w.abs)
    which = w.one_of(
        lambda i, j: (i + j) % states,
        lambda i, j: (i - j) % states,
        lambda i, j: i * states + j,
        lambda i, j: j,
        lambda i, j: (i * j) % states,
        lambda i, j: (2 * i + j) % 3,
    )
    reach = w.one_of(states, 1, 2, 3)  # how many states each reads, from its own on
    neighbours = [[(i + d) % states for d in range(min(reach, states))] for i in range(states)]
    weights = w.many(w.parameter, 1 + max(which(i, j) for i in range(states) for j in neighbours[i]))
    start = w.one_of(
        lambda: [weights[i % len(weights)] for i in range(states)],
        lambda: w.some(states),
        lambda: [w.parameter()] * states,
    )()
    bias, forced = w.some(states), w.pick(0, 2)
    force = w.some(steps) if forced else []
    in_place, lag, odd = w.pick(0, 1), w.one_of(0, 0, 1, 2), w.one_of(None, None, steps // 2)
    state, history = list(start), []
    for t in range(steps):
        new = state if in_place else list(state)
        before = history[-lag - 1] if lag < len(history) else start
        for i in range(states):
            total = dot([weights[which(i, j)] for j in neighbours[i]], [state[j] for j in neighbours[i]])
            if forced:
                total = total + force[t] if forced == 1 else total + force[t] * bias[i]
            total = total - 0.5 * before[i] if lag else total
            new[i] = squash(total) if t != odd else w.cos(total)
        state = new
        history.append(list(state))
    return readout(w, state, history)


def recurrent_net(w):
    """Plain, gated and long short-term cells, in one direction or two."""
    hidden, inputs, steps = w.few(1, 4), w.few(1, 2), w.pick(1, 9)
    cell = w.one_of(plain_cell, gated_cell, long_cell)
    xs = chopped(w.some(steps * inputs), inputs)
    directions = [xs, xs[::-1]] if w.pick(0, 2) == 2 else [xs]
    total = 0.0
    for sequence in directions:
        step, state = cell(w, hidden, inputs)
        history = []
        for x in sequence:
            state = step(state, x)
            history.append(state[:hidden])
        total = total + readout(w, state[:hidden], history)
    return total


def layer(w, outs, ins):
    rows, biases = [w.many(w.parameter, ins) for _ in range(outs)], w.many(w.parameter, outs)
    return lambda x: [dot(row, x) + b for row, b in zip(rows, biases, strict=True)]


def plain_cell(w, hidden, inputs):
    weigh = layer(w, hidden, hidden + inputs)
    return lambda state, x: [w.tanh(v) for v in weigh([*state, *x])], w.some(hidden)


def gated_cell(w, hidden, inputs):
    update, reset, candidate = (layer(w, hidden, hidden + inputs) for _ in range(3))

    def step(state, x):
        z = [w.sigmoid(v) for v in update([*state, *x])]
        r = [w.sigmoid(v) for v in reset([*state, *x])]
        c = [w.tanh(v) for v in candidate([*[ri * h for ri, h in zip(r, state, strict=True)], *x])]
        return [(1 - zi) * h + zi * ci for zi, h, ci in zip(z, state, c, strict=True)]

    return step, w.some(hidden)


def long_cell(w, hidden, inputs):
    gates = layer(w, 4 * hidden, hidden + inputs)

    def step(state, x):
        h, c = state[:hidden], state[hidden:]
        a = gates([*h, *x])
        c = [
            w.sigmoid(a[k]) * c[k] + w.sigmoid(a[hidden + k]) * w.tanh(a[2 * hidden + k]) for k in range(hidden)
        ]  # forget, input, candidate
        return [*[w.sigmoid(a[3 * hidden + k]) * w.tanh(c[k]) for k in range(hidden)], *c]

    return step, [*w.some(hidden), *w.some(hidden)]


def boundary(kind, at, size, edge):
    """Where a neighbour at `at` lies: wrapped around, reflected, or None for a number outside."""
    if 0 <= at < size:
        return at
    if kind == "periodic":
        return at % size
    if kind == "reflecting":
        return max(0, min(size - 1, -at if at < 0 else 2 * (size - 1) - at))
    return edge


def stencil_1d(w):
    """A line of cells, each moved by its neighbours."""
    cells, steps, kind = w.few(2, 12), w.pick(1, 12), w.one_of("fixed", "periodic", "reflecting")
    law = w.one_of("heat", "advection", "burgers", "bistable", "wave", "wide")
    edges, u = w.some(2), w.some(cells)
    rate = w.many(w.parameter, cells) if w.pick(0, 1) else [w.parameter()] * cells
    in_place = w.pick(0, 1)
    before, history = u, []

    def neighbour(u, i, d):
        at = boundary(kind, i + d, cells, None)
        return edges[d > 0] if at is None else u[at]

    for _ in range(steps):
        new = list(u)
        for i in range(cells):
            source = new if in_place else u
            left, mid, right = neighbour(source, i, -1), source[i], neighbour(source, i, 1)
            if law == "heat":
                new[i] = mid + 0.2 * rate[i] * (left - 2 * mid + right)
            elif law == "advection":
                new[i] = mid - 0.3 * rate[i] * (mid - left)
            elif law == "burgers":
                new[i] = mid - 0.1 * mid * (right - left) + rate[i] * 0.05 * (left - 2 * mid + right)
            elif law == "bistable":
                new[i] = w.tanh(rate[i] * (left + right) - mid * mid * mid)
            elif law == "wave":
                new[i] = 2 * mid - before[i] + 0.1 * rate[i] * (left - 2 * mid + right)
            else:
                far = neighbour(source, i, -2), neighbour(source, i, 2)
                new[i] = 0.25 * (rate[i] * far[0] + left + right + rate[i] * far[1])
        before, u = u, new
        history.append(u)
    return readout(w, u, history)


def stencil_2d(w):
    """A grid of cells."""
    rows, columns, steps = w.few(2, 5), w.few(2, 5), w.pick(1, 8)
    kind = w.one_of("fixed", "periodic", "reflecting")
    law = w.one_of("heat", "reaction", "nine")
    edge, rate = w.some(1)[0], w.parameter()
    mix = w.many(w.parameter, 9)
    u = chopped(w.some(rows * columns), columns)
    checkered = w.pick(0, 1)  # red cells first, then the black ones, which read the new red ones
    history = []

    def at(u, r, c):
        r, c = boundary(kind, r, rows, None), boundary(kind, c, columns, None)
        return edge if r is None or c is None else u[r][c]

    def moved(u, r, c):
        if law == "nine":
            return w.tanh(sum_of([mix[3 * a + b] * at(u, r + a - 1, c + b - 1) for a in range(3) for b in range(3)]))
        around = at(u, r - 1, c) + at(u, r + 1, c) + at(u, r, c - 1) + at(u, r, c + 1) - 4 * u[r][c]
        out = u[r][c] + 0.1 * rate * around
        return out if law == "heat" else out + 0.2 * u[r][c] * (1 - u[r][c])

    for _ in range(steps):
        if checkered:
            for colour in (0, 1):
                u = [
                    [moved(u, r, c) if (r + c) % 2 == colour else u[r][c] for c in range(columns)] for r in range(rows)
                ]
        else:
            u = [[moved(u, r, c) for c in range(columns)] for r in range(rows)]
        history.append([v for row in u for v in row])
    return readout(w, history[-1], history)


def integrator(w):
    """Euler, midpoint, Runge and Kutta, leapfrog; forced by nothing, by a table, between its entries, or by a wave."""
    size, slope = w.one_of(decay, oscillator, van_der_pol, lotka_volterra, lorenz, springs)(w)
    method, steps = w.one_of("euler", "leapfrog", "midpoint", "rk4"), w.pick(1, 9)
    forcing, dt = w.one_of("none", "table", "between", "wave"), w.one_of(0.05, 0.1, 0.02)
    table = w.some(steps + 2) if forcing in ("table", "between") else []
    amplitude = w.parameter() if forcing == "wave" else None
    y, history = w.some(size), []

    def force(t):
        if forcing == "table":
            return table[int(t)]
        if forcing == "between":
            k = int(t)
            return (1 - (t - k)) * table[k] + (t - k) * table[k + 1]
        return amplitude * w.sin(w.number()) if forcing == "wave" else None

    def f(y, t):
        dy, push = slope(y), force(t)
        return dy if push is None else [*dy[:-1], dy[-1] + push]

    def ahead(y, k, h):
        return [a + h * b for a, b in zip(y, k, strict=True)]

    for t in range(steps):
        a = f(y, t)
        if method == "euler":
            y = ahead(y, a, dt)
        elif method == "midpoint":
            y = ahead(y, f(ahead(y, a, dt / 2), t + 0.5), dt)
        elif method == "rk4":
            b = f(ahead(y, a, dt / 2), t + 0.5)
            c = f(ahead(y, b, dt / 2), t + 0.5)
            d = f(ahead(y, c, dt), t + 1)
            y = [z + dt / 6 * (p + 2 * q + 2 * r + s) for z, p, q, r, s in zip(y, a, b, c, d, strict=True)]
        else:  # the first half are positions, the rest moves with what they have become
            half = len(y) // 2
            y = [*ahead(y[:half], a[:half], dt), *y[half:]]
            y = [*y[:half], *ahead(y[half:], f(y, t)[half:], dt)]
        history.append(y)
    return readout(w, y, history)


def observed(w):
    """Some steps from one observation to the next, as many or not; errors are added up on the way, or at the end."""
    size, slope = w.one_of(decay, oscillator, lotka_volterra, lorenz)(w)
    between, moments, at_the_end = w.pick(1, 7), w.pick(1, 7), w.one_of(True, False)
    regular = w.one_of(True, False)
    y, errors, total = w.some(size), [], 0.0
    for _ in range(moments):
        for _ in range(between if regular else w.pick(0, between)):
            y = [z + 0.1 * dz for z, dz in zip(y, slope(y), strict=True)]
        errors += [(z - w.datum()) ** 2 for z in y]
        total = total + errors[-1]
    return sum_of(errors) if at_the_end else total


def implicit_steps(w):
    """Steps of which each goes forth through a line of cells and back again."""
    cells, steps, curved = w.pick(1, 9), w.pick(1, 6), w.pick(0, 1)
    rate, u, history = w.parameter(0.2, 0.9), w.some(cells), []
    rates = w.many(lambda: w.parameter(0.2, 0.9), cells) if w.pick(0, 1) else [rate] * cells
    for _ in range(steps):
        c, d = [rates[0] / (2 + rates[0])], [u[0] / (2 + rates[0])]
        for i in range(1, cells):
            pivot = 2 + 2 * rates[i] - rates[i] * c[-1]
            d.append((u[i] + rates[i] * d[-1]) / pivot)
            c.append(rates[i] / pivot)
        u = [d[-1]]
        for i in reversed(range(cells - 1)):
            u.insert(0, d[i] + c[i] * u[0])
        u = [w.sin(v) for v in u] if curved else u
        history.append(u)
    return readout(w, u, history)


def decay(w):
    rate = w.parameter()
    return 1, lambda y: [-rate * y[0]]


def oscillator(w):
    stiffness, friction = w.parameter(), w.parameter()
    return 2, lambda y: [y[1], -stiffness * w.sin(y[0]) - friction * y[1]]


def van_der_pol(w):
    mu = w.parameter()
    return 2, lambda y: [y[1], mu * (1 - y[0] * y[0]) * y[1] - y[0]]


def lotka_volterra(w):
    a, b, c, d = w.many(w.parameter, 4)
    return 2, lambda y: [a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]]


def lorenz(w):
    a, b, c = w.many(w.parameter, 3)
    return 3, lambda y: [a * (y[1] - y[0]), y[0] * (b - y[2]) - y[1], y[0] * y[1] - c * y[2]]


def springs(w):
    count = w.few(1, 4)
    stiffness = w.many(w.parameter, count + 1)

    def slope(y):
        x = [0.0, *y[:count], 0.0]
        pull = [stiffness[k] * (x[k + 1] - x[k]) for k in range(count + 1)]
        return [*y[count:], *[pull[k + 1] - pull[k] for k in range(count)]]

    return 2 * count, slope


def ragged(w):
    """Loops whose last turns are shorter, and sequences of many lengths."""
    return w.one_of(sequences, blocks_with_a_rest, past_of_each_step, unrolled_with_a_tail)(w)


def sequences(w):
    """Sequences of different lengths through one cell."""
    hidden = w.few(1, 3)
    step, start = plain_cell(w, hidden, 1)
    out, total = w.many(w.parameter, hidden), 0.0
    for _ in range(w.pick(1, 5)):
        state = start
        for _ in range(w.pick(1, 7)):
            state = step(state, [w.datum()])
        total = total + (dot(out, state) - w.number()) ** 2
    return total


def blocks_with_a_rest(w):
    """Numbers taken a block at a time; the last block has what is left."""
    count, block = w.pick(1, 30), w.few(1, 6)
    xs, scale, carry, squares = w.some(count), w.parameter(), w.parameter(), w.pick(0, 1)
    for part in chopped(xs, block):
        total = sum_of([x * x for x in part]) if squares else sum_of([scale * x for x in part])
        carry = w.tanh(carry + total)
    return carry * scale


def past_of_each_step(w):
    """A mean of all that came before, at each step, with weights that add up to one."""
    steps, width = w.pick(1, 8), w.few(1, 3)
    keys, values = (chopped(w.some(steps * width), width) for _ in range(2))
    query, total, moves = w.many(w.parameter, width), 0.0, w.pick(0, 1)
    for t in range(steps):
        scores = [w.exp(dot(query, keys[s])) for s in range(t + 1)]
        norm = sum_of(scores)
        mixed = [sum_of([scores[s] * values[s][k] for s in range(t + 1)]) / norm for k in range(width)]
        query = [w.tanh(q + m) for q, m in zip(query, mixed, strict=True)] if moves else query
        total = total + sum_of(mixed)
    return total + query[0]


def unrolled_with_a_tail(w):
    """Turns taken so many at a time, and a tail one at a time."""
    count, at_once = w.pick(1, 24), w.few(1, 4)
    xs, a, state = w.some(count), w.parameter(), w.parameter()
    k = 0
    while k + at_once <= count:
        part = xs[k : k + at_once]
        state = w.tanh(a * state + sum_of([x * a for x in part]))
        k += at_once
    for x in xs[k:]:
        state = w.sin(state * a + x)
    return state * state


def scan(w):
    """Running sums, products and maxima, with numbers looked up in tables on the way."""
    steps, shift = w.pick(1, 24), w.few(0, 7)
    size = w.one_of(steps, 2 * steps, 1, 2, 3, 5)
    table = w.some(size) if w.pick(0, 1) else w.many(w.parameter, size)
    places = w.one_of(
        [(k + shift) % size for k in range(steps)],
        [(size - 1 - k) % size for k in range(steps)],
        [(2 * k + shift) % size for k in range(steps)],
        [(k * k + shift) % size for k in range(steps)],
        [random.Random(97 * shift + k).randrange(size) for k in range(steps)],
        [(steps - k) // 2 % size for k in range(steps)],
    )
    decay_, state, history = w.parameter(), w.one_of(w.parameter, w.number)(), []
    law = w.one_of("sum", "decaying", "product", "maximum", "looked up twice", "logarithmic")
    for k in range(steps):
        x = table[places[k]]
        if law == "sum":
            state = state + x
        elif law == "decaying":
            state = decay_ * state + x
        elif law == "product":
            state = state * (1 + 0.3 * x)
        elif law == "maximum":
            state = w.maximum(state, x + 0.1 * k)
        elif law == "looked up twice":
            state = w.tanh(state * x + table[places[-1 - k]])
        else:
            state = w.log(w.exp(state) + w.exp(x))
        history.append(state)
    read = w.pick(0, 2)
    if read == 0:
        return history[-1]
    if read == 1:
        return sum_of([v * w.number() for v in history])
    return sum_of([history[places[k] % steps] * table[places[k]] for k in range(steps)])


def triangular(w):
    """Loops whose inner range follows the outer one."""
    return w.one_of(
        pairs,
        growing_sums,
        sums_of_the_past,
        forward_substitution,
        cholesky,
        elimination,
        factorization,
        orthogonalization,
        rotations,
        de_casteljau,
        divided_differences,
        shortest_paths,
        binomial_tree,
    )(w)


def pairs(w):
    n, first = w.pick(1, 9), w.pick(0, 1)
    x, scale = w.some(n), w.parameter()
    terms = [w.tanh(scale * (x[i] - x[j])) for i in range(n) for j in range(i + first, n)]
    return sum_of([*terms, scale])


def growing_sums(w):
    """Each sum has a term more than the one before."""
    n, layers = w.pick(1, 9), w.few(1, 4)
    x, kernel, causal = w.some(n), w.many(w.parameter, n), w.pick(0, 1)
    for _ in range(layers):
        rows = [[kernel[i - j if causal else j] * x[j] for j in range(i + 1)] for i in range(n)]
        x = [w.tanh(sum_of(row)) for row in rows]
    return readout(w, x, [x])


def sums_of_the_past(w):
    """Each step needs sums of all that was before it, formed anew; later, sums that grow with other weights."""
    n, kind, first = w.pick(1, 16), w.pick(0, 2), w.one_of(0.0, 1.0)
    xs, past = w.some(n), [w.parameter()]
    for x in xs:
        total = sum(past, first) if kind else sum_of(past)
        squares = sum(p * p for p in past) if kind == 2 else x
        past.append(w.tanh(x * total + 0.1 * squares) / (1.5 + x))
    weights = w.some(n) if w.pick(0, 1) else []
    return readout(w, past, [[sum_of([c * p for p in past[: k + 1]]) for k, c in enumerate(weights)] + past])


def forward_substitution(w):
    n = w.pick(1, 8)
    matrix = [w.many(w.parameter, i + 1) for i in range(n)]
    b, x = w.some(n), []
    for i in range(n):
        rest = b[i] - dot(matrix[i][:i], x) if i else b[i]
        x.append(rest / (2.0 + matrix[i][i]))
    return readout(w, x, [x])


def cholesky(w):
    n = w.pick(1, 5)
    root = chopped(w.some(n * n), n)
    a = [[dot(root[i], root[j]) + (3.0 if i == j else 0.0) for j in range(n)] for i in range(n)]
    scale = w.parameter(0.3, 0.9)
    lower = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = a[i][j]
            for k in range(j):
                rest = rest - lower[i][k] * lower[j][k]
            lower[i][j] = w.sqrt(rest + scale) if i == j else rest / lower[j][j]
    return sum_of([w.log(lower[i][i]) for i in range(n)]) + lower[n - 1][0] * scale


def elimination(w):
    """A system solved in place, some of its zeros written down, by loops that shrink; then back from its last row."""
    n = w.pick(1, 8)
    band = w.one_of(n, 1, 2)
    rows = [[w.parameter() if abs(i - j) <= band else 0.0 for j in range(n)] for i in range(n)]
    a = [[v + (4.0 if i == j else 0.0) for j, v in enumerate(row)] for i, row in enumerate(rows)]
    b, one_factor = w.some(n), w.pick(0, 1)
    for k in range(n):
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k] if one_factor else None
            for j in range(k + 1, n):
                a[i][j] = a[i][j] - (factor if one_factor else a[i][k] / a[k][k]) * a[k][j]
            b[i] = b[i] - a[i][k] / a[k][k] * b[k]
    x = [0.0] * n
    for k in reversed(range(n)):
        x[k] = (b[k] - sum(a[k][j] * x[j] for j in range(k + 1, n))) / a[k][k]
    return readout(w, x, [x])


def factorization(w):
    """Lower and upper factors by sums that grow, by rows or by columns; of some, only the diagonal is read."""
    n, by_rows = w.pick(1, 8), w.pick(0, 1)
    a = [[w.parameter() + (4.0 if i == j else 0.0) for j in range(n)] for i in range(n)]
    lower, upper = [[0.0] * n for _ in range(n)], [[0.0] * n for _ in range(n)]

    def found(i, j):
        rest = a[i][j] - sum(lower[i][k] * upper[k][j] for k in range(min(i, j)))
        if i <= j:
            upper[i][j] = rest
        else:
            lower[i][j] = rest / upper[j][j]

    for i in range(n):
        for j in range(n):
            if by_rows:
                found(i, j)
            elif j >= i:
                found(i, j)
                if j > i:
                    found(j, i)
    diagonal = [upper[k][k] for k in range(n)]
    return readout(w, diagonal, [diagonal, upper[0], [lower[n - 1][0] * upper[0][n - 1] + 0.0]])


def orthogonalization(w):
    """Vectors of which each loses its parts along those before."""
    n, length, squashed = w.pick(1, 6), w.few(1, 4), w.pick(0, 1)
    vectors = [[w.parameter() + (2.0 if i == j else 0.0) for j in range(length)] for i in range(n)]
    done = []
    for v in vectors:
        for q in done:
            part = dot(q, v)
            v = [x - 0.5 * part * y for x, y in zip(v, q, strict=True)]
        size = w.sqrt(dot(v, v) + 1.0)
        done.append([w.tanh(x / size) if squashed else x / size for x in v])
    return readout(w, done[-1], done)


def rotations(w):
    """A matrix made triangular by one rotation after another, of rows that get shorter."""
    n = w.pick(1, 6)
    a = [[w.parameter() + (2.0 if i == j else 0.0) for j in range(n)] for i in range(n)]
    for j in range(n):
        for i in range(j + 1, n):
            radius = w.sqrt(a[j][j] * a[j][j] + a[i][j] * a[i][j] + 0.5)
            c, s = a[j][j] / radius, a[i][j] / radius
            for k in range(j, n):
                a[j][k], a[i][k] = c * a[j][k] + s * a[i][k], c * a[i][k] - s * a[j][k]
    diagonal = [a[k][k] for k in range(n)]
    return readout(w, diagonal, [diagonal])


def de_casteljau(w):
    """A triangle that loses one number a step."""
    row, t = w.some(w.pick(1, 10)), w.parameter()
    curved = w.pick(0, 1)
    while len(row) > 1:
        row = [(1 - t) * a + t * b for a, b in pairwise(row)]
        row = [w.sin(v) for v in row] if curved else row
    return row[0] * t


def divided_differences(w):
    n = w.pick(1, 9)
    x, y = [k + w.number(0.1, 0.4) for k in range(n)], w.many(w.parameter, n)
    at = w.one_of(w.parameter, w.datum)()
    total, basis, row = y[0], 1.0, y
    for order in range(1, n):
        row = [(row[k + 1] - row[k]) / (x[k + order] - x[k]) for k in range(n - order)]
        basis = basis * (at - x[order - 1])
        total = total + row[0] * basis
    return total


def shortest_paths(w):
    """A soft alignment of two sequences, cell by cell."""
    rows, columns = w.few(1, 5), w.pick(1, 7)
    a, b, g = w.some(rows), w.some(columns), w.parameter(0.5, 0.9)
    best = {(r, -1): 0.3 * r for r in range(-1, rows)} | {(-1, c): 0.3 * c for c in range(columns)}
    soft = w.pick(0, 1)
    for r in range(rows):
        for c in range(columns):
            three = best[r - 1, c], best[r, c - 1], best[r - 1, c - 1]
            if soft:
                least = -(w.log(sum_of([w.exp(-(g * v)) for v in three])) / g)
            else:
                least = w.minimum(w.minimum(three[0], three[1]), three[2])
            best[r, c] = least + g * (a[r] - b[c]) ** 2
    return best[rows - 1, columns - 1] * g


def binomial_tree(w):
    """A price, backward from the leaves of a tree; early exercise or not."""
    steps = w.pick(1, 9)
    start, rise, chance = w.parameter(0.5, 0.9), w.parameter(0.1, 0.3), w.parameter(0.3, 0.7)
    early = w.pick(0, 1)

    def price(t, ups):
        return start * w.exp(rise * (2 * ups - t))

    row = [w.relu(0.8 - price(steps, k)) for k in range(steps + 1)]
    for t in reversed(range(steps)):
        row = [chance * row[k + 1] + (1 - chance) * row[k] for k in range(t + 1)]
        row = [w.maximum(v, 0.8 - price(t, k)) for k, v in enumerate(row)] if early else row
    return row[0]


def cones(w):
    """Loops of which each step needs fewer numbers than the one before, or has more: cones, pyramids and triangles."""
    return w.one_of(cone_of_a_cell, pyramid, tableau, growing_triangle, plate_of_a_cell)(w)


def cell_rule(w):
    """What a cell becomes, of its neighbours, of itself two steps ago, and of something of its own or of the step."""
    c, d = w.parameter(0.1, 0.4), w.one_of(w.number, w.parameter)(0.2, 0.6)
    kind, squash = w.pick(0, 6), w.one_of(lambda v: v, w.tanh, w.sin, w.sigmoid)
    by_step = w.some(20) if w.pick(0, 1) else None

    def rule(left, own, right, older, step):
        here = by_step[step] if by_step else d
        if kind == 0:
            return squash(own + c * (left - 2.0 * own + right))
        if kind == 1:
            return squash(2.0 * own - older + c * (left - 2.0 * own + right) * here)
        if kind == 2:
            return squash((left * here + c * right) / (1.5 + own * own))
        if kind == 3:
            return w.maximum(c * left + (1 - c) * right, own - here)
        if kind == 4:
            return squash(w.sqrt(left * left + c * c + 0.01) * here - 0.3 * right + older * 0.1)
        if kind == 5:
            return w.where(w.gt(left, right), own * c, squash(right - here * own))
        return squash(0.5 * left + 0.5 * right)

    return rule


def recorded(w, row):
    """One cell of a row, a few, or all."""
    first, count = w.pick(0, len(row) - 1), w.one_of(1, 2, 3, len(row))
    found = row[first : first + count] or row[:1]
    return found[0] if len(found) == 1 else sum_of([v * (1.0 + 0.5 * k) for k, v in enumerate(found)])


def cone_of_a_cell(w):
    """A rod or a ring, of which a few cells are recorded at the end, and perhaps one on the way."""
    cells, steps, ends, reach = w.few(3, 16), w.pick(1, 16), w.pick(0, 2), w.pick(1, 2)
    rule, now = cell_rule(w), w.many(w.one_of(w.parameter, w.datum, w.number), cells)
    older, extra = w.one_of(list(now), [0.0] * cells), 0.0
    for step in range(steps):
        new = []
        for k in range(cells):
            if ends < 2 and not reach <= k < cells - reach:
                new.append(now[k] if ends else now[k] * 0.9)
                continue
            left, right = now[k - 1], now[(k + 1) % cells]
            if reach == 2:
                left, right = left - 0.25 * now[k - 2], right - 0.25 * now[(k + 2) % cells]
            new.append(rule(left, now[k], right, older[k], step))
        older, now = now, new
        if step == steps // 2 and w.pick(0, 3) == 0:
            extra = recorded(w, now)
    return recorded(w, now) + extra


def pyramid(w):
    """Each row is shorter than the last one by one or two, down to a few; or there are two such side by side."""
    cells, at_once = w.few(3, 20), w.pick(1, 2)
    rule, rows = cell_rule(w), [w.many(w.parameter, cells) for _ in range(at_once)]
    older, step = rows, 0
    while len(rows[0]) > 2:
        count, both = len(rows[0]) - 2, w.pick(0, 3) > 0 or step == 0
        new = [
            [rule(row[k], row[k + 1], row[k + 2], old[k], step) for k in range(count)]
            for row, old in zip(rows, older, strict=True)
        ]
        if at_once == 2 and both:
            new[0] = [a + 0.1 * b for a, b in zip(*new, strict=True)]
        older, rows, step = [row[1:] for row in rows], new, step + 1
    return sum_of([recorded(w, row) for row in rows])


def tableau(w):
    """Neville's, Richardson's or de Casteljau's: each entry from two of the column before, and from where it is."""
    count, kind, by_row = w.few(2, 16), w.pick(0, 2), w.pick(0, 1)
    x, y, t = [k + v * 0.3 for k, v in enumerate(w.some(count))], w.many(w.parameter, count), w.parameter(0.2, 0.8)

    def entry(low, high, j, i):
        if kind == 0:
            return ((t - x[i + j]) * low + (x[i] - t) * high) / (x[i] - x[i + j])
        if kind == 1:
            return high + (high - low) / (2.0**j)
        return (1 - t) * low + t * high

    if not by_row:
        for j in range(1, count):
            y = [entry(y[i], y[i + 1], j, i) for i in range(count - j)]
        return y[0]
    rows = [[y[0]]]
    for i in range(1, count):
        row = [y[i]]
        for j in range(1, i + 1):
            row.append(entry(rows[i - 1][j - 1], row[j - 1], j, i - j))
        rows.append(row)
    return rows[-1][-1]


def growing_triangle(w):
    """Each row is longer than the last one by one: Pascal's triangle, a walk, or the tree of a price."""
    steps, kind, p = w.pick(1, 16), w.pick(0, 2), w.parameter(0.2, 0.6)
    fed, row = w.some(steps), [w.parameter()]
    for step in range(steps):
        inner = [p * row[k] + (1 - p) * row[k + 1] for k in range(len(row) - 1)]
        if kind == 0:
            row = [row[0] * (1 - p), *inner, row[-1] * p]
        elif kind == 1:
            row = [fed[step], *inner, row[-1] * p]
        else:
            row = [w.tanh(row[0]), *[v + 0.1 for v in inner], fed[step]]
    return recorded(w, row)


def plate_of_a_cell(w):
    """A plate, of which a few cells are recorded at the end."""
    side, steps, ends = w.few(3, 7), w.pick(1, 6), w.pick(0, 1)
    rule, now = cell_rule(w), [w.many(w.parameter, side) for _ in range(side)]
    older = now
    for step in range(steps):
        new = [
            [
                now[i][j]
                if ends and (i in (0, side - 1) or j in (0, side - 1))
                else rule(now[i - 1][j] + now[i][j - 1], now[i][j], now[(i + 1) % side][j] * 0.5, older[i][j], step)
                for j in range(side)
            ]
            for i in range(side)
        ]
        older, now = now, new
    return recorded(w, [v for row in now for v in row])


def cases(w):
    """Steps that read this or that, by cases which are known: censored data, days of several kinds.

    Perhaps another level is only asked whether it is high; what it reads has infinite slopes.
    """
    a, b, total, level = w.parameter(), w.parameter(), w.one_of(0.0, w.datum()), w.parameter()
    how, watch = w.pick(0, 4), w.one_of(None, w.parameter())
    for _ in range(w.few(2, 40)):
        value, case = a * w.number() + b, w.pick(0, 2)
        read = [w.tanh(value), 0.5 * value * value, value][case]
        if how == 0:
            total = total + read if case else total - read
        elif how == 1:
            total = 0.9 * total + read
        elif how == 2:
            total = w.maximum(total - 0.01, read)
        elif how == 3:
            total = w.tanh(total * read + 0.1 * a)
        else:
            total, level = total + level * read, 0.8 * level + (read if case else a)
        if watch is not None:
            hidden = value - value
            watch = 0.9 * watch + (w.sqrt(hidden * hidden) if case else hidden)
    if watch is not None:
        total = w.where(w.gt(watch, 0.1), total, 2.0 * total)
    return total + level


def largest_of_many(w):
    """Softmaxes, log-sum-exps and largest numbers, of few or many, of equal or growing counts, near or far apart."""
    return w.one_of(classification, attention, forward_algorithm, mixture, largest_of_each, softmax_by_hand)(w)


def far(w):
    """How far apart scores lie: beyond 700, an exponential that is not shifted overflows."""
    return w.one_of(1.0, 30.0, 900.0)


def classification(w):
    """The cross-entropy of examples, whose choices may be of different numbers."""
    examples, inputs, scale = w.pick(1, 6), w.few(1, 3), far(w)
    classes = w.one_of([w.few(1, 5)] * examples, [1 + (k * k) % 4 for k in range(examples)])
    rows = [w.many(w.parameter, inputs) for _ in range(max(classes))]
    wanted, total = w.one_of("logsumexp", "softmax"), 0.0
    for count in classes:
        x = w.many(w.datum, inputs)
        scores = [scale * dot(row, x) for row in rows[:count]]
        target = w.pick(0, count - 1)
        if wanted == "logsumexp":
            total = total + (w.logsumexp(scores) - scores[target])
        else:
            total = total + (1.0 - w.softmax(scores)[target]) ** 2
    return total


def attention(w):
    """Each step is a mean of those before it, or of all, with the weights of a softmax."""
    steps, width, layers, scale = w.pick(1, 6), w.few(1, 3), w.few(1, 2), far(w)
    causal, rows = w.pick(0, 1), chopped(w.some(steps * width), width)
    for _ in range(layers):
        query, key = layer(w, width, width), layer(w, width, width)
        keys, mixed = [key(row) for row in rows], []
        for t, row in enumerate(rows):
            asked, past = query(row), rows[: t + 1] if causal else rows
            weights = w.softmax([scale * dot(asked, keys[s]) for s in range(len(past))])
            mixed.append([w.tanh(dot(weights, [other[k] for other in past])) for k in range(width)])
        rows = mixed
    return readout(w, rows[-1], rows)


def forward_algorithm(w):
    """All paths through a chain of states: the loss of a CRF, or the score of the best path."""
    states, steps, scale = w.few(1, 5), w.pick(1, 8), far(w)
    moves = [w.many(w.parameter, states) for _ in range(states)]
    scores = chopped(w.some(steps * states), states)
    join = w.one_of(w.logsumexp, lambda items: reduce(w.maximum, items))
    alpha = [scale * v for v in scores[0]]
    for row in scores[1:]:
        alpha = [join([alpha[i] + moves[i][j] for i in range(states)]) + scale * row[j] for j in range(states)]
    return join(alpha) - scale * scores[-1][0]


def mixture(w):
    """The likelihood of points under a few bells."""
    parts, scale = w.few(1, 4), far(w)
    points, centres, widths = w.some(w.pick(1, 7)), w.many(w.parameter, parts), w.parameter(0.3, 0.9)
    weights = w.softmax(w.many(w.parameter, parts))
    total = 0.0
    for x in points:
        total = total + w.logsumexp(
            [w.log(share) - scale * ((x - c) / widths) ** 2 for share, c in zip(weights, centres, strict=True)]
        )
    return total


def largest_of_each(w):
    """The largest of rows that grow, or not; with a gradient and without; through loops of other ops."""
    rows, width, scale = w.pick(1, 7), w.few(1, 5), far(w)
    grows, pick = w.pick(0, 1), w.one_of(w.larger, w.maximum, w.minimum)
    carry, slope = w.parameter(), w.parameter()
    for r in range(rows):
        x = w.some(1 + r if grows else width)
        top = reduce(pick, [scale * slope * v + carry for v in x])
        carry = w.tanh(carry * slope + w.finite(top) / scale) + w.sin(top)
    return carry


def softmax_by_hand(w):
    """The largest of all so far, with its gradient, and much that follows from it; some numbers may be equal."""
    n, scale, pick = w.pick(1, 12), far(w), w.one_of(w.maximum, w.minimum)
    x, a, b, first = w.some(n + 1), w.parameter(), w.parameter(), w.pick(0, 2)
    for _ in range(w.pick(1, 2)):
        rows = [[scale * a * v for v in x[: k + 1]] for k in range(first, len(x))]
        tops = [reduce(pick, row) for row in rows]
        parts = [
            [w.exp(v - top if pick is w.maximum else top - v) for v in row] for row, top in zip(rows, tops, strict=True)
        ]
        means = [w.tanh(dot(part, x[: len(part)])) / sum_of(part) for part in parts]
        x = [w.sin(b * m) + w.cos(top / scale) for m, top in zip(means, tops, strict=True)] or [a]
    return readout(w, x, [x])


def rows_of_all_lengths(w):
    """Rows that grow, shrink or are of any length, gone through number by number, and added up in several ways."""
    count = w.pick(1, 24)
    lengths = w.one_of(
        [i + 1 for i in range(count)],
        [count - i for i in range(count)],
        [1 + (5 * i) % 17 for i in range(count)],
        [3 * (i // 3) + 2 for i in range(count)],
        [min(count, i + 4) - max(0, i - 4) for i in range(count)],
    )
    longest, step, scale = max(lengths), w.pick(0, 1), far(w)
    x, y = w.many(w.parameter, count), w.some(longest + step * count)
    weights = w.one_of([1.0] * longest, w.many(w.number, longest))
    links, shares, columns, rows = w.pick(0, 2), w.pick(0, 1), w.pick(0, 1), []
    for i, length in enumerate(lengths):
        row = [x[i] * y[step * i + j] + weights[j] for j in range(length)]
        for each in range(links):
            row = [w.tanh(v) if each else w.sqrt(v * v + 0.1) for v in row]
        if shares:
            norm = w.logsumexp([scale * v for v in row])
            row = [w.exp(scale * v - norm) * y[j] for j, v in enumerate(row)]
        rows.append(row)
    if columns:
        return sum_of([w.tanh(sum_of([row[j] for row in rows if j < len(row)])) for j in range(longest)])
    return readout(w, [sum_of(row) for row in rows], rows)


def on_a_graph(w):
    """Steps on a graph: neighbours are whoever they are, some nodes never change, and a step may pick one node out."""
    nodes, steps, most = w.pick(2, 24), w.pick(1, 9), w.pick(1, 6)
    rng = random.Random(w.pick(0, 9999))
    around = [rng.sample(range(nodes), rng.randint(1, min(nodes, most))) for _ in range(nodes)]
    fixed = {k for k in range(nodes) if rng.random() < 0.2} if w.pick(0, 1) else set()
    weights, state, squash = w.some(nodes), w.some(nodes), w.one_of(w.tanh, lambda v: 0.3 * v, w.sin)
    picks, total, rate = w.pick(0, 1), w.parameter(), w.parameter()
    for _ in range(steps):
        heard = [sum_of([weights[k] * state[k] for k in near]) / len(near) for near in around]
        state = [
            old if k in fixed else squash(rate * old + new)
            for k, (old, new) in enumerate(zip(state, heard, strict=True))
        ]
        total = total + state[rng.randrange(nodes) if picks else 0] * state[-1]
    return total + sum_of(state)


def levels(w):
    """Pairs at distances 1, 2, 4, …, as in a fast Fourier transform or a network that sorts."""
    size, turns = 2 ** w.pick(1, 6), w.some(64)
    numbers, pair = w.some(size), w.one_of(
        lambda a, b, turn: (a + turn * b, a - turn * b),
        lambda a, b, turn: (w.minimum(a, b + turn), w.maximum(a, b + turn)),
        lambda a, b, turn: (w.cos(turn) * a - w.sin(turn) * b, w.sin(turn) * a + w.cos(turn) * b),
        lambda a, b, turn: (w.tanh(a * b + turn), b - a),
    )  # fmt: skip
    rounds = w.pick(1, 2)
    for _ in range(rounds):
        distance = 1
        while distance < size:
            numbers = list(numbers)
            for k in range(size):
                if not k & distance:
                    partner = k | distance
                    numbers[k], numbers[partner] = pair(numbers[k], numbers[partner], turns[k % distance])
            distance *= 2
    return sum(v * w.number() for v in numbers[: 1 + size // 2]) * w.parameter()


LOOPS = (
    scan,
    coupled,
    recurrent_net,
    stencil_1d,
    integrator,
    ragged,
    triangular,
    largest_of_many,
    on_a_graph,
    levels,
    implicit_steps,
)


def batches(w):
    """Loops that a function makes of its arguments, for many examples at once."""
    return w.one_of(*LOOPS)(w) * w.datum()


def one_after_another(w):
    """Two loops of other families, and the product of what they give."""
    return w.tanh(w.one_of(*LOOPS)(w)) * w.one_of(*LOOPS)(w)


def pivoting(w):
    """Systems of equations by elimination, the largest of a column or of all that is left first; singular ones end."""
    size = w.few(2, 6)
    entry = w.one_of(w.datum, w.parameter, w.number)
    rows = [[entry() for _ in range(size)] + [w.parameter()] for _ in range(size)]
    complete, order, swaps = w.pick(0, 1), list(range(size)), 1.0
    for k in range(size):
        columns = range(k, size) if complete else [k]
        at, column = max(((r, c) for r in range(k, size) for c in columns), key=lambda at: abs(rows[at[0]][at[1]]))
        if abs(rows[at][column]) < 0.02:
            return sum_of([row[-1] for row in rows]) * swaps
        if at != k:
            rows[k], rows[at], swaps = rows[at], rows[k], -swaps
        for row in rows:
            row[k], row[column] = row[column], row[k]
        order[k], order[column] = order[column], order[k]
        for row in rows[k + 1 :]:
            factor = row[k] / rows[k][k]
            row[k:] = [x - factor * y for x, y in zip(row[k:], rows[k][k:], strict=True)]
    solution = [None] * size
    for k in reversed(range(size)):
        known = sum(rows[k][j] * solution[j] for j in range(k + 1, size))
        solution[k] = (rows[k][-1] - known) / rows[k][k]
    return sum(solution[k] * (1.0 + order[k]) for k in range(size)) * swaps


def tolerances(w):
    """What goes on until it is good enough, for a few numbers or in every step of a recurrence."""
    goal = w.one_of(1e-3, 1e-6, 1e-10)
    found = w.one_of(newton, lambda_w, bisection, fixed_point, series, adaptive_steps, relaxation)
    if w.pick(0, 1):
        return sum_of([found(w, w.datum(0.2, 0.9), goal) for _ in range(w.few(1, 4))]) * w.parameter()
    state, factor = w.datum(0.2, 0.9), w.parameter(0.1, 0.9)
    for _ in range(w.few(1, 5)):
        state = 0.3 + 0.5 * w.tanh(found(w, state, goal) * factor)
    return state


def newton(w, a, goal):
    x = a
    while abs(x * x - a) > goal:
        x = 0.5 * (x + a / x)
    return x


def lambda_w(w, a, goal):
    x, step = 0.5 * a, 1.0
    while not abs(step) <= goal:
        e = w.exp(x)
        step = (x * e - a) / (e * (x + 1.0))
        x = x - step
    return x


def bisection(w, a, goal):
    low, high = 0.0 * a, 1.0 + a
    for _ in range(60):
        middle = 0.5 * (low + high)
        if high - low < goal:
            break
        low, high = (middle, high) if middle * middle * middle < a else (low, middle)
    return middle


def fixed_point(w, a, goal):
    x, turns = a, 0
    while abs((new := w.cos(x * a)) - x) > goal and turns < 30:
        x, turns = new, turns + 1
    return x + new


def series(w, a, goal):
    total, term, n = 1.0 + 0.0 * a, a, 1
    while abs(term) > goal:
        total, n = total + term, n + 1
        term = term * a / n
    return total


def adaptive_steps(w, a, goal):
    """Euler's method against two halves of a step: the step is halved, or doubled."""
    t, h, y, tries = 0.0, 0.5, a, 0
    while t < 1.0 and tries < 25:
        h, tries = min(h, 1.0 - t), tries + 1
        whole = y + h * w.sin(y * 3.0 + t)
        half = y + 0.5 * h * w.sin(y * 3.0 + t)
        halves = half + 0.5 * h * w.sin(half * 3.0 + t + 0.5 * h)
        if abs(halves - whole) > max(goal, 1e-2):
            h = 0.5 * h
            continue
        t, y = t + h, 2.0 * halves - whole
        h = 2.0 * h
    return y


def relaxation(w, a, goal):
    """Sweeps over a few cells between two ends until nothing moves much."""
    cells = [a, *[0.3 * a] * 3, 0.5 * a * a]
    for _ in range(12):
        moved = 0.0
        for k in range(1, 4):
            new = 0.5 * (cells[k - 1] + cells[k + 1])
            moved, cells[k] = max(moved, abs(new - cells[k])), new
        if moved < max(goal, 1e-2):
            break
    return sum_of(cells)


def choices(w):
    """An `if` at every turn: walls, thresholds, exercise, order, the first who, the best of many."""
    return w.one_of(walls, regimes, exercise, in_order, first_passage, best_of_many, merged_lists)(w)


def walls(w):
    x, v, bounce, pull = w.datum(0.0, 0.9), w.parameter(), w.parameter(0.5, 0.9), w.parameter()
    for _ in range(w.pick(1, 12)):
        v = v - 0.3 * pull
        x = x + 0.4 * v
        if x < 0.0:
            x, v = -bounce * x, -bounce * v
        elif x > 1.0:
            x, v = 2.0 - x, -bounce * v
    return x * v


def regimes(w):
    levels, rates, hot, total = w.some(w.few(1, 10)), [w.parameter(), w.parameter()], False, w.datum()
    for level in levels:
        total = total * rates[hot] + level
        if hot != (total > 0.2 if hot else total > 0.5):
            hot = not hot
            total = 0.5 * total
    return total


def exercise(w):
    up, strike, steps = w.parameter(1.1, 1.5), w.datum(0.8, 1.2), w.few(1, 6)
    values = [max(strike - up ** (2 * k - steps), 0.0 * strike) for k in range(steps + 1)]
    for step in reversed(range(steps)):
        hold = [0.49 * a + 0.49 * b for a, b in pairwise(values)]
        now = [strike - up ** (2 * k - step) for k in range(step + 1)]
        values = [b if b > a else a for a, b in zip(hold, now, strict=True)]
    return values[0]


def in_order(w):
    numbers = [x * w.parameter() for x in w.many(w.datum, w.few(2, 7))]
    numbers = sorted(numbers, key=w.one_of(lambda x: x, lambda x: -x, lambda x: x * x))
    return sum_of([x * (k + 1.0) for k, x in enumerate(numbers)]) * numbers[len(numbers) // 2]


def first_passage(w):
    x, drift, noise = w.parameter(0.0, 0.3), w.parameter(0.0, 0.3), w.some(w.few(1, 12))
    for k, each in enumerate(noise):
        x = x + drift + 0.3 * each
        if x > 0.6:
            return x * (k + 1.0)
    return x * x


def best_of_many(w):
    rows = [[w.datum() for _ in range(2)] for _ in range(w.few(1, 6))]
    weights = [w.parameter(), w.parameter()]
    kept = [row for row in rows if not dot(row, weights) < -0.3] or rows
    best = max(kept, key=lambda row: dot(row, weights))
    return w.tanh(dot(best, weights)) + min(abs(x) for x in best) * any(x > 0.5 for x in best)


def merged_lists(w):
    left, right = ([x * w.parameter() for x in w.many(w.datum, w.few(1, 4))] for _ in range(2))
    merged = []
    while left and right:
        merged.append((left if left[0] < right[0] else right).pop(0))
    merged += left + right
    return sum_of([a * b * w.number() for a, b in pairwise(merged)])


BRANCHING = {family.__name__: family for family in (pivoting, tolerances, choices)}  # which ask at each run

FAMILIES = {
    family.__name__: family
    for family in (
        coupled,
        recurrent_net,
        stencil_1d,
        stencil_2d,
        integrator,
        observed,
        implicit_steps,
        ragged,
        scan,
        triangular,
        cones,
        cases,
        largest_of_many,
        rows_of_all_lengths,
        on_a_graph,
        levels,
        batches,
        one_after_another,
    )
} | BRANCHING
