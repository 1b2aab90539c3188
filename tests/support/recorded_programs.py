"""The commands of fetch, export and resume of an earlier version, for tests of upgrades.

Commit 975860f wrote `recorded_programs.json`. TrainJobs with these commands may still run after an upgrade, and their
workspaces stay.
"""

from __future__ import annotations

import json
from pathlib import Path

RECORDED_COMMANDS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
