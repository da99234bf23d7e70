"""Optimizers, schedules and clipping do what PyTorch's do."""

import functools
import math
import random

import pytest
import torch

import chainrule
from chainrule import Value, detect_anomaly, no_grad, optim

START = [-1.2, 1.0, 0.5, -0.3]
STEPS = 100


def problem(w, sin, tanh):
    """Rosenbrock's valley in two parameters, ripples in the others: not convex, and nowhere flat on the way."""
    a, b, c, d = w
    valley = (1.0 - a) * (1.0 - a) + 5.0 * (b - a * a) * (b - a * a)
    return valley + sin(3.0 * c) * d + tanh(c * d + a) + 0.5 * c * c + 0.1 * d * d * d * d


def our_path(make, steps=STEPS):
    parameters = [Value(x) for x in START]
    optimizer = make(parameters)
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        problem(parameters, Value.sin, Value.tanh).backward()
        optimizer.step()
        path.append([p.data for p in parameters])
    return path


def torch_path(make, steps=STEPS, scheduler=None):
    parameters = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in START]
    optimizer = make(parameters)
    schedule = scheduler and scheduler(optimizer)
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        problem(parameters, torch.sin, torch.tanh).backward()
        optimizer.step()
        if schedule:
            schedule.step()
        path.append([p.item() for p in parameters])
    return path


def assert_same_path(ours, theirs):
    assert all(map(math.isfinite, theirs[-1]))
    assert theirs[-1] != pytest.approx(START, abs=1e-3)
    for our_point, their_point in zip(ours, theirs, strict=True):
        assert our_point == pytest.approx(their_point, rel=1e-12, abs=1e-12)


SGD_OPTIONS = [
    {"lr": 0.01, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
    for momentum in (0.0, 0.5, 0.9)
    for nesterov in (False, True)
    for weight_decay in (0.0, 0.1)
    if momentum or not nesterov
]
ADAM_OPTIONS = [{}] + [
    {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    # With little memory, large steps are chaotic: they jump across a minimum and amplify the last bit.
    for lr, betas in ((0.02, (0.9, 0.999)), (0.0005, (0.0, 0.9)), (0.0005, (0.5, 0.0)))
    for eps in (1e-8, 1e-3)
    for weight_decay in (0.0, 0.1)
]
RMSPROP_OPTIONS = [{}] + [
    {"lr": 0.005, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
    for alpha in (0.99, 0.5)
    for eps in (1e-8, 1e-3)
    for weight_decay in (0.0, 0.1)
    for momentum in (0.0, 0.8)
]
CASES = [
    *[("SGD", options) for options in SGD_OPTIONS],
    *[("Adam", options) for options in ADAM_OPTIONS],
    *[("AdamW", options) for options in ADAM_OPTIONS],
    *[("RMSprop", options) for options in RMSPROP_OPTIONS],
]
RICH = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"weight_decay": 0.1},
    "AdamW": {"weight_decay": 0.1},
    "RMSprop": {"weight_decay": 0.1, "momentum": 0.9},
}


def rich(library, name, parameters, lr=0.01):
    """An optimizer with all that it can do switched on."""
    return getattr(library, name)(parameters, lr=lr, **RICH[name])


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_optimizer_walks_the_path_that_pytorch_walks(name, options):
    ours = our_path(lambda parameters: getattr(optim, name)(parameters, **options))
    theirs = torch_path(lambda parameters: getattr(torch.optim, name)(parameters, **options))
    assert_same_path(ours, theirs)


@pytest.mark.parametrize("name", RICH)
def test_a_scheduled_optimizer_walks_the_path_that_pytorch_walks(name):
    ours = our_path(lambda p: rich(optim, name, p, lr=optim.cosine(0.01, 0.001, 100)))
    theirs = torch_path(
        lambda p: rich(torch.optim, name, p, lr=0.01),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100, eta_min=0.001),
    )
    assert_same_path(ours, theirs)


@pytest.mark.parametrize("name", RICH)
def test_a_rule_gives_the_same_numbers_on_values_as_on_floats(name):
    optimizer = rich(optim, name, [Value(0.0)])
    slots = [0.3 + i for i in range(len(optimizer.slots))]
    floats = optimizer.update(1.5, -0.7, *slots, **optimizer.scalars())
    symbols = {scalar: Value(number) for scalar, number in optimizer.scalars().items()}
    values = optimizer.update(Value(1.5), Value(-0.7), *map(Value, slots), **symbols)
    assert [v.data for v in values] == list(floats)


