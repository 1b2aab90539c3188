"""Reduce a PNG file to 256 colors, which makes it about three times smaller.

Usage: reduce_colors.py FILE. It needs Pillow, which .venv/torchtune has.
"""

import sys

from PIL import Image

if __name__ == "__main__":
    with Image.open(sys.argv[1]) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(sys.argv[1], optimize=True)
