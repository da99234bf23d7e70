"""The notebooks run from top to bottom, and show what their text says they show."""

from tempfile import TemporaryDirectory

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from project import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
QUIET = ["--IPKernelApp.log_level=40"]  # errors only

# Forms of output that each must have at least so often, and words that must be printed.
SHOWN = {
    "xor": ({"image/png": 2, "image/svg+xml": 1, "text/html": 1}, ["tanh     0.00  1.00  1.00  0.00", "3 of 4"]),
    "four_points": ({"image/png": 1, "image/svg+xml": 3}, ["41 parameters", "answer"]),
    "moons": (
        {"image/png": 4, "image/svg+xml": 1, "text/html": 1},
        ["here        0.8958441028683222   0.010978370135492717   1.0"],
    ),
    "op_by_hand": ({"image/svg+xml": 1, "text/html": 3}, ["overwrites the gradient", "v1[0] = 0 + Σi<3 v0[i]"]),
    "finding_the_tensors": (
        {"image/svg+xml": 2},
        ["65,818 scalar nodes in 28 array statements", "repeat r<", "v9[0] = v7[0]·0.01 + 0.0001·v8[0]"],
    ),
}


def test_every_notebook_is_known_here():
    assert {path.stem for path in NOTEBOOKS} == SHOWN.keys()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_what_they_showed(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert all(not cell.outputs and cell.execution_count is None for cell in code_of(book))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the notebook's own, which shows figures
    book = nbformat.read(path, as_version=4)
    execute(book, tmp_path)  # a cell that fails is an error here
    outputs = [output for cell in code_of(book) for output in cell.outputs]
    forms, words = SHOWN[path.stem]
    for form, least in forms.items():
        assert sum(form in output.get("data", {}) for output in outputs) >= least, form
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    for word in words:
        assert word in printed


def test_a_cell_that_fails_is_noticed(tmp_path):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(Exception, match="ZeroDivisionError"):
        execute(book, tmp_path)


def execute(book, folder):
    """Through sockets that are files: ports that are free when they are chosen may be taken when they are used."""
    with TemporaryDirectory() as sockets:  # the path of a socket has to be short
        ways = {"transport": "ipc", "connection_file": f"{sockets}/kernel.json"}
        options = {"kernel_name": "python3", "timeout": 600, "extra_arguments": QUIET}
        NotebookClient(book, config=Config(KernelManager=ways), **options).execute(cwd=folder)


def code_of(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]
