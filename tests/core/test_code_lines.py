"""Places in the user's code: files by name and line, and the cells of a notebook as its own tracebacks name them."""

import os
import sys
from types import SimpleNamespace

import pytest

from chainrule.compiler.trace.branches import line_at
from chainrule.core.code_lines import definition, quoted_line

CELL = "/tmp/ipykernel_1/123.py"


@pytest.fixture
def notebook(monkeypatch):
    names = {CELL: ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=names.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def function():
    scope = {}
    exec(compile("def f(x):\n    return x", CELL, "exec"), scope)
    return scope["f"]


@pytest.mark.usefixtures("notebook")
def test_in_a_notebook_lines_are_those_of_a_cell():
    assert quoted_line(CELL, 2) == "cell In[3], line 2"
    assert definition(function()) == " (cell In[3], line 1)"
    assert line_at((CELL, 2)) == "cell In[3], line 2:"


@pytest.mark.usefixtures("notebook")
def test_what_a_notebook_imports_is_a_file():
    file = os.path.join(os.getcwd(), "demo.py")
    assert quoted_line(file, 2) == "demo.py:2"
    assert line_at((file, 2)) == f"{file}:2:"


def test_elsewhere_there_are_files_only(monkeypatch):
    for shell in (None, SimpleNamespace()):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert quoted_line(CELL, 2) == f"{CELL}:2"