@pytest.mark.parametrize("name", RICH)
def test_a_rule_keeps_nothing_to_itself(name):
    optimizer = rich(optim, name, [Value(0.0)])
    before = optimizer.state()
    optimizer.update(1.5, -0.7, *[0.0] * len(optimizer.slots), **optimizer.scalars())
    assert optimizer.state() == before


def test_plain_sgd_is_the_line_that_people_write_by_hand():
    w = Value(0.1)
    w.grad = 0.3
    optim.SGD([w], lr=0.7).step()
    assert w.data == 0.1 - 0.7 * 0.3


def test_without_momentum_an_infinite_gradient_leaves_no_trace():
    w = Value(1.0)
    optimizer = optim.SGD([w], lr=0.1)
    w.grad = math.inf
    optimizer.step()
    w.data, w.grad = 1.0, 1.0
    optimizer.step()
    assert w.data == 0.9


def test_a_zero_over_zero_is_nan_as_in_pytorch():
    w = Value(1.0)
    optim.Adam([w], eps=0.0).step()
    assert math.isnan(w.data)


def test_zero_grad_clears_every_gradient():
    parameters = [Value(1.0), Value(2.0)]
    (parameters[0] * parameters[1]).backward()
    optim.SGD(parameters, lr=0.1).zero_grad()
    assert [p.grad for p in parameters] == [0.0, 0.0]


def test_gradients_that_are_not_zeroed_add_up():
    w = Value(0.0)
    optimizer = optim.SGD([w], lr=0.0)
    for _ in range(3):
        (2.0 * w).backward()
        optimizer.step()
    assert w.grad == 6.0


def test_a_parameter_that_is_listed_twice_moves_once():
    w = Value(1.0)
    w.grad = 1.0
    optimizer = optim.SGD([w, w], lr=0.25)
    optimizer.step()
    assert (w.data, len(optimizer.parameters)) == (0.75, 1)


def test_parameters_may_come_from_a_generator():
    values = [Value(1.0), Value(2.0)]
    assert optim.SGD((v for v in values), lr=0.1).parameters == values


def test_a_changed_learning_rate_takes_effect_at_the_next_step():
    w = Value(1.0)
    w.grad = 1.0
    optimizer = optim.SGD([w], lr=0.5)
    optimizer.step()
    optimizer.lr = lambda step: 0.125 * (step + 1)
    optimizer.step()
    assert (w.data, optimizer.rate()) == (0.25, 0.375)


@pytest.mark.parametrize("name", RICH)
def test_an_optimizer_continues_from_a_saved_state_to_the_bit(name):
    schedule = optim.linear(0.02, 0.001, 20)
    whole = our_path(lambda p: rich(optim, name, p, lr=schedule), steps=20)

    parameters = [Value(x) for x in START]
    optimizer = rich(optim, name, parameters, lr=schedule)
    for k in range(20):
        if k == 7:
            parameters = [Value(p.data) for p in parameters]
            resumed = rich(optim, name, parameters, lr=schedule)
            resumed.load_state(optimizer.state())
            optimizer = resumed
        optimizer.zero_grad()
        problem(parameters, Value.sin, Value.tanh).backward()
        optimizer.step()
    assert [p.data for p in parameters] == whole[-1]


def test_a_state_is_plain_numbers_and_a_copy():
    w = Value(1.0)
    w.grad = 2.0
    optimizer = optim.Adam([w], betas=(0.5, 0.75))
    optimizer.step()
    state = optimizer.state()
    assert state == {"steps": 1, "m": [1.0], "v": [1.0]}
    state["m"][0] = 100.0
    assert optimizer.state()["m"] == [1.0]
    optimizer.load_state(state)
    state["m"][0] = 200.0
    assert optimizer.state()["m"] == [100.0]


def test_an_optimizer_shows_its_settings():
    text = repr(optim.AdamW([Value(1.0), Value(2.0)], lr=0.5))
    assert text == "AdamW(2 parameters, lr=0.5, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)"


