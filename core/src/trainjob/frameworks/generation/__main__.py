"""Entry point of `python -m trainjob.frameworks.generation`."""

from __future__ import annotations

import sys

from trainjob.frameworks.generation.program import main

if __name__ == "__main__":
    sys.exit(main())
