"""Users' names stay: what can be called, how, and with which options."""

from pathlib import Path

import pytest

import surface
from chainrule import ENGINE


@pytest.mark.once
@pytest.mark.skipif(ENGINE != "native", reason="signatures of C functions are told otherwise")
def test_the_public_surface_is_what_it_was():
    """A new name is added to the file too: python tests/support/surface.py > tests/users/public_surface.txt."""
    before = Path(__file__).with_name("public_surface.txt").read_text().splitlines()
    assert surface.surface() == before
