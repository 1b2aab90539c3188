"""Entry point of `python -m trainjob.frameworks.tracking`."""

from __future__ import annotations

import sys

from trainjob.frameworks.tracking.program import main

sys.exit(main())
