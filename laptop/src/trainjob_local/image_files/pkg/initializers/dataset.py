"""The program `python -m pkg.initializers.dataset`, which downloads a dataset."""

from __future__ import annotations

import sys

from pkg.initializers.program import main

if __name__ == "__main__":
    sys.exit(main("dataset"))
