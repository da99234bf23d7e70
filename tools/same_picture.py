"""Whether two PNGs look the same, so that a picture that is made again stays as it is unless one could see a change.

The last bits of a computed colour, and a browser's antialiasing, differ from machine to machine and from run to run.
"""

from __future__ import annotations

from io import BytesIO

from PIL import Image, ImageChops

FAINT = 8  # of 255 levels of a colour


def same_picture(before: bytes, after: bytes) -> bool:
    """Whether no pixel differs by more than nobody can see."""
    first, second = (Image.open(BytesIO(content)).convert("RGBA") for content in (before, after))
    if first.size != second.size:
        return False
    return all(most <= FAINT for _, most in ImageChops.difference(first, second).getextrema())
