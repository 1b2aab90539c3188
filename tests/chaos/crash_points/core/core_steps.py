"""The step under test: one step of one run, and the processes of its tries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainjob_audit import AuditLog
from trainjob.lifecycle import RunKey
from trainjob_local import LocalCluster

SECONDS, MAX_TRIES = 300.0, 5
_ACTOR = Path(__file__).with_name("core_actor.py")
_PATH = os.pathsep.join([str(Path(__file__).resolve().parents[4]), os.environ.get("PYTHONPATH", "")])


class StepUnderTest:
    """A step whose folder has one folder for each actor, with the actor's trap and output."""

    def __init__(self, laptop: LocalCluster, folder: Path, name: str, *, fails_first: bool = False) -> None:
        self.key = RunKey("test", "crashes", name, "run-1")
        self.folder, self._kubeconfig = folder, laptop.kubeconfig
        self._failing_command = f"test -e {folder}/mended || exit 3; " if fails_first else ""

    def start(self, actor: str, kubeconfig: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a process of an actor."""
        folder = self.folder / actor
        folder.mkdir(exist_ok=True)
        script = f"{self._failing_command}until test -e {self.folder}/go; do sleep 0.05; done"
        arguments = (kubeconfig or self._kubeconfig, folder, self.key.task, self.key.run, script)
        with (folder / "output").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, _ACTOR, *arguments], stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": _PATH}
            )

    def finish_job(self) -> None:
        (self.folder / "go").touch()

    def read_output(self, actor: str) -> str:
        return (self.folder / actor / "output").read_text()

    def is_waiting(self, actor: str) -> bool:
        """Return whether an actor's process has started to follow a TrainJob."""
        return bool(self.read_output(actor))

    def run_to_end(self, actor: str, process: subprocess.Popen[bytes] | None = None) -> None:
        """Start the actor again, as an engine does, until there is an outcome."""
        codes: list[int] = []
        while len(codes) < MAX_TRIES:
            process = process or self.start(actor)
            codes.append(process.wait(SECONDS))
            if codes[-1] == 0:
                return
            process = None
            (self.folder / "mended").touch()
        pytest.fail(f"{actor} ended with {codes}\n{self.read_output(actor)}")

    def read_report(self) -> dict[str, Any]:
        """Return the report, which the first actor that finished has written."""
        loaded: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return loaded

    def check(self, audit: AuditLog, evidence: Callable[..., None], point: str, beside: str, *, kills: int = 1) -> None:
        """Compare the API server's record with the report."""
        audit.record_and_check(evidence, self.key, point=point, actor="core", beside=beside, kills=kills)
        report, ends = self.read_report(), audit.end_states(self.key)
        assert not audit.active_uids(self.key)
        assert ends[report["reference"]["uid"]] == report["outcome"]["phase"] == "Complete"
