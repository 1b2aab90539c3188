"""Entry point of `python -m trainjob.programs.promotion`."""

from __future__ import annotations

import sys

from trainjob.programs.promotion.program import main

if __name__ == "__main__":
    sys.exit(main())
