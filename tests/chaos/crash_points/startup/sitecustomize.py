"""Traps for a launcher that a test can't reach in another way.

Python imports this module at its start if PYTHONPATH contains its folder.
"""

import os
from pathlib import Path

if folder := os.environ.get("CRASH_FOLDER"):
    from tests.support import crash_points

    (Path(folder) / "pid").write_text(str(os.getpid()))
    points = (*crash_points.LAUNCHER_POINTS, *crash_points.TERMINATION_POINTS, crash_points.BEFORE_PAUSE)
    crash_points.install_traps(points, Path(folder))
