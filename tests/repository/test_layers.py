"""The map in docs/design.md is true: every import points to the same floor or to one below, and there are no cycles.

Imports inside functions count; those for type checkers alone do not.
"""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from project import ROOT

PACKAGE = ROOT / "src" / "chainrule"


def modules():
    """Paths by name; the package itself, which all its names are imported into, is `chainrule`."""
    paths = [path for path in PACKAGE.rglob("*.py") if "site" not in path.relative_to(PACKAGE).parts]
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths]
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def imports(tree):
    """(module, name) of every import below, less those that only type checkers follow."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from imports(ast.Module(node.orelse, []))
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)
        else:
            yield from imports(node)


@cache
def needs():
    """Which modules each module imports; the whole package counts as none, since its `__init__` imports on demand."""
    known = modules()
    found = {name: set() for name in known}
    for name, path in known.items():
        for module, attribute in imports(ast.parse(path.read_text())):
            target = f"{module}.{attribute}" if f"{module}.{attribute}" in known else module
            if target in known and target not in (name, "chainrule"):
                found[name].add(target)
    del found["chainrule"], found["chainrule.__main__"]
    return found


def floors():
    """The number of the floor that each room is on, from the table in docs/design.md; the lowest is the first."""
    table = re.search(r"\| floor \|.*\n\|[-| ]+\n((?:\|.*\n)+)", (ROOT / "docs" / "design.md").read_text())[1]
    rows = [re.findall(r"`([\w.]+)`", row.split("|")[1]) for row in reversed(table.splitlines())]
    return {room: number for number, rooms in enumerate(rows) for room in rooms}


def floor_of(module, numbers):
    """That of the innermost room which is on the map."""
    name = module.removeprefix("chainrule.")
    while name and name not in numbers:
        name = name.rpartition(".")[0]
    return numbers[name] if name else None


def test_every_module_is_in_a_room_of_the_map():
    assert [name for name in needs() if floor_of(name, floors()) is None] == []


def test_every_room_of_the_map_is_there():
    assert [room for room in floors() if not any(name.startswith(f"chainrule.{room}") for name in modules())] == []


def test_imports_point_down():
    numbers = floors()
    upward = [
        f"{name} imports {target}"
        for name, targets in needs().items()
        for target in sorted(targets)
        if floor_of(target, numbers) > floor_of(name, numbers)
    ]
    assert upward == []


def test_no_modules_need_each_other():
    try:
        TopologicalSorter(needs()).prepare()
    except CycleError as error:
        pytest.fail(" needs ".join(reversed(error.args[1])))


def test_an_import_inside_a_function_counts():
    lines = "if TYPE_CHECKING:\n    import a\nelse:\n    import b\ndef f():\n    from c import d\n"
    assert list(imports(ast.parse(lines))) == [("b", ""), ("c", "d")]
