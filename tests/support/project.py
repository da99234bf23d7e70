"""The checkout that is tested, and copies of what of it is needed for an installation."""

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def missing(what):
    """Skip a test for want of something, which CI must have."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def copy_of_the_project(folder):
    ignored = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__", "ops.h")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
