"""Entry point of `python -m trainjob_sentence_transformers.pod`."""

from __future__ import annotations

import sys

from trainjob_sentence_transformers.pod.program import main

sys.exit(main())
