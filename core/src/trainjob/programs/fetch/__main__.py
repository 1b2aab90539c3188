"""Entry point of `python -m trainjob.programs.fetch`."""

from __future__ import annotations

import sys

from trainjob.programs.fetch.program import main

sys.exit(main())
