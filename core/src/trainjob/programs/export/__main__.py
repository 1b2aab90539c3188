"""Entry point of `python -m trainjob.programs.export`."""

from __future__ import annotations

import sys

from trainjob.programs.export.program import main

sys.exit(main())
