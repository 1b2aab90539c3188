"""Try of a step whose project travels.

Usage: code_actor.py KUBECONFIG FOLDER PROJECT RUN WORKSPACE. The program submits or adopts the TrainJob, waits, and
prints the log lines of its pod. FOLDER may have an armed trap. Without a WORKSPACE, the text is empty.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from tests.support import crash_points
from trainjob import Code, CustomTrainerContainer, RunKey, TrainJob, WorkspaceVolume, submit, wait
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener

API = "trainjob.client.cluster:Cluster"
BEFORE_CONFIG_MAP = crash_points.CrashPoint("about to send code", "before", f"{API}.create_config_map")
AFTER_CONFIG_MAP = crash_points.CrashPoint("code sent", "after", f"{API}.create_config_map")


def main(kubeconfig: str, folder: str, project: str, run: str, workspace: str) -> None:
    crash_points.install_traps([BEFORE_CONFIG_MAP, AFTER_CONFIG_MAP], Path(folder))
    trainer = CustomTrainerContainer(
        image="busybox", command=("python", "train.py"), code=Code(path=project), num_nodes=1
    )
    request = TrainJob(trainer=trainer, workspace=WorkspaceVolume(node_path=workspace) if workspace else None)
    with contextlib.closing(Cluster(Connection(kubeconfig=kubeconfig), retry_seconds=30.0)) as cluster:
        reference = submit(cluster, request, RunKey("test", "code", "train", run), on_notice=print)
        listener = Listener(on_log=lambda line: print(line.text, flush=True))
        wait(cluster, reference, listener=listener).raise_for_failure()


if __name__ == "__main__":
    main(*sys.argv[1:])
