"""C source from the op table: run a rule on pieces of C text, and it writes itself.

`CText("x")` behaves like a number; an op applied to it gives the C expression of the result.
Loaded by path at build time, so it imports nothing of the package; the table comes in as an argument.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any


def _operators(sign: str) -> tuple[Callable[[Any, Any], CText], Callable[[Any, Any], CText]]:
    """The methods for `self ∘ other` and `other ∘ self`."""
    return lambda a, b: CText(f"({a} {sign} {spell(b)})"), lambda b, a: CText(f"({spell(a)} {sign} {b})")


class CText:
    """A C expression of type double, fully bracketed.

    >>> 2.0 * CText("x") + 1.0
    ((0x1.0000000000000p+1 * x) + 0x1.0000000000000p+0)
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        raise TypeError(f"a rule must not branch on its operands ({self}); use `where` and comparison ops")

    def _apply(self, op: Any, operands: tuple[Any, ...]) -> Any:
        if op.c:
            return CText(f"({op.c.format(*map(spell, operands))})")
        return op.forward(*operands)

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")

    def __neg__(self) -> CText:
        return CText(f"(-{self})")


def spell(number: Any) -> str:
    """`number` in C: exact, in hexadecimal, if it is a plain number."""
    if isinstance(number, CText):
        return number.text
    if math.isfinite(number):
        return float(number).hex()
    return "NAN" if math.isnan(number) else "INFINITY" if number > 0 else "(-INFINITY)"


def forward(op: Any) -> str:
    """The C expression of `op`'s result over its operands' names.

    >>> from chainrule.ops import TABLE
    >>> forward(TABLE["relu"])
    '(((double)(x < 0x0.0p+0)) != 0.0 ? 0x0.0p+0 : x)'
    """
    operands = tuple(CText(name) for name in op.parameters)
    return spell(CText("")._apply(op, operands))


def partials(op: Any) -> list[str | None]:
    """The C expression of each partial derivative over `out` and the operands' names; None where there is none."""
    operands = [CText(name) for name in op.parameters]
    return [rule and spell(rule(CText("out"), *operands)) for rule in op.partials]


def engine_header(table: Iterable[Any], checksum: int) -> str:
    """The part of the native engine that follows from the table (included by `engine.c`)."""
    rows = list(table)
    lines = ["/* Generated from the op table (ops.py); do not edit. */", f"#define TABLE_CHECKSUM {checksum}UL", ""]
    lines += [f"#define OP_{op.name} {code}" for code, op in enumerate(rows)]
    lines += ["", f"#define BUILTIN_OPS {len(rows)}", f"#define MOST_OPERANDS {max(op.arity for op in rows)}"]
    lines += [f"static const int arities[] = {{{', '.join(str(op.arity) for op in rows)}}};"]
    silent = [sum(1 << k for k, partial in enumerate(op.partials) if partial is None) for op in rows]
    lines += [f"static const unsigned char silent_operands[] = {{{', '.join(map(str, silent))}}};", ""]
    for op in rows:
        arguments = ", ".join(f"double {name}" for name in op.parameters)
        lines += [f"static inline double forward_{op.name}({arguments})", "{", f"    return {forward(op)};", "}", ""]
    lines += _forward_switches(rows)
    lines += ["static void builtin_backward(Node *node)", "{", "    const double out = node->data, grad = node->grad;"]
    lines += ["    Node *const *operand = operands_of(node);", "    (void)out;", "    switch (node->op) {"]
    for op in rows:
        if any(partials(op)):
            body = _backward(op, "takes_gradient({0})", "{0}->data", "{0}->grad")
            lines += [f"    case OP_{op.name}: {{", *body, "        break;", "    }"]
    lines += ["    default: return;", "    }", "}", "", *_tape(rows)]
    lines += [f"{'UNARY_METHOD' if op.arity == 1 else 'METHOD'}({op.name})" for op in rows]
    lines += ["", "#define OP_METHODS \\"]
    for op in rows:
        for name in (op.name, *op.aliases):
            doc = f"{_text_signature(op, name)}\n--\n\n{op.__doc__}"
            lines += [f"    OP_METHOD({name}, {op.name}, {json.dumps(doc, ensure_ascii=False)}) \\"]
    return "\n".join([*lines, "    /* the end */", ""])


