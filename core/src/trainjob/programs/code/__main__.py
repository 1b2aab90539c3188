"""Entry point of `python -m trainjob.programs.code`."""

from __future__ import annotations

import sys

from trainjob.programs.code.program import main

sys.exit(main())
