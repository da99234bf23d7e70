"""WebAssembly modules, run in Node."""

import json
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple


class Ran(NamedTuple):
    """Results of all rows, their mean and its gradient; the losses of steps, and the parameters after them."""

    results: list[float]
    mean: list[float]
    gradient: list[float]
    losses: list[float]
    parameters: list[float]


class Host:
    """A process of Node that runs one module after the other."""

    def __init__(self):
        script = Path(__file__).with_suffix(".mjs")
        self.process = subprocess.Popen(["node", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, program, rows=None, steps=0):
        rows = None if rows is None else [digits(row) for row in rows]
        reply = self._ask({"module": program.binary.hex(), "rows": rows, "steps": steps})
        return Ran(*[floats(reply[name]) for name in Ran._fields])

    def call(self, program, script, rows=None):
        """What a function of JavaScript returns for the program, or what it throws, as text."""
        rows = None if rows is None else [digits(row) for row in rows]
        reply = self._ask({"module": program.binary.hex(), "rows": rows, "call": script}, check=False)
        return reply.get("text") or reply["error"]

    def _ask(self, question, check=True):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        assert not check or "error" not in reply, reply["error"]
        return reply

    def close(self):
        self.process.communicate()  # ends its input


def digits(numbers):
    return struct.pack(f"<{len(numbers)}d", *numbers).hex()


def floats(text):
    content = bytes.fromhex(text)
    return [*struct.unpack(f"<{len(content) // 8}d", content)]
