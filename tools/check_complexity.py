"""Refuse functions that are too complex to read at once: `python tools/check_complexity.py FOLDER...`.

A function counts one, and one more for each branch, loop, handler, assertion, comprehension, condition in one, and
further operand of `and` and `or`; inner functions are included.
"""

import ast
import sys
from pathlib import Path

MOST = 15
ONE_MORE = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)


def complexity(function: ast.AST) -> int:
    total = 1
    for node in ast.walk(function):
        if isinstance(node, ONE_MORE):
            total += 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
    return total


def too_complex(path: Path) -> list[str]:
    functions = [
        n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    found = [(complexity(function), function) for function in functions]
    return [
        f"{path}:{f.lineno}: `{f.name}` has complexity {n}, above {MOST}: split it by idea"
        for n, f in found
        if n > MOST
    ]


def main(folders: list[str]) -> int:
    paths = [path for folder in folders for path in sorted(Path(folder).rglob("*.py")) if "site" not in path.parts]
    problems = [problem for path in paths for problem in too_complex(path)]
    print("\n".join(problems) or f"{len(paths)} files: no function above complexity {MOST}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
