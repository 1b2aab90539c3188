"""Python imports this at its start where PYTHONPATH names its folder: a launcher that nobody else could reach."""

import os
from pathlib import Path

if folder := os.environ.get("CRASH_FOLDER"):
    from tests.support import crash_points

    (Path(folder) / "pid").write_text(str(os.getpid()))
    crash_points.install((*crash_points.LAUNCHER, *crash_points.TERMINATION), Path(folder))
