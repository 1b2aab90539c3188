"""`python -m trainjob.resume`."""

from __future__ import annotations

from trainjob.resume.program import main

main()
