"""How small exported C is: bytes of object code, constants and memory for some networks, by `gcc -Os` and `size`."""

import re
import subprocess
import tempfile
from pathlib import Path

import chainrule
from chainrule import nn


def sizes(header):
    """Bytes of the object file's code and constants."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "net.c"), Path(folder, "net.o")
        names = re.findall(r"^static inline (void (\w+)\(.*?\))", header, re.DOTALL | re.MULTILINE)
        buffers = [re.findall(r"(\w+)\[", prototype) for prototype, _ in names]
        calls = [
            f"{prototype.replace(name, f'call_{name}', 1)};\n{prototype.replace(name, f'call_{name}', 1)} "
            f"{{ {name}({', '.join(passed)}); }}"
            for (prototype, name), passed in zip(names, buffers, strict=True)
        ]
        source.write_text(header + "\n".join(calls))
        flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Os"]
        subprocess.run(["gcc", *flags, "-c", "-o", built, source], check=True)
        found = subprocess.run(["size", "-A", built], capture_output=True, text=True, check=True).stdout
    sections = {name: int(size) for name, size in re.findall(r"^\.(\S+)\s+(\d+)", found, re.MULTILINE)}
    code = sum(size for name, size in sections.items() if name.startswith("text"))
    return code, sum(size for name, size in sections.items() if name.startswith("rodata"))


def main():
    """Print the table of docs/export.md."""
    print("| network | exported as | code | constants | workspace |\n|---|---|--:|--:|--:|")
    for shape in ([2, 4, 1], [2, 16, 16, 1], [64, 32, 10]):
        model = nn.MLP(shape[0], shape[1:], activation="relu", rng=1)
        program = chainrule.compile(lambda x, y, model=model: loss(model(x), y), wrt=model.parameters())
        answer = chainrule.compile(lambda x, model=model: model(x), wrt=model.parameters())
        name = "-".join(map(str, shape))
        inputs = [0.0] * shape[0]
        for dtype in ("float32", "float64"):
            row(f"{name}, {dtype}", "frozen inference", answer.to_c("net", inputs, dtype=dtype, freeze=True), dtype)
            header = program.to_c("net", inputs, [0.0] * shape[-1], dtype=dtype)
            row(f"{name}, {dtype}", "loss and gradient", header, dtype)


def loss(outputs, targets):
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return sum((o - t) ** 2 for o, t in zip(outputs, targets, strict=True))


def row(network, what, header, dtype):
    code, constants = sizes(header)
    words = max(int(size) for size in re.findall(r"#define \w+_WORKSPACE (\d+)", header))
    print(f"| {network} | {what} | {code:,} | {constants:,} | {words * (4 if dtype == 'float32' else 8):,} |")


if __name__ == "__main__":
    main()
