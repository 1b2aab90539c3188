"""Step files for tests of the command; their containers end when the test opens a gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.polling import wait_until
from trainjob.client import Cluster
from trainjob.status import derive_verdict


class GatedStep:
    """A file with one step whose container waits for a gate, then exits with `code`."""

    def __init__(
        self, folder: Path, name: str, *, code: int = 0, nodes: int = 1, first_command: str = "", **fields: object
    ) -> None:
        self.file, self._gate = folder / f"{name}.yaml", folder / f"{name}.gate"
        wait_loop = f"until [ -e {self._gate} ]; do sleep 0.05; done"
        script = f"{first_command or 'echo begun'}; {wait_loop}; echo done; exit {code}"
        trainer = {"image": "busybox", "command": ["sh", "-c", script], "num_nodes": nodes}
        self.document = {"step": "TrainJob", "name": name, "trainer": trainer, **fields}
        self.file.write_text(yaml.safe_dump(self.document))

    def open_gate(self) -> None:
        """Open the gate, so that the container exits."""
        self._gate.touch()


def wait_for_only_trainjob(cluster: Cluster, namespace: str, phase: str | None = None) -> dict[str, Any]:
    """Return the only TrainJob of a namespace when it exists and is in `phase`, if given."""

    def find_jobs() -> list[dict[str, Any]] | None:
        jobs = cluster.list_trainjobs(namespace)
        phases = [derive_verdict(job).phase.value for job in jobs]
        return jobs if jobs and phase in (None, phases[0]) else None

    [job] = wait_until(find_jobs)
    return job
