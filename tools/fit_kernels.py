"""The coefficients in `compiler/backends/llvm/formats.py`: minimax polynomials, by Remez's exchange in 60 digits.

A kernel needs p with the smallest largest value of |weight·(f - p)| on an interval. Remez: on degree + 2 points solve
for the p whose weighted error is ±e in turn; move the points to where the error is largest; repeat. What is printed is
rounded to doubles or to floats, with the largest error (relative to the function computed) as a power of two.

    python tools/fit_kernels.py
"""

import struct
from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 60
Function = Callable[[mp.mpf], mp.mpf]
Fit = tuple[list[float], mp.mpf]  # coefficients, constant first, and the largest error
FORMATS = ("float64", "float32")


def rounded(number: mp.mpf, dtype: str) -> mp.mpf:
    """The nearest number of that type; "exact" is the number itself, for coefficients of more than one part."""
    if dtype == "exact":
        return number
    return float(number) if dtype == "float64" else struct.unpack("<f", struct.pack("<f", float(number)))[0]


def minimax(
    f: Function, weight: Function, low: mp.mpf, high: mp.mpf, degree: int, dtype: str, steps: int = 1200
) -> Fit:
    """Coefficients, constant first, and the largest weighted error with them rounded."""
    count = degree + 2
    grid = [low + (high - low) * (1 - mp.cos(mp.pi * k / steps)) / 2 for k in range(steps + 1)]
    grid = [x for x in grid if abs(x) > high / 10**9]  # f may be 0/0 at zero
    values, weights = [f(x) for x in grid], [weight(x) for x in grid]
    points = [len(grid) * (2 * k + 1) // (2 * count) for k in range(count)]
    coefficients: list[mp.mpf] = []
    for _ in range(12):
        rows = mp.matrix([[grid[i] ** d for d in range(degree + 1)] + [(-1) ** k / weights[i]]
                          for k, i in enumerate(points)])  # fmt: skip
        coefficients = list(mp.lu_solve(rows, mp.matrix([values[i] for i in points])))[:-1]
        errors = [w * (y - mp.polyval(coefficients[::-1], x)) for x, y, w in zip(grid, values, weights, strict=True)]
        found = _peaks(errors)
        if len(found) < count or found == points:
            break
        points = found[:count] if abs(errors[found[0]]) > abs(errors[found[-1]]) else found[-count:]
    numbers = [rounded(c, dtype) for c in coefficients]
    worst = max(
        abs(w * (y - mp.polyval([mp.mpf(c) for c in numbers[::-1]], x)))
        for x, y, w in zip(grid, values, weights, strict=True)
    )
    return numbers, worst


def _peaks(errors: list[mp.mpf]) -> list[int]:
    """Where each run of one sign has its largest error."""
    peaks = [0]
    for i, error in enumerate(errors):
        if error * errors[peaks[-1]] < 0:
            peaks.append(i)
        elif abs(error) > abs(errors[peaks[-1]]):
            peaks[-1] = i
    return peaks


def _of_square(f: Function) -> Function:
    """An even function of x, as a function of z = x²."""
    return lambda z: f(mp.sqrt(z))


def fits(dtype: str) -> dict[str, Fit]:
    """Every polynomial of the kernels."""
    half = mp.log(2) / 2 * mp.mpf("1.0001")  # a little more than rounding leaves
    quarter = mp.pi / 4 * mp.mpf("1.002")  # the quadrant is found with an error where x is large
    s = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)  # f / (2 + f) at the ends of √½ … √2
    degrees = dict(
        zip(("exp", "log", "sin", "cos"), (10, 6, 5, 5) if dtype == "float64" else (5, 2, 2, 2), strict=True)
    )
    return {
        "exp": minimax(
            lambda r: (mp.expm1(r) - r) / r**2,
            lambda r: abs(r**2 / mp.expm1(r)),
            -half, half, degrees["exp"], dtype,
        ),
        "log": minimax(
            _of_square(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3),
            _of_square(lambda s: s**3 / (2 * mp.atanh(s))),
            mp.mpf(0), s**2 * mp.mpf("1.0001"), degrees["log"], dtype,
        ),
        "sin": minimax(
            _of_square(lambda r: (mp.sin(r) - r) / r**3),
            _of_square(lambda r: r**3 / mp.sin(r)),
            mp.mpf(0), quarter**2, degrees["sin"], dtype,
        ),
        "cos": minimax(
            _of_square(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4),
            _of_square(lambda r: r**4 / mp.cos(r)),
            mp.mpf(0), quarter**2, degrees["cos"], dtype,
        ),
    }  # fmt: skip


