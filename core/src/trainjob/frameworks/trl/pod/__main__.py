"""Entry point of `python -m trainjob.frameworks.trl.pod`."""

from __future__ import annotations

import sys

from trainjob.frameworks.trl.pod.program import main

sys.exit(main())
