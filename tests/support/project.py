"""The checkout that is tested, and copies of what of it is needed for an installation."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def copy_of_the_project(folder):
    ignored = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__", "ops.h")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
