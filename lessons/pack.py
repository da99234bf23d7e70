"""What the site takes from Python: the package as an archive, the course, and array programs of some networks.

Usage: python pack.py FOLDER, with chainrule and NumPy importable. Writes chainrule.zip, course.json,
array_programs.json, bridge.json and home_graph.json.
"""

import json
import sys
import zipfile
from pathlib import Path

import chainrule
from chainrule import Value, data, losses, nn
from chainrule.learn.bridge import rows
from chainrule.learn.grading import course_json
from chainrule.learn.lesson_files import load_course
from chainrule.stepping.steps import describe

PACKAGE = Path(chainrule.__file__).parent
LEFT_OUT = ("cli", "compiler", "drawing")  # they need other packages
SHAPES = ([4], [8], [8, 8], [16, 16])
COUNTS = (1, 10, 100)


def pack(archive: Path) -> None:
    """Every module that runs on the standard library; the same bytes from the same sources."""
    modules = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in LEFT_OUT]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for path in modules:
            entry = zipfile.ZipInfo(f"chainrule/{path.relative_to(PACKAGE).as_posix()}", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(entry, path.read_bytes())


def home_graph() -> dict[str, object]:
    """The lecture's expression, which the first page steps through."""
    a, b, c, f = Value(2.0, label="a"), Value(-3.0, label="b"), Value(10.0, label="c"), Value(-2.0, label="f")
    e = a * b
    d = e + c
    loss = d * f
    return describe(loss, names={"e": e, "d": d, "L": loss})


def array_programs() -> list[dict[str, object]]:
    """What the compiler finds in the loss of some networks on some points; the largest is micrograd's demo."""
    found = []
    for hidden in SHAPES:
        for count in COUNTS:
            model = nn.MLP(2, [*hidden, 1], rng=1337)
            points = data.micrograd_moons()[:count]
            inputs = [[Value(x) for x in point] for point in points.inputs]
            loss = losses.hinge([model(x) for x in inputs], points.targets) + losses.l2(1e-4)(model.parameters())
            program = chainrule.compile(loss, wrt=model.parameters(), backend="interpreter")  # needs NumPy alone
            stats = program.stats
            found.append(
                {
                    "hidden": hidden,
                    "points": count,
                    "nodes": stats["scalar nodes"],
                    "statements": stats["array statements"],
                    "text": program.describe(),
                }
            )
    return found


if __name__ == "__main__":
    site = Path(sys.argv[1])
    pack(site / "chainrule.zip")
    (site / "course.json").write_text(course_json(load_course()), "utf-8")
    (site / "bridge.json").write_text(json.dumps(rows(), ensure_ascii=False), "utf-8")
    (site / "home_graph.json").write_text(json.dumps(home_graph(), ensure_ascii=False), "utf-8")
    (site / "array_programs.json").write_text(json.dumps(array_programs(), ensure_ascii=False), "utf-8")
