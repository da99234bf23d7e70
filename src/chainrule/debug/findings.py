"""What `diagnose` and `supervise` report: findings, each with evidence and advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from chainrule.core.display import shown

# Names in the order in which findings are reported: causes before their possible consequences.
LOOKED_FOR = (
    "gradients not zeroed",
    "graph older than its leaves",
    "_backward overwrites",
    "_backward is wrong",
    "learning rate too high",
    "number not finite",
    "parameters without gradient",
    "dead units",
    "vanishing gradients",
    "exploding gradients",
    "learning rate too low",
)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its name (one of `LOOKED_FOR`), what was seen, and what to do.

    >>> print(Finding("dead units", "2 of 4 units never fire.", ("layers.0: neurons 1 and 3",), "Use leaky_relu."))
    dead units: 2 of 4 units never fire.
      - layers.0: neurons 1 and 3
      → Use leaky_relu.
    """

    name: str
    summary: str
    evidence: tuple[str, ...]
    advice: str

    def __post_init__(self) -> None:
        if self.name not in LOOKED_FOR:
            raise ValueError(f"`name` must be one of {', '.join(LOOKED_FOR)}; got {self.name!r}")

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.name}: {self.summary}", *(f"  - {line}" for line in self.evidence), f"  → {self.advice}"]
        )


@dataclass
class Checkup:
    """The report of `diagnose` and `supervise`: iterable over its findings, true if there are none; print it to read.

    >>> print(Checkup(passes=30, nodes=500))
    nothing wrong in 30 backward passes over up to 500 nodes
    """

    findings: list[Finding] = field(default_factory=list)
    passes: int = 0  # backward passes that were seen
    nodes: int = 0  # in the largest graph that was examined
    losses: list[float] = field(default_factory=list)  # of those passes

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def names(self) -> list[str]:
        """The names of the findings."""
        return [finding.name for finding in self.findings]

    def add(self, *findings: Finding) -> None:
        """Add findings, one per name, and sort them by cause.

        >>> checkup = Checkup()
        >>> checkup.add(Finding("dead units", "", (), ""), Finding("gradients not zeroed", "", (), ""))
        >>> checkup.names()
        ['gradients not zeroed', 'dead units']
        """
        known = {finding.name: finding for finding in reversed([*self.findings, *findings])}
        self.findings = sorted(known.values(), key=lambda finding: LOOKED_FOR.index(finding.name))

    def check(self) -> Checkup:
        """Return this report if all is well; otherwise raise an AssertionError that shows it."""
        if not self.ok:
            raise AssertionError(f"something is wrong\n{self}")
        return self

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        seen = f"in {self.passes} backward passes over up to {self.nodes:,} nodes"
        if self.ok:
            return f"nothing wrong {seen}"
        count = "one finding" if len(self) == 1 else f"{len(self)} findings, causes first,"
        return "\n\n".join([f"{count} {seen}", *map(str, self.findings)])

    __repr__ = __str__

    _repr_html_ = shown("html_of_checkup")
