"""Entry point of `python -m trainjob.frameworks.checkpoint_copies`."""

from __future__ import annotations

import sys

from trainjob.frameworks.checkpoint_copies.program import main

sys.exit(main())