def log2_parts(dtype: str) -> list[float]:
    """log 2 cut so short that its product with an exponent is exact, and the rest."""
    bits = 42 if dtype == "float64" else 16
    high = mp.floor(mp.log(2) * 2**bits) / 2**bits
    return [float(high), rounded(mp.log(2) - high, dtype)]


def parts(number: mp.mpf, count: int, dtype: str) -> list[float]:
    """`number` as a sum of so many numbers of that type, each the nearest to what remains."""
    found: list[float] = []
    for _ in range(count):
        found.append(rounded(number - sum(map(mp.mpf, found)), dtype))
    return found


def _first_in_two(fit: Fit) -> Fit:
    """A fit in floats, whose constant is the sum of two."""
    (first, *others), worst = fit
    return [*parts(first, 2, "float32"), *[rounded(number, "float32") for number in others]], worst


def single_fits() -> dict[str, Fit]:
    """The polynomials of functions that have kernels for floats only."""

    def fit(f: Function, weight: Function, low: mp.mpf, high: mp.mpf, degree: int, dtype: str = "float32") -> Fit:
        return minimax(f, weight, low, high, degree, dtype, steps=300)

    def odd(f: Function, high: mp.mpf, degree: int) -> Fit:
        """(f(x) - x) / x³ in x²."""
        value = _of_square(lambda x: (f(x) - x) / x**3)
        return fit(value, _of_square(lambda x: abs(x**3 / f(x))), mp.mpf(0), high**2, degree)

    def scaled_erfc(t: mp.mpf) -> mp.mpf:
        """(1 + 2x)·exp(x²)·erfc(x) with t = (x - 4) / (x + 4)."""
        x = 4 * (1 + t) / (1 - t)
        return (1 + 2 * x) * mp.exp(x**2) * mp.erfc(x)

    def place(x: str) -> mp.mpf:
        return (mp.mpf(x) - 4) / (mp.mpf(x) + 4)

    s, half = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1), mp.mpf("0.5")
    return {
        "exp2": fit(
            lambda r: mp.expm1(r * mp.log(2)) / r,
            lambda r: abs(r) / mp.power(2, r),
            -half * mp.mpf("1.0001"), half * mp.mpf("1.0001"), 6,
        ),
        "sinh": odd(mp.sinh, mp.mpf(1), 3),
        "artanh": fit(
            _of_square(lambda s: (mp.atanh(s) - s - s**3 / 3) / s**5),
            _of_square(lambda s: s**5 / mp.atanh(s)),
            mp.mpf(0), s**2 * mp.mpf("1.0001"), 2,
        ),
        "asinh": odd(mp.asinh, half, 5),
        "tan": odd(mp.tan, mp.pi / 4 * mp.mpf("1.002"), 6),
        "atan": odd(mp.atan, mp.mpf(1), 8),
        "asin": odd(mp.asin, half, 4),
        "erf": fit(
            _of_square(lambda x: mp.erf(x) / x - 1),
            _of_square(lambda x: x / mp.erf(x)),
            mp.mpf(0), mp.mpf("0.9") ** 2, 6,
        ),
        "log_erfc": fit(
            lambda x: mp.log(mp.erfc(x)),
            lambda x: mp.erfc(x) / mp.erf(x),
            mp.mpf("0.9"), mp.mpf(4), 8,
        ),
        "erfc": _first_in_two(
            fit(scaled_erfc, lambda t: 1 / scaled_erfc(t), place("0.47"), place("10.5"), 10, "exact"),
        ),
    }  # fmt: skip


def single_parts() -> dict[str, list[float]]:
    """The constants of those kernels in two parts."""
    short = mp.floor(mp.log10(2) * 2**16) / 2**16
    return {
        "third": parts(mp.mpf(1) / 3, 2, "float32"),
        "per_log2": parts(1 / mp.log(2), 2, "float32"),
        "per_log10": parts(1 / mp.log(10), 2, "float32"),
        "log10_of_2": [float(short), rounded(mp.log10(2) - short, "float32")],
    }


if __name__ == "__main__":
    for dtype in FORMATS:
        print(dtype)
        found = fits(dtype) | (single_fits() if dtype == "float32" else {})
        for name, (coefficients, worst) in found.items():
            print(f"{name}=(  # error 2^{float(mp.log(worst, 2)):.1f}")
            print("".join(f"    {c!r},\n" for c in coefficients) + "),")
        print(f"half_pi={tuple(parts(mp.pi / 2, 3, dtype))},\nlog2={tuple(log2_parts(dtype))},")
    print("".join(f"{name}={tuple(numbers)},\n" for name, numbers in single_parts().items()), end="")
