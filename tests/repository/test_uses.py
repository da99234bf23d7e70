"""The uses shown in examples/ against closed forms, SciPy, scikit-learn and PyTorch."""

import math
import random
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from sklearn.linear_model import LogisticRegression

from chainrule import data, nn
from scripts import load

digits, greeks, logistic, predators = (load(name) for name in ("digits", "greeks", "logistic", "predators"))


@pytest.fixture
def market():
    return greeks.Market(spot=100.0, volatility=0.2, rate=0.03, years=1.0)


def textbook_greeks(spot, volatility, rate, years, strike):
    normal, width = NormalDist(), volatility * math.sqrt(years)
    above = (math.log(spot / strike) + (rate + volatility**2 / 2) * years) / width
    below = above - width
    discounted = strike * math.exp(-rate * years)
    return {
        "price": spot * normal.cdf(above) - discounted * normal.cdf(below),
        "delta": normal.cdf(above),
        "vega": spot * normal.pdf(above) * math.sqrt(years),
        "rho": years * discounted * normal.cdf(below),
        "theta": -spot * normal.pdf(above) * volatility / (2 * math.sqrt(years))
        - rate * discounted * normal.cdf(below),
    }


def test_the_derivatives_of_the_closed_form_are_the_textbook_greeks(market):
    expected = textbook_greeks(100.0, 0.2, 0.03, 1.0, greeks.STRIKE)
    assert {name: number for name, (number, _) in greeks.exact(market).items()} == pytest.approx(expected, rel=1e-12)


def test_simulated_greeks_are_the_closed_forms_within_their_errors(market):
    shocks = np.random.default_rng(0).standard_normal((greeks.PATHS, greeks.DATES))
    found = greeks.simulated(greeks.european, market, shocks)
    for name, exact in textbook_greeks(100.0, 0.2, 0.03, 1.0, greeks.STRIKE).items():
        number, error = found[name]
        assert abs(number - exact) < 4 * error, name
        assert error < 0.01 * abs(exact), name


@pytest.mark.parametrize("kind", ["european", "asian"])
def test_greeks_through_paths_are_those_of_pytorch(market, kind):
    shocks = np.random.default_rng(1).standard_normal((1000, greeks.DATES))
    spot, volatility, rate, years = inputs = torch.tensor(
        [100.0, 0.2, 0.03, 1.0], dtype=torch.float64, requires_grad=True
    )
    step = years / greeks.DATES
    moves = (rate - volatility**2 / 2) * step + volatility * step.sqrt() * torch.tensor(shocks)
    prices = spot * moves.cumsum(1).exp()
    price = prices[:, -1] if kind == "european" else prices.mean(1)
    worth = ((-rate * years).exp() * (price - greeks.STRIKE).relu()).mean()
    worth.backward()
    delta, vega, rho, by_years = inputs.grad.tolist()
    expected = {"price": worth.item(), "delta": delta, "vega": vega, "rho": rho, "theta": -by_years}
    found = greeks.simulated(getattr(greeks, kind), market, shocks)
    assert {name: number for name, (number, _) in found.items()} == pytest.approx(expected, rel=1e-11)


def integrated(rates):
    """By SciPy, to about ten digits."""
    birth, hunt, growth, death = rates
    moments = predators.STEP * predators.STEPS * np.arange(1, predators.MOMENTS + 1)

    def change(_, state):
        return [(birth - hunt * state[1]) * state[0], (growth * state[0] - death) * state[1]]

    solution = solve_ivp(change, (0.0, moments[-1]), predators.START, "DOP853", moments, rtol=1e-11, atol=1e-11)
    return solution.y.T


def test_the_runge_kutta_loop_solves_the_equation():
    np.testing.assert_allclose(
        predators.trajectory(list(predators.TRUE.values())), integrated(predators.TRUE.values()), rtol=1e-4
    )


def test_the_gradient_through_the_loop_is_that_of_the_equation():
    """Central differences of SciPy's solution, by the logarithms of the rates."""
    observed = integrated(predators.TRUE.values()).tolist()
    guess = np.array([0.8, 0.3, 0.15, 0.6])
    rates = predators.Rates(guess)
    rates.loss(observed).backward()

    def loss(k, h):
        moved = guess * np.exp(h * np.eye(4)[k])
        return np.mean(np.log(integrated(moved) / observed) ** 2)

    differences = [(loss(k, 1e-5) - loss(k, -1e-5)) / 2e-5 for k in range(4)]
    assert [value.grad for value in rates.logarithms] == pytest.approx(differences, rel=1e-4)


@pytest.mark.slow
def test_the_rates_behind_exact_data_are_found():
    rates = predators.Rates([0.8, 0.3, 0.15, 0.6])
    predators.fit(rates, integrated(predators.TRUE.values()).tolist())
    assert rates.found() == pytest.approx(predators.TRUE, rel=1e-4)


def test_rates_found_from_noisy_data_are_near():
    observed = predators.counted(random.Random(3))
    rates = predators.Rates(list(predators.TRUE.values()))
    history = predators.fit(rates, observed, steps=300)
    assert history[-1] ** 0.5 < predators.NOISE
    assert rates.found() == pytest.approx(predators.TRUE, rel=0.05)


def test_logistic_regression_finds_the_coefficients_of_scikit_learn():
    table = data.read_csv(logistic.SEEDS)
    regression = logistic.Regression(table)
    regression.fit()
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(table.inputs, table.targets)
    expected = [*oracle.coef_[0], oracle.intercept_[0]]
    assert list(regression.coefficients().values()) == pytest.approx(expected, rel=1e-5)
    assert regression.accuracy() == oracle.score(table.inputs, table.targets)


def test_logistic_regression_refuses_what_it_cannot_use():
    with pytest.raises(
        ValueError, match=r"'kind' must have two classes, got \['a', 'b', 'c'\]: name a column that has"
    ):
        logistic.Regression(data.CsvDataset([[1.0], [2.0], [3.0]], [0, 1, 2], ["x"], "kind", ["a", "b", "c"]))
    with pytest.raises(ValueError, match="column 'y' is the same in every row and tells nothing: leave it out"):
        logistic.Regression(data.CsvDataset([[1.0, 5.0], [2.0, 5.0]], [0, 1], ["x", "y"], "kind", ["a", "b"]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_digits_are_read(seed):
    pixels, labels, test_pixels, test_labels = digits.images()
    model = nn.MLP(64, [32, 10], init="he", rng=seed)
    history = digits.train(model, pixels, labels)
    assert history[-1] < 0.1 < history[0]
    answers = digits.read(model, test_pixels)
    assert np.mean(answers == test_labels) >= 0.95
    assert [digits.losses.argmax(model(image)) for image in test_pixels[:20]] == answers[:20].tolist()


def test_a_digit_is_drawn():
    assert digits.drawn(np.linspace(0.0, 1.0, 64)).splitlines()[-1] == "██" * 8
