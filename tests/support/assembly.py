"""What the inner loops of assembly text do: how often they multiply and add, load, and go to the stack."""

import re
from dataclasses import dataclass

LABEL = re.compile(r"([.\w$]+):")
JUMP = re.compile(r"(?:j\w+|b(?:\.\w+)?|[ct]bn?z\s+\w+,(?: #\d+,)?)\s+(\.L\w+)")
FMA = re.compile(r"vf(?:n?m)(?:add|sub)|fm(?:la|ls|add|sub)\b")
STACK = re.compile(r"\(%rsp|\[sp\b")
STORES = re.compile(r"st|v?mov")  # a move to memory; from memory it is a load


@dataclass
class Loop:
    """A loop without a loop in it: its function, and how many of its instructions do what."""

    function: str
    instructions: list[str]

    @property
    def fmas(self):
        return sum(bool(FMA.match(line)) for line in self.instructions)

    @property
    def stack(self):
        return sum(bool(STACK.search(line)) for line in self.instructions)

    @property
    def loads(self):
        return sum(_loads(line) for line in self.instructions)


def _loads(line):
    """Vectors or numbers that an x86 or AArch64 instruction takes from memory."""
    name, _, operands = line.partition("\t")
    if ", [" in operands:  # AArch64
        return 0 if name.startswith("st") else 1 + name.startswith("ldp")
    is_store = STORES.match(name) and operands.endswith(")")
    return int("(" in operands and not is_store and not name.startswith("lea"))


def inner_loops(text):
    """The loops of assembly text that contain no other, in order."""
    lines = [re.split(r"\s+#|//", line)[0].strip() for line in text.split("\n")]
    labels, function, found = {}, "", []
    for number, line in enumerate(lines):
        if label := LABEL.match(line):
            labels[label[1]] = number
            function = function if label[1].startswith(".") else label[1]
        elif (jump := JUMP.fullmatch(line)) and jump[1] in labels:
            found.append((labels[jump[1]], number, function))
    inner = [a for a in found if not any(a[:2] != b[:2] and a[0] <= b[0] and b[1] <= a[1] for b in found)]
    return [Loop(name, [x for x in lines[a:b] if x and x[0] != "." and x[-1] != ":"]) for a, b, name in inner]
