"""What people write on paper but a formula cannot hold, `2x`, `x²`, `√x`, `sin x`, and what to write instead.

The parser asks when Python has refused a text. The answer quotes the text's own names and numbers, as in "write 2*x",
but nothing is corrected silently: `1/2x` has two meanings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from keyword import iskeyword
from typing import NamedTuple

from chainrule import ops
from chainrule.core.arguments import shown

MOST_QUOTED = 40  # characters of an operand in an answer
SIGNS = dict.fromkeys("−–—", "-") | dict.fromkeys("·×⋅∙•∗", "*") | dict.fromkeys("÷∕⁄", "/")
SIGNS |= {"≤": "<=", "≥": ">=", "≠": "!="}
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
ELSEWHERE = {"ln": "log", "sgn": "sign", "max": "maximum", "min": "minimum", "tg": "tan", "round": "rint"}
ELSEWHERE |= {f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
LETTER = "[^\\W\\d²³¹⁰-⁹₀-₉·]"  # `·` may stand within a name of Python's, so that a·b would be one
TOKEN = re.compile(
    f"""(?P<skip>[ \\t\\f]+|\\#[^\\r\\n]*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\\d[\\d_]*\\.?\\d*|\\.\\d+)(?:[eE][+-]?\\d+)?)
    |(?P<name>{LETTER}(?:{LETTER}|\\d)*)
    |(?P<raised>[⁰¹²³⁴-⁹⁺⁻]+)
    |(?P<lowered>[₀-₉]+)
    |(?P<root>[√∛])
    |(?P<sign>[{"".join(SIGNS)}])
    |(?P<bars>\\|[^|\\r\\n]+\\|)
    |(?P<open>\\()
    |(?P<close>\\))
    |(?P<other>\\*\\*|.|[\\r\\n])""",
    re.VERBOSE,
)


class Slip(NamedTuple):
    """Where the text has to change, and how."""

    start: int
    end: int
    advice: str


class Token(NamedTuple):
    """A piece of the text, and what it is: a group of `TOKEN`."""

    kind: str
    start: int
    end: int


def first_slip(text: str) -> Slip | None:
    """The first habit of paper in a text, if there is one.

    >>> first_slip("a + 2x")
    Slip(start=4, end=6, advice='write 2*x')
    >>> first_slip("a + 2*x") is None
    True
    """
    return next(_Tokens(text).slips(), None)


class _Tokens:
    """The text in pieces. An operand is a number, a name, a bracket, or a name with a bracket: a call."""

    def __init__(self, text: str) -> None:
        self.text = text
        code = re.split("['\"]", text)[0]  # what is quoted may hold anything
        matches = [match for match in TOKEN.finditer(code) if match.lastgroup != "skip"]
        self.tokens = [Token(str(match.lastgroup), *match.span()) for match in matches]
        self.partner: dict[int, int] = {}  # of each bracket that has one
        self.inside: list[int | None] = []  # the bracket that each token is in
        opened: list[int] = []
        for place, token in enumerate(self.tokens):
            self.inside.append(opened[-1] if opened else None)
            if token.kind == "open":
                opened.append(place)
            elif token.kind == "close" and opened:
                self.partner[place] = opened.pop()
                self.partner[self.partner[place]] = place

    def slips(self) -> Iterator[Slip]:
        """All of them, in the order of reading."""
        for place, token in enumerate(self.tokens):
            word, after = self.source(token), self.operand_after(place + 1)
            if token.kind in ("sign", "raised", "lowered", "root", "bars"):
                yield self.character(place, after)
            elif token.kind == "name" and iskeyword(word):
                yield Slip(token.start, token.end, f"`{word}` is a word of Python's own, not a name: choose another")
            elif self.ends_operand(place) and after and not self.is_call(place):
                yield from self.side_by_side(place, after)

    def character(self, place: int, after: str) -> Slip:
        """A character that keyboards lack, or a pair of bars."""
        token, before = self.tokens[place], self.operand_before(place)
        _, start, end = token
        if token.kind == "raised":
            return self.power(place, before, after)
        if token.kind == "lowered":
            return Slip(self.start_before(place), end, f"write {before}{self.source(token).translate(LOWERED)}")
        if token.kind == "root":
            return self.root(token, after)
        if token.kind == "bars":
            return Slip(start, end, f"write abs({self.quoted(start + 1, end - 1)})")
        sign = SIGNS[self.source(token)]
        whole = after and (before or sign == "-")
        return Slip(start, end, f"write {before}{sign}{after}" if whole else f"write {sign}")

    def side_by_side(self, place: int, after: str) -> Iterator[Slip]:
        """Two operands without a sign between them: a product, or a function and its operand."""
        token, following = self.tokens[place], place + 1
        end = self.tokens[self.last_of_operand(following)].end
        op = ops.TABLE.get(self.source(token))
        if op is not None:
            alone = op.arity == 1 and not self.operand_after(self.last_of_operand(following) + 1)
            operand = after[1:-1] if after[0] == "(" else after
            example = f"{op.name}({operand})" if alone else op.signature
            yield Slip(token.start, end, f"`{op.name}` is a function: write {example}")
        elif self.source(self.tokens[following]) not in ops.TABLE or self.is_call(following):
            yield Slip(self.start_before(following), end, self.product(following, after))
        # else the function comes next, and lacks its bracket

    def product(self, place: int, after: str) -> str:
        """What to write for the operands before and after this place, if a product may be meant."""
        before = self.operand_before(place)
        bracket, product = self.inside[place], f"{before}*{after}"
        if self.is_assignment(place):
            return f"put a {'semicolon' if bracket is None else 'comma'} before `{after}`"
        if bracket and self.source(self.tokens[bracket - 1]) in ops.TABLE:
            return f"write `{before}, {after}` for two operands, {product} for a product"
        earlier = [self.source(token) for token in self.tokens if token.end <= self.start_before(place)]
        if earlier and (sign := earlier[-1].replace("^", "**")) in ("/", "**"):
            return f"write {sign}({product}) or {sign}{product}, whichever you mean"
        return f"write {product}"

    def is_assignment(self, place: int) -> bool:
        """Whether a name and an equals sign are here, as at the beginning of a statement or in a call."""
        following = [self.source(token) for token in self.tokens[place + 1 : place + 3]]
        return following[:1] == ["="] and following[1:] != ["="]

    def power(self, place: int, before: str, after: str) -> Slip:
        token = self.tokens[place]
        exponent = self.source(token).translate(RAISED)
        if before in ops.TABLE:  # sin²(x)
            operand = after[1:-1] if after[:1] == "(" else after or "x"
            return Slip(self.tokens[place - 1].start, token.end, f"write {before}({operand})**{exponent}")
        return Slip(self.start_before(place), token.end, f"write {before}**{exponent}")

    def root(self, token: Token, after: str) -> Slip:
        of = after or "x"
        if self.source(token) == "√":
            return Slip(token.start, token.end, f"write sqrt{of}" if of[0] == "(" else f"write sqrt({of})")
        return Slip(token.start, token.end, f"write {of}**(1/3)")

    def source(self, token: Token) -> str:
        return self.text[token.start : token.end]

    def quoted(self, start: int, end: int) -> str:
        return shown(self.text[start:end], MOST_QUOTED)

    def ends_operand(self, place: int) -> bool:
        return self.tokens[place].kind in ("number", "name") or (
            self.tokens[place].kind == "close" and place in self.partner
        )

    def is_call(self, place: int) -> bool:
        """Whether a name or a bracket is followed by a bracket, which Python takes for a call."""
        kinds = [token.kind for token in self.tokens[place : place + 2]]
        return kinds in (["name", "open"], ["close", "open"])

    def last_of_operand(self, place: int) -> int:
        if self.tokens[place].kind == "name" and self.is_call(place) and place + 1 in self.partner:
            return self.partner[place + 1]
        return self.partner.get(place, place)

    def operand_after(self, place: int) -> str:
        """The operand that begins here, or nothing."""
        if place >= len(self.tokens):
            return ""
        token = self.tokens[place]
        begins = token.kind in ("number", "name") or (token.kind == "open" and place in self.partner)
        if not begins or iskeyword(self.source(token)):
            return ""
        return self.quoted(token.start, self.tokens[self.last_of_operand(place)].end)

    def start_before(self, place: int) -> int:
        """Where the operand before this place begins; the place itself if there is none."""
        if place == 0 or not self.ends_operand(place - 1):
            return self.tokens[place].start
        first = self.partner.get(place - 1, place - 1)
        if first > 0 and first < place - 1 and self.tokens[first - 1].kind == "name":
            first -= 1
        return self.tokens[first].start

    def operand_before(self, place: int) -> str:
        """The operand that ends before this place, or nothing."""
        if place == 0 or not self.ends_operand(place - 1):
            return ""
        return self.quoted(self.start_before(place), self.tokens[place - 1].end)
