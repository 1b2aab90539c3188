"""Entry point of `python -m trainjob.frameworks.supervision`."""

from __future__ import annotations

import sys

from trainjob.frameworks.supervision.program import main

sys.exit(main())