class Nag(optim.Optimizer):
    slots = ("memory",)

    def update(self, data, grad, memory, *, lr):
        memory = 0.5 * memory + grad
        return data - lr * memory, memory


def test_a_new_optimizer_is_slots_and_a_rule():
    ours = our_path(lambda p: Nag(p, lr=0.01))
    theirs = torch_path(lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.5))
    assert_same_path(ours, theirs)


# A step over all parameters at once is the rule on each of them.

SPECIAL = [0.0, -0.0, 1.0, -2.5, 1e-300, 1e300, math.inf, -math.inf, math.nan]


def after_steps(make, gradients, steps=3, first=0.7):
    """The optimizer's parameters and memory, as text, after a few steps on the same gradients."""
    parameters = [Value(first + k) for k in range(len(gradients))]
    optimizer = make(parameters)
    for _ in range(steps):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return [[repr(p.data) for p in parameters], *[list(map(repr, column)) for column in optimizer.buffers.values()]]


def number_by_number(make):
    """The same optimizer, whose steps are the rule called with each parameter's numbers."""

    def slow(parameters):
        optimizer = make(parameters)
        optimizer._step_at_once = lambda *_: False
        return optimizer

    return slow


@pytest.mark.parametrize("name", RICH)
def test_a_step_is_the_rule_on_every_parameters_numbers_to_the_bit(name):
    gradients = [*SPECIAL[:-1], *[math.sin(k) for k in range(50)], *SPECIAL]
    at_once, slow = (
        after_steps(f(lambda p: rich(optim, name, p)), gradients) for f in (lambda make: make, number_by_number)
    )
    assert at_once == slow


class Branching(optim.Optimizer):
    def update(self, data, grad, *, lr):
        return (data - lr if grad > 0.0 else data + lr,)


class Plain(optim.Optimizer):
    def update(self, data, grad, *, lr):
        return (data - lr * math.copysign(1.0, grad),)


class Forgetful(optim.Optimizer):
    """Nine numbers of memory, which all become 1."""

    slots = tuple("abcdefghi")

    def update(self, data, grad, *memory, lr):
        return data - lr * grad, *[1.0 for _ in memory]


@pytest.mark.parametrize("kind", [Branching, Plain, Forgetful])
def test_a_rule_of_ones_own_is_called_with_numbers(kind):
    told = set()

    class Telling(kind):
        def update(self, *numbers, **scalars):
            told.update(map(type, numbers))
            return super().update(*numbers, **scalars)

    gradients = [1.0, -1.0, 2.0]
    assert after_steps(lambda p: Telling(p, lr=0.5), gradients) == after_steps(
        number_by_number(lambda p: kind(p, lr=0.5)), gradients
    )
    assert told == {float}


class Noisy(optim.Adam):
    """Adam whose steps are noisy from the third on."""

    def __init__(self, parameters, rng):
        super().__init__(parameters, lr=0.1)
        self.rng, self.calls = rng, 0

    def update(self, *numbers, **scalars):
        self.calls += 1
        data, *moments = super().update(*numbers, **scalars)
        return data + (self.rng.gauss(0.0, 0.1) if self.steps >= 2 else 0.0), *moments


class NoisyDescent(optim.AdamW):
    """Puts its noise where Adam computes."""

    def __init__(self, parameters, rng):
        super().__init__(parameters, lr=0.1)
        self.rng, self.calls = rng, 0

    def descend(self, data, *numbers):
        self.calls += 1
        return super().descend(data + self.rng.random(), *numbers)


@pytest.mark.parametrize("kind", [Noisy, NoisyDescent])
@pytest.mark.parametrize("count", [1, 100])
def test_a_rule_with_noise_is_called_once_for_every_parameter(kind, count):
    """So every engine draws the same numbers."""
    rng, made = random.Random(0), []

    def make(parameters):
        made.append(kind(parameters, rng))
        return made[-1]

    gradients = [math.sin(k) for k in range(count)]
    found = after_steps(make, gradients, steps=4)
    drawn, rng = rng.random(), random.Random(0)
    assert found == after_steps(number_by_number(make), gradients, steps=4)
    assert drawn == rng.random()
    assert [optimizer.calls for optimizer in made] == [4 * count, 4 * count]
    assert len(set(found[0])) == count


