"""The README's code runs as it stands."""

import re
import textwrap
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = [
    textwrap.dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
]


def test_every_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    out = capsys.readouterr().out
    assert "1 of 2 derivatives agree" in out
    assert "should be 12" in out
    assert names["history"]["validation_accuracy"][-1] > 0.9
    assert (tmp_path / "moons.safetensors").exists()