def _text_signature(op: Any, name: str) -> str:
    """What `inspect` and `help` read from the first line of a docstring in C; the operand after `$` is `self`.

    >>> from chainrule.ops import TABLE
    >>> _text_signature(TABLE["leaky_relu"], "leaky_relu")
    'leaky_relu($x, slope=0.01)'
    """
    return f"{name}(${op.signature.partition('(')[2]}"


def _forward_switches(rows: list[Any]) -> list[str]:
    """Functions that compute any op by its code: once, or for columns of operands."""
    one, many = [], []
    for op in rows:
        operands = [f"operand[{k}]" for k in range(op.arity)]
        one += [f"    case OP_{op.name}: return forward_{op.name}({', '.join(operands)});"]
        call = f"forward_{op.name}({', '.join(f'{operand}[i]' for operand in operands)})"
        many += [f"    case OP_{op.name}: for (int i = 0; i < count; i++) out[i] = {call}; return;"]
    return [
        *["static double builtin_forward(int op, const double *operand)", "{", "    switch (op) {", *one],
        *["    default: return NAN;", "    }", "}", ""],
        *["static void builtin_forwards(int op, int count, double *const *operand, double *out)", "{"],
        *["    switch (op) {", *many, "    default: return;", "    }", "}", ""],
    ]


def _backward(op: Any, takes: str, number: str, gradient: str) -> list[str]:
    """Statements that add to the operands' gradients; the formats say how C spells what an operand has."""
    expressions = partials(op)
    used = set(re.findall(r"\w+", " ".join(filter(None, expressions))))
    places = {name: f"operand[{k}]" for k, name in enumerate(op.parameters)}
    lines = [f"        const double {name} = {number.format(o)};" for name, o in places.items() if name in used]
    for k, (o, expression) in enumerate(zip(places.values(), expressions, strict=True)):
        if expression:
            lines += [f"        if ({takes.format(o, k)}) {gradient.format(o)} += grad * {expression};"]
    return lines


TAPE = """\
static void tape_forward(const Tape *tape, double *data, Py_ssize_t start, Py_ssize_t stop)
{
    const Run *run = tape->runs + (start < stop ? tape->run_of[start] : 0);
    for (Py_ssize_t i = start; i < stop; run++) {
        const Py_ssize_t end = run->stop < stop ? run->stop : stop;
        const int32_t *operand = tape->operands + run->first + (i - run->start) * run->arity;
        switch (run->code) {
        case ARITHMETIC: arithmetic_forward(operand, data, i, end); i = end; break;
FORWARD
        default: i = end;
        }
    }
}

static void tape_backward(const Tape *tape, const double *restrict data, double *restrict grads,
                          Py_ssize_t start, Py_ssize_t stop)
{
    const Run *run = tape->runs + (start < stop ? tape->run_of[stop - 1] : 0);
    for (Py_ssize_t i = stop; i > start; run--) {
        const Py_ssize_t end = run->start > start ? run->start : start;
        const int32_t *operand = tape->operands + run->first + (i - run->start) * run->arity;
        const unsigned taken = (unsigned)run->taken;
        switch (taken ? run->code : BUILTIN_OPS) {
        case ARITHMETIC: arithmetic_backward(operand, data, grads, i, end); i = end; break;
BACKWARD
        default: i = end;
        }
    }
}
"""


def _tape(rows: list[Any]) -> list[str]:
    """Functions that run a graph given as arrays, forward and backward: a loop for each run of nodes of one op."""
    forward, backward = [], []
    for op in rows:
        operands = ", ".join(f"data[operand[{k}]]" for k in range(op.arity))
        forward += [f"        case OP_{op.name}:", f"            do data[i] = forward_{op.name}({operands});"]
        forward += [f"            while (operand += {op.arity}, ++i < end);", "            break;"]
        if any(partials(op)):
            lines = _backward(op, "taken >> {1} & 1", "data[{0}]", "grads[{0}]")
            backward += [f"        case OP_{op.name}: do {{", f"        operand -= {op.arity};"]
            backward += ["        const double out = data[--i], grad = grads[i];", "        (void)out;"]
            backward += ["        grads[i] = 0.0;", *lines, "        } while (i > end); break;"]
    return TAPE.replace("FORWARD", "\n".join(forward)).replace("BACKWARD", "\n".join(backward)).split("\n")
