"""One try of a step with the core alone.

Usage: core_actor.py KUBECONFIG FOLDER TASK RUN SCRIPT. The program submits or adopts the TrainJob and waits. Then it
writes the outcome where the next try and others find it, and cleans up. Its exit code is 1 if the step failed, so that
its caller tries again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from tests.support import crash_points
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import JobReference, Listener, RunKey, cancel, submit, wait
from trainjob.status import Outcome, Phase


def write_report(path: Path, reference: JobReference, outcome: Outcome) -> None:
    """Write the report completely and once; a later report leaves the first one unchanged."""
    mine = path.with_suffix(f".{os.getpid()}")
    mine.write_text(json.dumps({"reference": reference.to_dict(), "outcome": outcome.to_dict()}))
    with contextlib.suppress(FileExistsError):
        os.link(mine, path)


def clean_up(cluster: Cluster, path: Path) -> None:
    cancel(cluster, JobReference(**json.loads(path.read_text())["reference"]))


def is_first_process(path: Path) -> bool:
    """Return whether no other process of this step has called this function before."""
    try:
        path.with_name("submitted").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def run_step(cluster: Cluster, key: RunKey, script: str, path: Path) -> bool:
    """Run the step to its end, and return whether it has an outcome."""
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))
    reference = submit(cluster, job, key, timeout=30.0, first_submission=is_first_process(path))
    listener = Listener(on_phase=lambda verdict: print(verdict.phase.value, flush=True))
    outcome = wait(cluster, reference, listener=listener)
    if outcome.phase is Phase.COMPLETE:
        sys.modules["core_actor"].write_report(path, reference, outcome)
    return path.exists()  # also if another try has completed and deleted the TrainJob for which this one waited


def main(kubeconfig: str, folder: str, task: str, run: str, script: str) -> None:
    sys.modules["core_actor"] = sys.modules["__main__"]  # the points use this module name
    crash_points.install_traps(crash_points.CORE_POINTS, Path(folder))
    path = Path(folder).parent / "report.json"
    with contextlib.closing(Cluster(Connection(kubeconfig=kubeconfig), retry_seconds=30.0)) as cluster:
        if not path.exists() and not run_step(cluster, RunKey("test", "crashes", task, run), script, path):
            sys.exit(1)
        sys.modules["core_actor"].clean_up(cluster, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
