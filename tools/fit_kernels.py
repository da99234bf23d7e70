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
FORMATS = ("float64", "float32")


def rounded(number: mp.mpf, dtype: str) -> mp.mpf:
    """The nearest number of that type; "exact" is the number itself, for coefficients of more than one part."""
    if dtype == "exact":
        return number
    return float(number) if dtype == "float64" else struct.unpack("<f", struct.pack("<f", float(number)))[0]


def minimax(
    f: Function, weight: Function, low: mp.mpf, high: mp.mpf, degree: int, dtype: str
) -> tuple[list[float], mp.mpf]:
    """Coefficients, constant first, and the largest weighted error with them rounded."""
    count = degree + 2
    grid = [low + (high - low) * (1 - mp.cos(mp.pi * k / 1200)) / 2 for k in range(1201)]
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


def fits(dtype: str) -> dict[str, tuple[list[float], mp.mpf]]:
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


if __name__ == "__main__":
    for dtype in FORMATS:
        print(dtype)
        for name, (coefficients, worst) in fits(dtype).items():
            print(f"{name}=(  # error 2^{float(mp.log(worst, 2)):.1f}")
            print("".join(f"    {c!r},\n" for c in coefficients) + "),")
        print(f"half_pi={tuple(parts(mp.pi / 2, 3, dtype))},\nlog2={tuple(log2_parts(dtype))},")
