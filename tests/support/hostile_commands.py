"""Command lines as an enemy, or a finger that slipped, would type them; and what must hold of every command."""

import contextlib
import io

from hypothesis import strategies as st

from chainrule.cli import main
from hostile_texts import ATTACKS

# fmt: off
SIZES = [
    "0", "1", "2", "-1", "007", "1.5", "1e3", "99999999999", "9" * 30, "9" * 5000, "0" * 5000 + "1", "²", "٣", "nan",
    "inf", "-inf", "1e400", "1e308", "1e-320", "", " ", "0x10", "1_0", "1,", ",", "1,1", "16,x", "2000,2000",
    "1," * 10_000, "\x1b[2J", "\x1b]0;owned\x07" * 1000, "\u202e1", "\ud800", "x" * 10_000, "--steps", "tanh",
]
SETTINGS = [
    "--hidden", "--points", "--steps", "--seed", "--noise", "--l2", "--lr", "--test", "--target", "--task",
    "--activation", "--optimizer",
]
SOURCES = ["xor", "moons", "circles", "spirals", "four-points"]
# fmt: on


@st.composite
def trainings(draw):
    """`chainrule train` with sizes that are small, absurd, or no sizes at all."""
    settings = draw(st.lists(st.sampled_from(SETTINGS), max_size=3, unique=True))
    few = [
        word for setting, small in (("--steps", "1"), ("--hidden", "2"), ("--points", "4")) for word in (setting, small)
    ]
    options = [word for setting in settings for word in (setting, draw(st.sampled_from(SIZES) | st.text(max_size=6)))]
    return ["train", draw(st.sampled_from(SOURCES) | st.sampled_from(SOURCES) | st.sampled_from(SIZES)), *few, *options]


@st.composite
def calculations(draw):
    """`chainrule grad` with formulas of all lengths, and with attacks."""
    count = draw(st.sampled_from([1, 2, 40, 149, 150, 151, 299, 300, 301, 900, 1900]))
    long = draw(st.sampled_from(["+", "*", "-"])).join(["a"] * count)
    formula = draw(st.sampled_from([long, long, f"tanh({long})", "-" * count + "a"]) | st.sampled_from(ATTACKS))
    at = draw(
        st.sampled_from(["a=1", "a=1,b=2", "a=nan", "a=1e308", "a=0", "", "a", "a=", "=", "a=1,a=2"])
        | st.sampled_from(SIZES)
    )
    return ["grad", formula, "--at", at, *draw(st.lists(st.sampled_from(["--explain", "--json"]), max_size=2))]


def hostile_commands():
    """Commands that may or may not make sense; none may end in a mistake of chainrule's own."""
    return trainings() | calculations()


def command_is_done(arguments):
    """Whether the command does what it is asked; if not, it must say why, in what any terminal can take."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(arguments)
    said, told = output.getvalue(), errors.getvalue()
    assert code in (0, 1, 2), told
    assert told.replace("\n", "").isprintable(), told
    assert len(told) < 5000, told
    if code == 2:
        assert said == ""
        assert told.startswith("chainrule: "), told
    return code == 0
