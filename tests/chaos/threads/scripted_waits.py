"""Waits for scripted TrainJobs: each one runs until the test ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.chaos.logs.scripted_jobs import ScriptedCluster, ScriptedJob
from trainjob.client import Cluster, LogWriter
from trainjob.lifecycle import Limits, Listener, wait, wait_async
from trainjob.status import Outcome, Phase

LINES = ("first", "second", "third")
EXIT_CODE = 3
SUCCESS, FAILURE, RESTART = "success", "failure", "restart"
_LIMITS = Limits(max_restarts=0)


def create_job(cluster: ScriptedCluster, name: str) -> ScriptedJob:
    """Create a TrainJob with one pod that has written its lines and still runs."""
    job = cluster.create_job(name, 1, ["node"], 0.001)
    [[container]] = job.containers.values()
    container.runs[-1].write([f"{line}\n".encode() for line in LINES])
    return job


def end_job(job: ScriptedJob, end: str) -> None:
    """Let the container end or restart; a container that has ended ends the TrainJob."""
    [[container]] = job.containers.values()
    if end == RESTART:
        job.restart(container)
        container.runs[-1].write([b"again\n"])
        job.report(container.pod)
    else:
        job.end_container(container, EXIT_CODE if end == FAILURE else 0)
        job.finish("Failed" if end == FAILURE else "Complete")


def check_result(result: tuple[Outcome, list[str]], end: str) -> None:
    """Check the outcome of a wait, and that each line was written once."""
    outcome, written = result
    expected = {
        SUCCESS: (Phase.COMPLETE, "r", None),
        FAILURE: (Phase.FAILED, "r", EXIT_CODE),
        RESTART: (Phase.FAILED, "RestartLimitExceeded", 1),
    }
    assert (outcome.phase, outcome.reason, outcome.exit_code) == expected[end]
    lines = [f"[node-0] {line}" for line in LINES]
    assert [line for line in written if line in lines] == lines


def wait_blocking(cluster: Cluster, job: ScriptedJob) -> tuple[Outcome, list[str]]:
    """Wait on this thread; return the outcome and the written log, as the KFP launcher does."""
    written: list[str] = []
    with LogWriter().open(written.append) as log:
        outcome = wait(cluster, job.reference, limits=_LIMITS, listener=Listener(on_log=log.put))
    return outcome, written


def wait_on_loop(cluster: Cluster, job: ScriptedJob) -> tuple[Outcome, list[str]]:
    """Wait on an event loop, as Airflow's trigger does; return the outcome and the log."""
    return asyncio.run(follow(cluster, job))


async def follow(cluster: Cluster, job: ScriptedJob, writer: LogWriter | None = None) -> tuple[Outcome, list[str]]:
    """Wait on the running event loop; return the outcome and the written log."""
    written: list[str] = []
    log = (writer or LogWriter()).open(written.append)
    listener = Listener(on_log=log.put)
    try:
        outcome = await wait_async(cluster, job.reference, limits=_LIMITS, listener=listener)
    finally:
        await log.finish_async()
    return outcome, written


Wait = Callable[[Cluster, ScriptedJob], tuple[Outcome, list[str]]]
