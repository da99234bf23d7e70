"""What came out, as pages: results.md, with a part for each kind of processor, and what the README shows of it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alone import Cost
from contest import Contest
from contestants import BY_LENGTH, CONTESTANTS, GROUPS, OURS
from workloads import GRAPHS, NODES, SIX, WORKLOADS

TIE = 1.5  # shared machines do not tell smaller ratios apart
QUIET = 1.0  # of load: installing just before leaves as much in the average of a minute
SHOWN = "moons"  # the workload whose code length and compile time the summary states
ROWS = 7  # of the README's table: it is read in a minute
PEERS = ("micrograd (managed)", "PyTorch", "JAX", "C by hand")  # its columns, after ours
BEGIN, END = "<!-- benchmarks/scoreboard.py writes from here -->", "<!-- to here -->"
METHOD = "how it is measured"  # a part of results.md, as those for each kind of processor are
DESCRIBED = "Time per step by contestant and workload, on logarithmic scales; the table below has the same figures"

LENGTHS = "By length: a program for each; like C, it does not fill names up."

HOW = (
    "Contestants take turns in one process, pinned to one core, on one thread unless stated otherwise. The tables"
    " give the best and the median of the turns; a turn runs as many steps as fit into 20 ms, or for programs into "
    f'0.5 ms. "× ours" compares best times: above 1, ours is faster; a ratio below {TIE} × either way is a tie.',
    "Double precision unless stated otherwise. Before timing, every contestant agreed with ours on the loss and "
    "on all gradients or parameters, after one step and after three, to 1e-12 of the largest (float32: 1e-5; "
    "microgpt, after steps of Adam: 1e-10 and 1e-4).",
    "A step is loss, gradient and update; a gradient is loss and gradient. Compile time is not included. It is "
    "how much longer the first step takes than the next, in a process of its own, with no cache, and with all "
    "imported that is imported by the end of that step, whoever does it late. Memory is how much that process grows "
    "meanwhile, not counting compilers that it starts.",
    "microgpt's names have up to 15 letters. One program for all fills every name up to 16 positions; C leaves out "
    "what a name does not fill, and so does a program for each length. These are all compiled before steps are timed, "
    'and "compiling" has two times for them: until the first step, and until the programs for all lengths are there.',
    "Times with a ~ were measured on fewer examples and scaled up. microgpt's batches have 512 names per step; "
    "the time is per name.",
    "Lines are lines of code: the file in the workload's folder and the loop around it in `peers`, without "
    "imports, comments, docstrings and empty lines.",
    "chainrule is given the scalar code that micrograd's readers write, and compiles it: to the steps that "
    '`fit(..., compiled=True)` takes, or for `batch_value_and_grad`. "→ JAX" is `backend="jax"`, whose machine '
    'code XLA calls on a CPU, and "→ XLA" is `backend="xla"`, which XLA compiles. "Your own loop" calls a compiled '
    'program and an optimizer from Python. "Eager" runs without the compiler, on the native engine unless stated '
    "otherwise.",
    "micrograd is the published package, with tanh, exp and log added in the style of its own ops. Most of its "
    "time goes to Python's garbage collector, so it also runs managed: collector off, and one timed collection "
    "per step. microgpt's Value is microgpt's algorithm in our own code.",
    "PyTorch, JAX and NumPy are given tensors; NumPy and C are given the derivatives too. JAX jits the whole "
    "training, or the gradient over blocks of 1,000 examples, which is faster than all at once; it computes in the "
    "thread that calls. CasADi maps the expression of one example over all. C is plain loops with "
    "`gcc -O3 -march=native`; tuned C is written with vector intrinsics, and numba uses `fastmath`.",
    "The programs are six of the [fifty](../docs/programs.md), and a time is that of a call from Python for value and "
    "gradient. chainrule is given the loops that their users write, JAX arrays and `scan`, and numba a sweep forward "
    "and one back, with derivatives that are worked out by hand, in memory that is there already.",
)


@dataclass(frozen=True)
class Score:
    """A contest, the lines that users wrote, and what else it cost them."""

    contest: Contest
    lines: dict[str, int]
    costs: dict[str, Cost]


@dataclass(frozen=True)
class Board:
    """All of a run."""

    scores: Sequence[Score]
    machine: str
    kind: str  # of its processor
    date: str
    load: float  # of the machine before the run
    import_time: float  # milliseconds

    @property
    def tasks(self) -> list[Contest]:
        return [score.contest for score in self.scores if score.contest.workload in WORKLOADS]

    @property
    def programs(self) -> list[Contest]:
        return [score.contest for score in self.scores if score.contest.workload in SIX]

    @property
    def graphs(self) -> list[Score]:
        return [score for score in self.scores if score.contest.workload in GRAPHS]

    @property
    def picture(self) -> str:
        """The name of its picture's file."""
        return f"scoreboard_{self.kind.replace(' ', '_').replace('-', '').lower()}.svg"

    def results(self) -> list[str]:
        """The part of results.md for this kind of processor."""
        parts = [f"## {self._processor}, {self.kind}", "", *self._measured(), ""]
        if self.tasks:
            parts += [f'<img src="../docs/pictures/{self.picture}" alt="{DESCRIBED}">', "", *self._overview(), ""]
            parts += [*standing(self.tasks), *self._writing(), ""]
        if self.programs:
            parts += [*self._programs(), "", *standing(self.programs), ""]
        if self.graphs:
            parts += [*self._graph(), ""]
        parts += [f"`import chainrule` takes {figure(self.import_time)} ms and loads no other package.", ""]
        for score in self.scores:
            workload = score.contest.workload
            parts += [f"### {workload.name}: {workload.title}", "", *_details(score), ""]
        return parts

    def taken(self) -> str:
        """Where and when, in a few words."""
        busy = ", while it was busy" if self.load > QUIET else ""
        return f"{self._processor}, {self.kind}, {self.date}{busy}"

    @property
    def _processor(self) -> str:
        return self.machine.partition(",")[0]

    def _measured(self) -> list[str]:
        lines = item(f"{self.date}, on {self.machine}. The load was {self.load:.1f} before the run.")
        if self.load > QUIET:
            lines += item(
                "**Measured on a busy machine**: slow contestants, which have few turns, look slower than they are, "
                "and two threads had no two cores to themselves."
            )
        return lines

    def _overview(self) -> list[str]:
        """One row per contestant, one column per workload."""
        names = in_order({name for task in self.tasks for name in (*task.times, *task.left_out)})
        rows = [[_bold(name, name), *(_bold(name, cell(task, name)) for task in self.tasks)] for name in names]
        return table(["", *(task.workload.name for task in self.tasks)], rows)

    def _programs(self) -> list[str]:
        """One row per program, one column per contestant."""
        names = in_order({name for program in self.programs for name in (*program.times, *program.left_out)})
        rows = [
            [
                f"**{program.workload.name}**: {program.workload.title}",
                *(_bold(name, cell(program, name)) for name in names),
            ]
            for program in self.programs
        ]
        return table(["gradients of programs", *names], rows)

    def _writing(self) -> list[str]:
        """What it takes to write and to compile one of the workloads, in a sentence."""
        found = [score for score in self.scores if score.contest.workload.name == SHOWN and score.costs]
        if not found:
            return []
        (score,) = found
        parts = [
            f"{name} {score.lines[name]} lines, {score.costs[name].compiling:.1f} s"
            for name in score.costs
            if name == OURS or not name.startswith(OURS)
        ]
        return item(f"What users write and wait for before the first step of the {SHOWN}: {'; '.join(parts)}.")

    def _graph(self) -> list[str]:
        """What a node costs: one column per contestant."""
        names = in_order({name for score in self.graphs for name in score.contest.times})
        rows = []
        for score in self.graphs:
            title, best = score.contest.workload.title, score.contest.best
            rows.append([f"{title}, ns", *(_if_number(1e9 * best(name) / NODES) for name in names)])
        held = {name: cost.megabytes for name, cost in self.graphs[0].costs.items() if cost.megabytes is not None}
        if held:
            rows.append(["held, bytes", *(_if_number(1e6 * held.get(name, math.nan) / NODES) for name in names)])
        return table(["a node", *names], rows)


