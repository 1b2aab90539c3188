"""`python -m trainjob.fetch`."""

from __future__ import annotations

import sys

from trainjob.fetch.program import main

sys.exit(main())
