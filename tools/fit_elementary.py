"""The tables and fitted polynomials in `wasm/elementary/`, in 60 digits; the other coefficients are Taylor's.

A value that two numbers share is cut so that products of the first with other short numbers are exact.

    python tools/fit_elementary.py
"""

import math
import textwrap

import mpmath as mp
from fit_kernels import Function, minimax, parts

CHUNK = 24  # bits of 32/π in a number
CHUNKS = 50  # enough for 53 bits of 2^1023: 41 chunks of it are whole turns, nine are the angle


def cut(number: mp.mpf, unit: mp.mpf) -> tuple[float, float]:
    """The nearest multiple of a unit, and the rest."""
    high = mp.nint(number / unit) * unit
    return float(high), float(number - high)


def short(number: mp.mpf, bits: int = 26) -> tuple[float, float]:
    """The first bits, and the rest."""
    return cut(number, mp.ldexp(1, math.frexp(float(number))[1] - bits)) if number else (0.0, 0.0)


def pair(number: mp.mpf) -> tuple[float, float]:
    """The nearest float, and the rest."""
    high, low = parts(number, 2, "float64")
    return high, low


def in_parts(number: mp.mpf, bits: int, count: int) -> list[float]:
    """Numbers of so many bits, and a last one, whose sum is the number: a bit less at first, never more."""
    found = []
    for _ in range(count - 1):
        unit = mp.ldexp(1, math.frexp(float(number))[1] - bits)
        found.append(float(mp.floor(number / unit) * unit))
        number -= found[-1]
    return [*found, float(number)]


PAIRS = {"ERF": 2, "ERFC_NEAR": 1, "ERFC_FAR": 1}  # so many coefficients are in two numbers


def fits() -> dict[str, tuple[list[mp.mpf], mp.mpf]]:
    """Coefficients before rounding, and the largest relative error."""
    return {
        "ERF": relative_fit(lambda t: mp.erf(t + 0.5), -0.25, 0.25, 14),
        "ERFC_NEAR": relative_fit(erfc_over_exp, place(0.75), place(4.0), 17),
        "ERFC_FAR": relative_fit(lambda t: erfc_over_exp(t + 0.625), place(4.0) - 0.625, place(27.3) - 0.625, 16),
    }


def relative_fit(f: Function, low: float, high: float, degree: int) -> tuple[list[mp.mpf], mp.mpf]:
    return minimax(f, lambda x: 1 / f(x), mp.mpf(low), mp.mpf(high), degree, "exact")


def place(x: float) -> float:
    return (x - 2.0) / (x + 2.0)


def erfc_over_exp(t: mp.mpf) -> mp.mpf:
    """(1 + 2x)·exp(x²)·erfc(x), which hardly changes, for t = (x - 2) / (x + 2)."""
    x = 2 * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


@mp.workdps(60)
def constants() -> dict[str, float | tuple[float, ...]]:
    """All of them by name."""
    tables = {
        "EXP2": [short(mp.power(2, mp.mpf(j) / 32)) for j in range(32)],
        "LOG": [cut(-mp.log(mp.mpf(j) / 64), mp.ldexp(1, -42)) for j in range(43, 86)],
        "SIN": [short(mp.sin(mp.pi * j / 32)) for j in range(17)],
        "ATAN": [pair(mp.atan(mp.mpf(j) / 16)) for j in range(17)],
    }
    found: dict[str, float | tuple[float, ...]] = {}
    for name, rows in tables.items():
        found[f"{name}_TABLE"], found[f"{name}_TABLE_REST"] = zip(*rows, strict=True)
    found["LOG_2_SHORT"], found["LOG_2_SHORT_REST"] = cut(mp.log(2), mp.ldexp(1, -42))
    found["EXP_STEP"], found["EXP_STEP_REST"] = short(mp.log(2) / 32, 37)
    for i, part in enumerate(in_parts(mp.pi / 32, 33, 4)):
        found[f"STEP_{i + 1}"] = part
    pairs = {"STEP": mp.pi / 32, "HALF_PI": mp.pi / 2, "LOG_2": mp.log(2), "ONE_OVER_LOG_2": 1 / mp.log(2)}
    pairs |= {"ONE_OVER_LOG_10": 1 / mp.log(10), "TWO_OVER_SQRT_PI": 2 / mp.sqrt(mp.pi)}
    for name, number in pairs.items():
        found[name], found[f"{name}_REST"] = pair(number)
    with mp.workprec(CHUNK * CHUNKS + 40):
        whole = [int(mp.floor(mp.ldexp(32 / mp.pi, CHUNK * i))) for i in range(CHUNKS)]
    found["STEPS_PER_RADIAN"] = tuple(float(number % 2**CHUNK) for number in whole)
    found["EXP_STEPS"] = float(32 / mp.log(2))
    for name, (coefficients, _) in fits().items():
        for i in range(PAIRS[name]):
            found[f"{name}_{i}"], found[f"{name}_{i}_REST"] = pair(coefficients[i])
        found[f"{name}_HIGHER"] = tuple(map(float, coefficients[PAIRS[name] :]))
    return found


def spelled(name: str, numbers: float | tuple[float, ...]) -> str:
    if isinstance(numbers, float):
        return f"{name} = {numbers!r}"
    lines = textwrap.wrap(", ".join(map(repr, numbers)), width=116)
    return f"{name} = (\n" + "".join(f"    {line}\n" for line in lines) + ")"


if __name__ == "__main__":
    for name, numbers in constants().items():
        print(spelled(name, numbers))
    for name, (_, worst) in fits().items():
        print(f"# {name}: error 2^{float(mp.log(worst, 2)):.1f}")
