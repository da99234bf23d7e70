"""WebAssembly's binary format, as far as it is used here: instructions, functions and the sections of a module."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

PAGE = 65536
I32, F64, V128 = b"\x7f", b"\x7c", b"\x7b"
NOTHING = b"\x40"  # what a block leaves on the stack
HEADER = b"\0asm\1\0\0\0"
CUSTOM, TYPES, FUNCTIONS, MEMORIES, EXPORTS, CODE, DATA = 0, 1, 3, 5, 7, 10, 11  # numbers of the sections

# Instructions without immediate operands.
END, RETURN, UNREACHABLE, ELSE, SELECT = b"\x0b", b"\x0f", b"\x00", b"\x05", b"\x1b"
I32_EQZ, I32_LT, I32_AND, I32_OR = b"\x45", b"\x48", b"\x71", b"\x72"
I32_ADD, I32_SUB, I32_MUL, I32_DIV, I32_REM = b"\x6a", b"\x6b", b"\x6c", b"\x6d", b"\x6f"
F64_ADD, F64_MUL, F64_DIV, F64_NEG = b"\xa0", b"\xa2", b"\xa3", b"\x9a"
F64_OF_I32 = b"\xb7"
I32_OF_F64 = b"\xfc\x02"  # towards zero; saturates, and so never traps
I64_SHIFT_LEFT, I64_SHIFT_RIGHT, I64_OR, BITS, FLOAT = b"\x86", b"\x88", b"\x84", b"\xbd", b"\xbf"
FILL = b"\xfc\x0b\x00"  # of memory


def unsigned(number: int) -> bytes:
    """An unsigned integer in LEB128: seven bits a byte, lowest first.

    >>> unsigned(624485).hex()
    'e58e26'
    """
    if number < 128:
        return bytes((number,))
    return bytes((number & 127 | 128,)) + unsigned(number >> 7)


def signed(number: int) -> bytes:
    """A signed integer in LEB128.

    >>> signed(-123456).hex()
    'c0bb78'
    """
    encoded = bytearray()
    while not -64 <= number < 64:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number & 127)
    return bytes(encoded)


def i32(number: int) -> bytes:
    """Put a constant on the stack."""
    return b"\x41" + signed(number)


def i64(number: int) -> bytes:
    """Put a constant on the stack."""
    return b"\x42" + signed(number)


def f64(number: float) -> bytes:
    """Put a constant on the stack."""
    return b"\x44" + struct.pack("<d", number)


def get(local: int) -> bytes:
    """Put a local on the stack."""
    return b"\x20" + unsigned(local)


def put(local: int) -> bytes:
    """Set a local to what is on the stack."""
    return b"\x21" + unsigned(local)


def tee(local: int) -> bytes:
    """Set a local and leave its number on the stack."""
    return b"\x22" + unsigned(local)


def load(offset: int) -> bytes:
    """The double at an address, which is on the stack, plus `offset`."""
    return b"\x2b\x03" + unsigned(offset)


def store(offset: int) -> bytes:
    """Store a double at the address below it on the stack plus `offset`."""
    return b"\x39\x03" + unsigned(offset)


def simd(number: int) -> bytes:
    """An instruction for vectors of 128 bits, by its number."""
    return b"\xfd" + unsigned(number)


BIT_AND, BIT_SELECT = simd(78), simd(82)
TWICE, SECOND_LANE = simd(20), simd(34) + b"\x01"  # two times a double; another one as second


def pair(number: float) -> bytes:
    """Put a pair of the same constant on the stack."""
    return simd(12) + 2 * struct.pack("<d", number)


def load_pair(offset: int) -> bytes:
    """As `load`, two doubles."""
    return simd(0) + b"\x03" + unsigned(offset)


def load_twice(offset: int) -> bytes:
    """As `load`, the double twice."""
    return simd(10) + b"\x03" + unsigned(offset)


def load_second(offset: int) -> bytes:
    """Replace the second of a pair by the double at the address below it on the stack plus `offset`."""
    return simd(87) + b"\x03" + unsigned(offset) + b"\x01"


def store_pair(offset: int) -> bytes:
    """As `store`, two doubles."""
    return simd(11) + b"\x03" + unsigned(offset)


def store_lane(offset: int, lane: int) -> bytes:
    """As `store`, one of a pair."""
    return simd(91) + b"\x03" + unsigned(offset) + bytes([lane])


def lane(number: int) -> bytes:
    """Take one of a pair."""
    return simd(33) + bytes([number])


def call(function: int) -> bytes:
    """Call the function with that number."""
    return b"\x10" + unsigned(function)


def when(body: bytes, kind: bytes = NOTHING) -> bytes:
    """Run `body`, which may have an ELSE, if the condition on the stack is not 0."""
    return b"\x04" + kind + body + END


def loop_while(condition: bytes, body: bytes) -> bytes:
    """Test first, then run `body`, as long as the condition holds."""
    return b"\x02\x40" + b"\x03\x40" + condition + I32_EQZ + b"\x0d\x01" + body + b"\x0c\x00" + END + END


def vector(items: Sequence[bytes]) -> bytes:
    """How many there are, and then all of them."""
    return unsigned(len(items)) + b"".join(items)


def text(string: str) -> bytes:
    """A name."""
    encoded = string.encode()
    return unsigned(len(encoded)) + encoded


def section(number: int, content: bytes) -> bytes:
    """One of the parts that a module consists of."""
    return bytes([number]) + unsigned(len(content)) + content


@dataclass
class Function:
    """A function of a module: types of its arguments, results and further locals, and its instructions."""

    arguments: bytes
    results: bytes
    body: bytes
    locals: bytes = b""
    export: str = ""

    @property
    def type(self) -> bytes:
        return b"\x60" + vector([bytes([t]) for t in self.arguments]) + vector([bytes([t]) for t in self.results])

    @property
    def code(self) -> bytes:
        content = vector([b"\x01" + bytes([kind]) for kind in self.locals]) + self.body + END
        return unsigned(len(content)) + content


@dataclass
class Module:
    """Functions in the order of their numbers, `size` bytes of memory, and what is in it at first, by address."""

    functions: list[Function] = field(default_factory=list)
    size: int = 0
    data: dict[int, bytes] = field(default_factory=dict)
    custom: dict[str, bytes] = field(default_factory=dict)

    def add(self, function: Function) -> int:
        """Its number."""
        self.functions.append(function)
        return len(self.functions) - 1

    def binary(self) -> bytes:
        """The module as a file has it."""
        types = list(dict.fromkeys(function.type for function in self.functions))
        exports = [text("memory") + b"\x02\x00"]
        exports += [text(f.export) + b"\x00" + unsigned(k) for k, f in enumerate(self.functions) if f.export]
        data = [b"\x00" + i32(address) + END + unsigned(len(part)) + part for address, part in self.data.items()]
        sections: Iterable[bytes] = (
            section(TYPES, vector(types)),
            section(FUNCTIONS, vector([unsigned(types.index(function.type)) for function in self.functions])),
            section(MEMORIES, vector([b"\x00" + unsigned(-(-self.size // PAGE))])),
            section(EXPORTS, vector(exports)),
            section(CODE, vector([function.code for function in self.functions])),
            section(DATA, vector(data)),
            *(section(CUSTOM, text(name) + content) for name, content in self.custom.items()),
        )
        return HEADER + b"".join(sections)
