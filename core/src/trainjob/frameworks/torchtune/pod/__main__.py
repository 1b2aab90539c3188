"""Entry point of `python -m trainjob.frameworks.torchtune.pod`."""

from __future__ import annotations

from trainjob.frameworks.torchtune.pod.program import main

main()