def standing(contests: Iterable[Contest]) -> list[str]:
    """Who is ahead of ours, and who is as fast."""
    ahead, ties, first = [], [], []
    for task in contests:
        ratios = {name: task.ratio(name) for name in task.times if not name.startswith(OURS)}
        faster = [f"{name} {times(1 / ratio)}" for name, ratio in ratios.items() if ratio <= 1 / TIE]
        equal = [name for name, ratio in ratios.items() if 1 / TIE < ratio < TIE]
        ahead += [f"{task.workload.name} ({', '.join(faster)})"] if faster else []
        ties += [f"{task.workload.name} ({', '.join(equal)})"] if equal else []
        first += [] if faster or equal else [task.workload.name]
    lines = item(f"Faster than ours: {'; '.join(ahead) or 'nobody'}.")
    lines += item(f"As fast, to within {TIE} ×: {'; '.join(ties) or 'nobody'}.")
    return lines + (item(f"Ours is ahead of all others on: {', '.join(first)}.") if first else [])


def summary(boards: Sequence[Board]) -> list[str]:
    """The README's part: one row per workload, with the fastest of all other contestants in the last column.

    They are those of the first kind of processor; of another, ours and the fastest other follow in two more columns.
    """
    first, *others = [board for board in boards if board.tasks]
    heading, said = ["", OURS, *PEERS, "fastest other"], item(f"Taken on {first.taken()}.")
    for board in others:
        heading += [f"{OURS} {board.kind}", "fastest other"]
        said += item(f"The last two columns: {board.taken()}.")
    if any(BY_LENGTH in task.times for board in (first, *others) for task in board.tasks):
        said = item(LENGTHS) + said
    rows = []
    for task in first.tasks[:ROWS]:
        shown = [_ours(task), *(cell(task, name) for name in PEERS), _fastest_other(task)]
        for same in (other for board in others for other in board.tasks if other.workload is task.workload):
            shown += [_ours(same), _fastest_other(same)]
        rows.append([f"**{task.workload.name}**: {task.workload.title}", *shown])
    return [*table(heading, rows), "", *standing(first.tasks[:ROWS]), *said, *_programs_in_short(boards, first)]


