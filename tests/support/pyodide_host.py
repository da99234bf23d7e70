"""Python in WebAssembly, as the course's page has it, in Node."""

import subprocess
from pathlib import Path

from project import ROOT, missing


def run_in_pyodide(code):
    """The value of the code's last line, as text."""
    if not (ROOT / "lessons" / "node_modules" / "pyodide").exists():
        missing("Pyodide is not installed: run `make lessons`")
    script = Path(__file__).with_suffix(".mjs")
    ran = subprocess.run(["node", script], input=code, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout
