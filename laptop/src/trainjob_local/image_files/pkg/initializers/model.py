"""The program `python -m pkg.initializers.model`, which downloads a model."""

from __future__ import annotations

import sys

from pkg.initializers.program import main

if __name__ == "__main__":
    sys.exit(main("model"))