def test_a_rule_that_was_put_on_the_instance_is_called():
    v, w = Value(1.0), Value(2.0)
    optimizer = optim.SGD([v, w], lr=1.0)
    optimizer.update = lambda data, grad, velocity, *, lr: (data + 1.0, velocity)
    optimizer.step()
    assert (v.data, w.data) == (2.0, 3.0)


@pytest.mark.skipif(chainrule.ENGINE != "native", reason="about the native engine")
@pytest.mark.parametrize("name", RICH)
def test_a_rule_of_the_packages_own_is_asked_once_a_step(name, monkeypatch):
    optimizer = rich(optim, name, [Value(float(k)) for k in range(100)])
    calls, update = [], type(optimizer).update

    @functools.wraps(update)
    def counted(*given, **named):
        calls.append(1)
        return update(*given, **named)

    monkeypatch.setattr(type(optimizer), "update", counted)
    optimizer.step()
    optimizer.step()
    assert len(calls) == 2


def test_settings_may_change_between_steps():
    w = Value(0.0)
    optimizer = optim.SGD([w], lr=1.0, weight_decay=0.0)
    w.grad = 1.0
    optimizer.step()
    optimizer.weight_decay = 0.5
    optimizer.step()
    assert w.data == -1.0 - (1.0 + 0.5 * -1.0)


def test_steps_inside_no_grad_and_detect_anomaly():
    for block in (no_grad, detect_anomaly):
        v, w = Value(1.0), Value(2.0)
        v.grad = w.grad = 0.5
        with block():
            optim.Adam([v, w], lr=0.1).step()
        assert [v.data, w.data] == pytest.approx([0.9, 1.9], abs=1e-8)


# Schedules.


