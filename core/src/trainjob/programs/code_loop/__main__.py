"""Entry point of `python -m trainjob.programs.code_loop`."""

from __future__ import annotations

import sys

from trainjob.programs.code_loop.program import main

sys.exit(main())
