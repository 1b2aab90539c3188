"""`python -m trainjob.export`."""

from __future__ import annotations

import sys

from trainjob.export.program import main

sys.exit(main())
