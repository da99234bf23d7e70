"""The code in README and docs runs as it stands."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run_blocks(path):
    """Run the Python blocks of a page, one after the other; what they print."""
    names = {}
    text = (ROOT / path).read_text()
    for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        exec(compile(textwrap.dedent(block), path, "exec"), names)
    return names


def test_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_blocks("README.md")
    out = capsys.readouterr().out
    assert "1 of 2 derivatives agree" in out
    assert "should be 12" in out
    assert "i<100,j<16: v2[16i+j] = layers[1].neurons[j].b + Σk<16 layers[1].neurons[j].w[k]·v1[16i+k]" in out
    assert names["history"]["validation_accuracy"][-1] > 0.9
    assert (tmp_path / "moons.safetensors").exists()


@pytest.mark.slow
def test_the_page_on_the_compiler(capsys):
    run_blocks("docs/compiler.md")
    out = capsys.readouterr().out
    page = (ROOT / "docs/compiler.md").read_text()
    printed = re.search(r"forward half:\n\n```\n(.*?)```", page, re.DOTALL).group(1)
    assert "<Program: 65,818 scalar nodes in 28 array statements>" in out
    assert printed in out
