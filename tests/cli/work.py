"""TrainJobs for the tests of the command: small ones that end when they are told to."""

from __future__ import annotations

from pathlib import Path

import yaml

from waiting_for import until


class Work:
    """A file with one step whose training waits for a gate, then ends with a code."""

    def __init__(self, folder: Path, name: str, *, code: int = 0, nodes: int = 1, say: str = "", **fields: object):
        self.file, self._gate = folder / f"{name}.yaml", folder / f"{name}.gate"
        waits = f"until [ -e {self._gate} ]; do sleep 0.05; done"
        script = f"{say or 'echo begun'}; {waits}; echo done; exit {code}"
        trainer = {"image": "busybox", "command": ["sh", "-c", script], "num_nodes": nodes}
        self.document = {"step": "TrainJob", "name": name, "trainer": trainer, **fields}
        self.file.write_text(yaml.safe_dump(self.document))

    def finish(self) -> None:
        """Let it end."""
        self._gate.touch()


def one(cluster, namespace, **wanted):
    """The only TrainJob of a namespace, once there is one; `phase="Running"` waits for that."""
    from trainjob.status import judge

    def look():
        jobs = cluster.list_trainjobs(namespace)
        phases = [judge(job).phase.value for job in jobs]
        return jobs if jobs and wanted.get("phase", phases[0]) == phases[0] else None

    [job] = until(look)
    return job
