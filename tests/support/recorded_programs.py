"""The commands of fetch, export and resume as an earlier version packed them, for tests of upgrades.

`recorded_programs.json` was written by commit 975860f. TrainJobs with these commands may still run when a new version
takes over, and their workspaces stay.
"""

from __future__ import annotations

import json
from pathlib import Path

RECORDED_COMMANDS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
