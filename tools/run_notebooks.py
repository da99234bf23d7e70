"""Runs the notebooks of the repository and keeps what their cells show in them, where GitHub's viewer shows it too.

`make docs` runs it. Run again, it writes the same files: no times, no versions, and what a cell with the tag `timing`
has shown once stays, because it would be different every time. To measure again, clear the cell's output first.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from same_picture import same_picture
from traitlets.config import Config

FOLDER = Path(__file__).parent.parent / "notebooks"
PNG = "image/png"
QUIET = ["--IPKernelApp.log_level=40"]  # errors only


def execute(book: nbformat.NotebookNode, folder: Path) -> None:
    """Run a notebook through sockets that are files, because a free port may be taken before it is used.

    Plots are to appear in it, whatever the environment says of matplotlib.
    """
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    with TemporaryDirectory() as sockets:  # the path of a socket has to be short
        ways = {"transport": "ipc", "connection_file": f"{sockets}/kernel.json"}
        options = {"kernel_name": "python3", "timeout": 600, "coalesce_streams": True, "extra_arguments": QUIET}
        client = NotebookClient(book, config=Config(KernelManager=ways), record_timing=False, **options)
        client.execute(cwd=folder, env=environment)


def run(book: nbformat.NotebookNode, folder: Path) -> None:
    """Replace what the cells of a notebook show by what they show now."""
    metadata, before = book.metadata.copy(), {cell.id: cell.get("outputs") for cell in book.cells}
    execute(book, folder)
    book.metadata = metadata  # without the versions of this machine
    for cell in book.cells:
        if "timing" in cell.metadata.get("tags", ()):
            cell.outputs = before[cell.id] or cell.outputs
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]  # a library's murmur
            for then, now in zip(before[cell.id], cell.outputs, strict=False):
                keep_picture(then.get("data", {}), now.get("data", {}))


def keep_picture(then: dict[str, str], now: dict[str, str]) -> None:
    """Leave a plot as it was if it looks the same now."""
    if PNG in then and PNG in now and same_picture(*(base64.b64decode(forms[PNG]) for forms in (then, now))):
        now[PNG] = then[PNG]


def main() -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        run(book, FOLDER)
        nbformat.write(book, path)


if __name__ == "__main__":
    main()