def torch_rates(scheduler, lr, steps):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    schedule = scheduler(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


ON = torch.optim.lr_scheduler
SCHEDULES = [
    (optim.constant(0.3), 0.3, lambda o: ON.LambdaLR(o, lambda step: 1.0)),
    (optim.linear(0.2, 0.05, 30), 0.2, lambda o: ON.LinearLR(o, 1.0, 0.25, 30)),
    (optim.linear(0.05, 0.2, 30), 0.2, lambda o: ON.LinearLR(o, 0.25, 1.0, 30)),
    (optim.step_decay(0.3, 7, 0.5), 0.3, lambda o: ON.StepLR(o, 7, 0.5)),
    (optim.step_decay(0.3, 7), 0.3, lambda o: ON.StepLR(o, 7)),
    (optim.exponential(0.3, 0.97), 0.3, lambda o: ON.ExponentialLR(o, 0.97)),
    (optim.cosine(0.3, 0.01, 51), 0.3, lambda o: ON.CosineAnnealingLR(o, 51, eta_min=0.01)),
    (optim.warmup(optim.constant(0.3), 10), 0.3, lambda o: ON.LinearLR(o, 0.1, 1.0, 9)),
    (optim.warmup(0.3, 10), 0.3, lambda o: ON.LinearLR(o, 0.1, 1.0, 9)),
]


@pytest.mark.parametrize(("ours", "lr", "theirs"), SCHEDULES)
def test_a_schedule_gives_the_rates_of_pytorch(ours, lr, theirs):
    rates = [ours(step) for step in range(50)]
    assert rates == pytest.approx(torch_rates(theirs, lr, 50), rel=1e-12, abs=1e-12)


def test_a_warmup_is_followed_by_the_whole_schedule():
    after = optim.cosine(0.4, 0.0, 10)
    schedule = optim.warmup(after, 4)
    assert [schedule(step) for step in range(4)] == [0.1, 0.2, pytest.approx(0.3), 0.4]
    assert [schedule(step) for step in range(4, 20)] == [after(step) for step in range(16)]


def test_a_linear_schedule_is_the_one_of_micrograds_demo_to_the_bit():
    schedule = optim.linear(1.0, 0.1, 100)
    assert [schedule(k) for k in range(100)] == [1.0 - 0.9 * k / 100 for k in range(100)]


@pytest.mark.parametrize("schedule", [optim.linear(0.3, 0.1, 7), optim.cosine(0.3, 0.1, 7)])
def test_a_schedule_stays_at_its_end(schedule):
    assert [schedule(7), schedule(8), schedule(1000)] == [0.1, 0.1, 0.1]


# Clipping.


def with_gradients(gradients):
    ours = [Value(0.0) for _ in gradients]
    theirs = [torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in gradients]
    for p, q, g in zip(ours, theirs, gradients, strict=True):
        p.grad, q.grad = g, torch.tensor(g, dtype=torch.float64)
    return ours, theirs


GRADIENTS = [[3.0, -4.0], [0.1, 0.2, -0.3], [0.0, 0.0], [1e150, 1.0], [5.0], [math.nan, 1.0], [math.inf, 1.0]]


@pytest.mark.parametrize("gradients", GRADIENTS)
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 5.0, 1e3, math.inf])
def test_clipping_by_norm_is_that_of_pytorch(gradients, max_norm):
    ours, theirs = with_gradients(gradients)
    norm = optim.clip_grad_norm(ours, max_norm)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm).item()
    assert norm == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert [p.grad for p in ours] == pytest.approx([q.grad.item() for q in theirs], rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("gradients", GRADIENTS)
@pytest.mark.parametrize("limit", [0.0, 0.5, 3.0, math.inf])
def test_clipping_by_value_is_that_of_pytorch(gradients, limit):
    ours, theirs = with_gradients(gradients)
    optim.clip_grad_value(ours, limit)
    torch.nn.utils.clip_grad_value_(theirs, limit)
    assert [p.grad for p in ours] == pytest.approx([q.grad.item() for q in theirs], rel=1e-12, nan_ok=True)


def test_the_norm_of_huge_gradients_does_not_overflow():
    ours, _ = with_gradients([3e200, 4e200])
    assert optim.clip_grad_norm(ours, 1.0) == pytest.approx(5e200)
    assert [p.grad for p in ours] == pytest.approx([0.6, 0.8])


# Mistakes.

W = Value(1.0)
MOMENTUM_STATE = {"steps": 1, "velocity": [0.0]}
MISTAKES = [
    (lambda: optim.SGD(W, lr=0.1), TypeError,
     "`parameters` must be Values, got one Value: give a list of Values, such as model.parameters()"),
    (lambda: optim.SGD([W, 2.0], lr=0.1), TypeError,
     "`parameters` must be Values, got a float among them: give a list of Values, such as model.parameters()"),
    (lambda: optim.SGD([[W]], lr=0.1), TypeError,
     "`parameters` must be Values, got a list among them: give a list of Values, such as model.parameters()"),
    (lambda: optim.SGD([], lr=0.1), ValueError,
     "`parameters` is empty: give a list of Values, such as model.parameters()"),
    (lambda: optim.SGD([W], lr=-0.1), ValueError,
     "`lr` must be at least 0 and finite, got -0.1: choose one such as 0.01, or a schedule of such"),
    (lambda: optim.SGD([W], lr=lambda step: math.nan), ValueError,
     "`lr` must be at least 0 and finite, got nan: choose one such as 0.01, or a schedule of such"),
    (lambda: optim.SGD([W], lr="fast"), TypeError,
     "`lr` must be a real number, got str 'fast': convert the text with float(...) first"),
    (lambda: optim.SGD([W], lr=0.1, momentum=-1), ValueError,
     "`momentum` must be at least 0 and below 1, got -1.0: choose one such as 0.9"),
    (lambda: optim.SGD([W], lr=0.1, momentum=2), ValueError,
     "`momentum` must be at least 0 and below 1, got 2.0: choose one such as 0.9"),
    (lambda: optim.RMSprop([W], momentum=1.0), ValueError,
     "`momentum` must be at least 0 and below 1, got 1.0: choose one such as 0.9"),
    (lambda: optim.SGD([W], lr=0.1, weight_decay=-1), ValueError,
     "`weight_decay` must be at least 0 and finite, got -1.0: choose one such as 0.0001"),
    (lambda: optim.SGD([W], lr=0.1, nesterov=True), ValueError,
     "`nesterov` looks ahead along the momentum, and `momentum` is 0: choose one such as 0.9"),
    (lambda: optim.Adam([W], betas=0.9), TypeError,
     "`betas` must be two numbers, got 0.9: choose a pair such as (0.9, 0.999)"),
    (lambda: optim.Adam([W], betas=(1.0, 0.9)), ValueError,
     "`betas[0]` must be at least 0 and below 1, got 1.0: choose one such as 0.9"),
    (lambda: optim.AdamW([W], betas=(0.9, -1)), ValueError,
     "`betas[1]` must be at least 0 and below 1, got -1.0: choose one such as 0.999"),
    (lambda: optim.Adam([W], eps=-1), ValueError,
     "`eps` must be at least 0 and finite, got -1.0: choose one such as 1e-8"),
    (lambda: optim.AdamW([W], weight_decay=-1), ValueError,
     "`weight_decay` must be at least 0 and finite, got -1.0: choose one such as 0.01"),
    (lambda: optim.RMSprop([W], alpha=1.5), ValueError,
     "`alpha` must be at least 0 and below 1, got 1.5: choose one such as 0.99"),
    (lambda: optim.Optimizer([W], lr=0.1).step(), NotImplementedError,
     "Optimizer has no rule: define `update(self, data, grad, *slots, lr)`"),
    (lambda: optim.Adam([W]).load_state(MOMENTUM_STATE), ValueError,
     "`state` must hold ['m', 'steps', 'v'] to suit Adam, got ['steps', 'velocity']: "
     "load it into the kind of optimizer that it came from"),
    (lambda: optim.SGD([W, Value(2.0)], lr=0.1).load_state(MOMENTUM_STATE), ValueError,
     "`state` has 1 number in 'velocity' for 2 parameters: "
     "load it into an optimizer of the model that it came from"),
    (lambda: optim.SGD([W], lr=0.1).load_state({"steps": -1, "velocity": [0.0]}), ValueError,
     "`steps` must be an int of at least 0, got -1"),
    (lambda: optim.constant(-1), ValueError,
     "`lr` must be at least 0 and finite, got -1.0: choose one such as 0.01"),
    (lambda: optim.linear(-1, 0, 10), ValueError,
     "`start` must be at least 0 and finite, got -1.0: choose one such as 0.1"),
    (lambda: optim.cosine(1, -1, 10), ValueError,
     "`end` must be at least 0 and finite, got -1.0: choose one such as 0.01"),
    (lambda: optim.linear(1, 0, 0), ValueError,
     "`steps` must be an int of at least 1, got 0"),
    (lambda: optim.cosine(1, 0, 2.5), ValueError,
     "`steps` must be an int of at least 1, got 2.5"),
    (lambda: optim.warmup(0.1, 0), ValueError,
     "`steps` must be an int of at least 1, got 0"),
    (lambda: optim.step_decay(1, 0), ValueError,
     "`every` must be an int of at least 1, got 0"),
    (lambda: optim.exponential(1, -1), ValueError,
     "`factor` must be at least 0 and finite, got -1.0: choose one such as 0.1"),
    (lambda: optim.clip_grad_norm([W], -1), ValueError,
     "`max_norm` must be at least 0, got -1.0: choose one such as 1.0"),
    (lambda: optim.clip_grad_value([W], math.nan), ValueError,
     "`limit` must be at least 0, got nan: choose one such as 1.0"),
    (lambda: optim.clip_grad_norm(W, 1.0), TypeError,
     "`parameters` must be Values, got one Value: give a list of Values, such as model.parameters()"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES)
def test_a_mistake_is_named_in_a_sentence(mistake, kind, message):
    with pytest.raises(kind) as caught:
        mistake()
    assert str(caught.value) == message


def test_a_schedule_may_end_at_0():
    w = Value(1.0)
    w.grad = 1.0
    optimizer = optim.SGD([w], lr=optim.linear(0.25, 0.0, steps=1))
    optimizer.step()
    optimizer.step()
    assert w.data == 0.75


def test_a_schedule_that_goes_wrong_later_stops_before_any_parameter_moves():
    w = Value(1.0)
    w.grad = 1.0
    optimizer = optim.SGD([w], lr=lambda step: 0.25 - step)
    optimizer.step()
    with pytest.raises(ValueError, match="`lr` must be at least 0 and finite"):
        optimizer.step()
    assert (w.data, optimizer.steps) == (0.75, 1)
