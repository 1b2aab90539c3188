"""Entry point of `python -m trainjob.frameworks.unsloth.pod`."""

from __future__ import annotations

import sys

from trainjob.frameworks.unsloth.pod.program import main

sys.exit(main())
