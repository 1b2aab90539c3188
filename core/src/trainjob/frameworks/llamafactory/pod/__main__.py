"""Entry point of `python -m trainjob.frameworks.llamafactory.pod`."""

from __future__ import annotations

import sys

from trainjob.frameworks.llamafactory.pod.program import main

sys.exit(main())
