"""The coefficients in `compiler/backends/llvm/kernels.py`: minimax polynomials, by Remez's exchange in 60 digits.

A kernel needs p with the smallest largest value of |weight·(f - p)| on an interval. Remez: on degree + 2 points solve
for the p whose weighted error is ±e in turn; move the points to where the error is largest; repeat. What is printed is
rounded to doubles, with the largest error (relative to the function computed) as a power of two.

    python tools/fit_kernels.py
"""

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 60
Function = Callable[[mp.mpf], mp.mpf]


def minimax(f: Function, weight: Function, low: mp.mpf, high: mp.mpf, degree: int) -> tuple[list[float], mp.mpf]:
    """Coefficients, constant first, and the largest weighted error with them rounded to doubles."""
    count = degree + 2
    grid = [low + (high - low) * (1 - mp.cos(mp.pi * k / 1200)) / 2 for k in range(1201)]
    grid = [x for x in grid if x != 0]  # f may be 0/0 there
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
    rounded = [float(c) for c in coefficients]
    worst = max(
        abs(w * (y - mp.polyval([mp.mpf(c) for c in rounded[::-1]], x)))
        for x, y, w in zip(grid, values, weights, strict=True)
    )
    return rounded, worst


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


def fits() -> dict[str, tuple[list[float], mp.mpf]]:
    """Every polynomial of the kernels."""
    half = mp.log(2) / 2 * mp.mpf("1.0001")  # a little more than rounding leaves
    quarter = mp.pi / 4 * mp.mpf("1.002")  # the quadrant is found with an error where x is large
    s = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)  # f / (2 + f) at the ends of √½ … √2
    return {
        "EXP": minimax(lambda r: (mp.expm1(r) - r) / r**2, lambda r: abs(r**2 / mp.expm1(r)), -half, half, 10),
        "LOG": minimax(
            _of_square(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3),
            _of_square(lambda s: s**3 / (2 * mp.atanh(s))),
            mp.mpf(0), s**2 * mp.mpf("1.0001"), 6,
        ),
        "SIN": minimax(
            _of_square(lambda r: (mp.sin(r) - r) / r**3),
            _of_square(lambda r: r**3 / mp.sin(r)),
            mp.mpf(0), quarter**2, 5,
        ),
        "COS": minimax(
            _of_square(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4),
            _of_square(lambda r: r**4 / mp.cos(r)),
            mp.mpf(0), quarter**2, 5,
        ),
    }  # fmt: skip


def log2_parts() -> list[float]:
    """log 2 cut to 42 bits, and the rest."""
    high = mp.floor(mp.log(2) * 2**42) / 2**42
    return [float(high), float(mp.log(2) - high)]


def parts(number: mp.mpf, count: int) -> list[float]:
    """`number` as a sum of so many doubles, each the nearest to what remains."""
    found: list[float] = []
    for _ in range(count):
        found.append(float(number - sum(map(mp.mpf, found))))
    return found


if __name__ == "__main__":
    for name, (coefficients, worst) in fits().items():
        print(f"{name} = (  # error 2^{float(mp.log(worst, 2)):.1f}")
        print("".join(f"    {c!r},\n" for c in coefficients) + ")")
    print(f"HALF_PI = {parts(mp.pi / 2, 3)}\nLOG2 = {log2_parts()}")
