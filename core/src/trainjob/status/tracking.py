"""Address of a training's tracked run in its log."""

from __future__ import annotations

import re

# The line of trainjob.frameworks.tracking.recorder, for a tracker with a page of the run.
_RUN = re.compile(r"tracking: run (?P<url>https?://\S{1,2000})")


def parse_tracking_url(line: str) -> str:
    """Return the address of the tracked run's page in a log line; empty if the line has none.

    Only addresses with http or https count, because a browser opens them.
    """
    found = _RUN.fullmatch(line)
    return found["url"] if found else ""
