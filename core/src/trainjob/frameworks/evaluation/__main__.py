"""Entry point of `python -m trainjob.frameworks.evaluation`."""

from __future__ import annotations

import sys

from trainjob.frameworks.evaluation.program import main

if __name__ == "__main__":
    sys.exit(main())