def _ours(task: Contest) -> str:
    """Our best time; where there is one, also that with a program for each length."""
    by_length = cell(task, BY_LENGTH)
    return _bold(OURS, cell(task, OURS)) + (f" ({by_length} by length)" if by_length else "")


def _programs_in_short(boards: Sequence[Board], first: Board) -> list[str]:
    """How the programs stand, in a sentence, which says where that is from if not from the first board."""
    board = next((board for board in boards if board.programs), None)
    if board is None:
        return []
    spans = []
    for name in in_order({name for program in board.programs for name in program.times if not name.startswith(OURS)}):
        ratios = [program.ratio(name) for program in board.programs if name in program.times]
        spans.append(f"{name} {figure(min(ratios))} to {figure(max(ratios))}")
    taken = "" if board is first else f" ({board.taken()})"
    return item(f"Gradients of six of the fifty programs, as multiples of our time: {', '.join(spans)}{taken}.")


def _fastest_other(task: Contest) -> str:
    first = min((name for name in task.times if not name.startswith(OURS)), key=task.best, default="")
    return f"{cell(task, first)}, {first}" if first else ""


def method() -> list[str]:
    """The part of results.md that says how it is measured."""
    return ["## How it is measured", "", *(line for text in HOW for line in item(text)), ""]


def in_order(names: set[str]) -> list[str]:
    """Group by group, as the list of contestants has them."""
    groups = {contestant.name: GROUPS.index(contestant.group) for contestant in CONTESTANTS}
    return sorted((name for name in groups if name in names), key=groups.get)


def _details(score: Score) -> list[str]:
    contest = score.contest
    rows = []
    for contestant in contest.contestants:
        name = contestant.name
        if name not in contest.times:
            continue
        found = score.costs.get(name)
        rows.append(
            [
                name,
                cell(contest, name),
                duration(contest.median(name)),
                relative(contest.ratio(name)),
                str(len(contest.times[name])),
                _compiling(found) if found else "",
                f"{found.megabytes:,.1f} MB" if found and found.megabytes is not None else "",
                str(score.lines[name]),
            ]
        )
    heading = ["", "best", "median", "× ours", "turns", "compiling", "memory", "lines"]
    left_out = [f"Left out: {name} ({reason})." for name, reason in contest.left_out.items()]
    return [*table(heading, rows), *(line for text in left_out for line in ["", text])]


def _compiling(cost: Cost) -> str:
    """Until the first step; and until all is compiled, if that takes longer."""
    return f"{cost.compiling:.2f} s" + (f", all {cost.everything:.2f} s" if cost.everything is not None else "")


def cell(contest: Contest, name: str) -> str:
    """Its best time; – if it was left out, and nothing if it does not take part."""
    if name not in contest.times:
        return "–" if name in contest.left_out else ""
    return ("~" if scaled(contest, name) else "") + duration(contest.best(name))


def scaled(contest: Contest, name: str) -> bool:
    """Whether it was timed on few examples."""
    (contestant,) = [contestant for contestant in contest.contestants if contestant.name == name]
    return contest.workload.examples(contestant) < contest.workload.size


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{figure(seconds / size)} {unit}"
    return f"{figure(seconds / 1e-6)} µs"


def figure(number: float) -> str:
    """With three digits or so, and commas."""
    digits = 2 if abs(number) < 10 else 1 if abs(number) < 100 else 0
    return f"{number:,.{digits}f}"


def relative(ratio: float) -> str:
    text = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.1g}"
    return f"{text}, a tie" if 1 / TIE < ratio < TIE and ratio != 1.0 else text


def times(ratio: float) -> str:
    return f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.1f} ×"


def _if_number(number: float) -> str:
    return figure(number) if number > 0 else ""


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of markdown; all columns but the first are numbers."""
    ruler = ["---", *["--:"] * (len(heading) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (heading, ruler, *rows)]


def _bold(name: str, text: str) -> str:
    return f"**{text}**" if name == OURS and text else text


def item(text: str) -> list[str]:
    return textwrap.wrap(text, 140, initial_indent="- ", subsequent_indent="  ", break_long_words=False)


def mark(part: str) -> str:
    """The line of results.md at which a part of it begins."""
    return BEGIN.replace(" -->", f": {part} -->")


def write_between(page: Path, lines: list[str], begin: str = BEGIN) -> None:
    """Replace what stands between the two marks."""
    before, _, rest = page.read_text().partition(begin)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{page.name} must have the lines {begin!r} and {END!r}, between which the table goes")
    page.write_text("\n".join([before + begin, *lines, mark + after]))
