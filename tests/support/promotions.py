"""Promotions as programs, which a test can kill at each point.

The module is also the program: `promotions.py TRAP_FOLDER ARGUMENT...`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.accounts import create_token
from tests.support.crash_points import CrashPoint, arm_trap, install_traps
from tests.support.kubernetes_client import Client
from tests.support.shipped_manifests import load_objects

ACCOUNT = "trainjob-promotion"
_PACKAGE = "trainjob.programs.promotion"
_RECORD, _ROLLOUT = f"{_PACKAGE}.record:PromotionRecord", f"{_PACKAGE}.rollout:Rollout"
SERVED = CrashPoint("served", "after", f"{_ROLLOUT}._serve")
PLAIN_POINTS = (
    CrashPoint("about to record", "before", f"{_RECORD}.begin"),
    CrashPoint("recorded", "after", f"{_RECORD}.begin"),
    CrashPoint("about to serve", "before", f"{_ROLLOUT}._serve"),
    SERVED,
    CrashPoint("about to end", "before", f"{_RECORD}.put"),
    CrashPoint("ended", "after", f"{_RECORD}.put"),
)
"""Points of a promotion without a registry."""
ALIAS_POINTS = (
    CrashPoint("about to set the alias", "before", f"{_ROLLOUT}._set_alias"),
    CrashPoint("alias noted", "after", f"{_RECORD}.put", within=f"{_ROLLOUT}._set_alias"),
    CrashPoint("alias set", "after", f"{_ROLLOUT}._set_alias"),
)
"""Points of a promotion with a registry besides."""
ROLLBACK_POINTS = (
    CrashPoint("about to roll back", "before", f"{_ROLLOUT}._undo"),
    CrashPoint("rollback recorded", "after", f"{_RECORD}.put", within=f"{_ROLLOUT}._undo"),
    CrashPoint("rollback served", "after", f"{_ROLLOUT}._serve", within=f"{_ROLLOUT}._undo"),
    CrashPoint("rolled back", "after", f"{_ROLLOUT}._undo"),
)
"""Points of a rollback, or of a promotion that fails."""


@dataclass
class Promoter:
    """Runs promotions of one service with the permissions of the shipped manifest.

    Attributes:
        client: administrator's client.
        namespace: the namespace, which has the manifest's objects.
        folder: folder for files of the account and of traps.
        options: options of each run, by name without dashes.
    """

    client: Client
    namespace: str
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self) -> Promoter:
        """Create the account, and write the files that a pod has."""
        for found in load_objects("promotion"):
            self.client.create(found, self.namespace)
        configuration = self.client.api.configuration
        files = {
            "token": create_token(self.client, self.namespace, ACCOUNT),
            "ca.crt": Path(configuration.ssl_ca_cert).read_text(),
            "namespace": self.namespace,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.folder / name).write_text(text)
        return self

    def start(
        self, action: str, key: str, *, run: str | None = None, killed_at: CrashPoint | None = None, **more: Any
    ) -> subprocess.Popen[str]:
        """Start a promotion or a rollback."""
        trap = self.folder / f"trap-{killed_at.slug if killed_at else 'none'}-{key}"
        if killed_at:
            arm_trap(trap, killed_at)
        host, port = self.client.api.configuration.host.removeprefix("https://").rsplit(":", 1)
        options = {
            "api-folder": self.folder,
            "key": key,
            "run": f"run-of-{key}" if run is None else run,
            **self.options,
            **more,
        }
        words = [word for name, value in options.items() for word in _to_words(name, value)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.promotions", trap, action, *words],
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, action: str, key: str, **more: Any) -> tuple[int, str]:
        """Run a promotion or a rollback, and return its exit code and output."""
        with self.start(action, key, **more) as process:
            output, _ = process.communicate()
        return process.returncode, output

    def result(self, action: str, key: str, **more: Any) -> dict[str, Any]:
        """Run a promotion or a rollback that must succeed, and return its result."""
        code, output = self.run(action, key, **more)
        assert code == 0, output
        found: dict[str, Any] = json.loads(output.rpartition(" done ")[2])
        return found

    def states(self, kind: str, service: str) -> list[tuple[str, str]]:
        """Return key and state of the recorded promotions, the newest first."""
        found = self.client.get("ConfigMap", self.namespace, f"trainjob-promotions-{kind.lower()}-{service}")
        return [(row["key"], row["state"]) for row in json.loads(found["data"]["promotions"])]


def _to_words(name: str, value: Any) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    return [option, json.dumps(value) if isinstance(value, dict | list) else str(value)]


def main(trap: str, arguments: Sequence[str]) -> int:
    """Run the program with traps."""
    from trainjob.programs.promotion.program import main as run_program

    install_traps((*PLAIN_POINTS, *ALIAS_POINTS, *ROLLBACK_POINTS), Path(trap))
    return run_program(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
