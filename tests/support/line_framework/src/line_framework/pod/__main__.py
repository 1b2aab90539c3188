"""Entry point of `python -m line_framework.pod`."""

from line_framework.pod.program import main

main()
