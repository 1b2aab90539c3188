"""Pipeline runs on the real Argo that are terminated, or lose a launcher's pod, at random times.

Each run has the exit task `cleanup`. No TrainJob of a run is active after the run's Workflow is deleted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from control_plane import ControlPlane
from tests.e2e.controlplane import kfp_workflow
from tests.e2e.controlplane.kfp_runs import (
    EXIT_STATUS,
    NAMESPACE,
    TRAINING,
    PipelineRun,
    pipelines_plane,
    run_id,
    terminate,
    wait_command,
)
from tests.e2e.controlplane.kfp_workflow import Task
from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until
from trainjob.status import derive_verdict

pytestmark = pytest.mark.timeout(7200)

RUNS, CONCURRENT_RUNS = int(os.environ.get("TERMINATIONS_RUNS", "100")), 8
ON_KILL = ("delete", "keep", "keep_on_drain")
TTL_SECONDS = 20  # as dsl.PipelineConfig(ttl_seconds_after_failure=20) sets it
SECONDS, POLL_SECONDS = 300.0, 0.5


@dataclass(frozen=True)
class Plan:
    """A run and the moment of its disturbance.

    Attributes:
        name: name of the run.
        on_kill: action of the launcher on SIGTERM.
        moment: moment of the disturbance, in a unit of the test.
        launcher_is_killed: whether the launcher gets SIGKILL before the termination.
    """

    name: str
    on_kill: str
    moment: float
    launcher_is_killed: bool


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason(argo=True):
        pytest.skip(reason)
    with pipelines_plane(tmp_path_factory.mktemp("argo") / "state") as found:
        yield found


def start_run(plane: tuple, name: str, calls: tuple) -> PipelineRun:
    (train, cleanup), (control_plane, client) = calls, plane
    workflow = kfp_workflow.workflow(
        name,
        Task("train", train),
        run=run_id(name),
        on_exit=Task("cleanup", cleanup),
        ttl_seconds_after_failure=TTL_SECONDS,
    )
    client.create(workflow, NAMESPACE)
    return PipelineRun(name, client, control_plane)


def compile_runs(plans: list[Plan], folder) -> dict[str, tuple]:
    """Return the calls of `train` and `cleanup` for each run."""
    trainings = [
        ("train", {**TRAINING, "command": wait_command(one.name), "on_kill": one.on_kill, "interruption_retries": 0})
        for one in plans
    ]
    *trains, cleanup = kfp_workflow.compile_calls([*trainings, ("cleanup", {"status": EXIT_STATUS})], folder)
    return {plan.name: (train, cleanup) for plan, train in zip(plans, trains, strict=True)}


def launcher_node(name: str) -> str:
    return f"{name}(0).root(0).exit-handler-1(0).train(0).executor(0)"


def kill_launcher(run: PipelineRun) -> bool:
    """Kill the launcher's container if it runs, and return whether it did."""
    pids = run.list_container_pids(launcher_node(run.name), "main")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def measure_start(plane: tuple, folder) -> float:
    """Return the seconds from a run's creation until its training runs, beside other runs."""
    plans = [Plan(f"first-{number}", "delete", 0.0, launcher_is_killed=False) for number in range(CONCURRENT_RUNS)]
    calls, begin = compile_runs(plans, folder), time.monotonic()
    runs = [start_run(plane, plan.name, calls[plan.name]) for plan in plans]
    for run in runs:
        run.wait_for_training()
    found = time.monotonic() - begin
    for run in runs:
        run.finish_training()
    for run in runs:
        run.wait_for_phase("Succeeded")
    return found


def is_active(job: dict) -> bool:
    return not derive_verdict(job).phase.finished


class CreatedTrainJobs:
    """The runs that have had a TrainJob, from a watch in the background."""

    def __init__(self, client) -> None:
        self._client, self._runs = client, set()
        threading.Thread(target=self._watch, name="created-trainjobs", daemon=True).start()

    def __contains__(self, run: PipelineRun) -> bool:
        return run_id(run.name) in self._runs

    def _watch(self) -> None:
        with contextlib.suppress(Exception):  # the control plane has ended
            for _, job in self._client.list_and_watch("TrainJob", NAMESPACE, seconds=7200):
                self._runs.add(job["metadata"]["labels"]["trainjob.dev/run"])


@pytest.fixture(scope="module")
def created(plane):
    return CreatedTrainJobs(plane[1])


def list_cleaned_up(run: PipelineRun) -> list[str]:
    """Return the TrainJobs that the exit task has deleted; empty if it did not run to its end."""
    hooks = [node for node in run.list_launcher_pods() if ".onExit" in node]
    with contextlib.suppress(OSError, KeyError):
        return [name for hook in hooks for name in run.executor_output(hook)["parameterValues"]["deleted"]]
    return []


def wait_for_end(run: PipelineRun, created: CreatedTrainJobs) -> str:
    """Wait until the run's Workflow is deleted, and return what has deleted its TrainJob.

    Fail if a TrainJob is active a minute later.
    """
    phase = run.wait_for_phase("Failed", "Succeeded", "Error")["status"]["phase"]
    cleaned_up, remaining = list_cleaned_up(run), list(filter(is_active, run.list_trainjobs()))
    if phase == "Succeeded":
        run.client.delete("Workflow", NAMESPACE, run.name)
    run.client.wait_until_deleted("Workflow", NAMESPACE, run.name, seconds=SECONDS)
    wait_until(lambda: not any(map(is_active, run.list_trainjobs())), 60, interval=POLL_SECONDS)
    if run.list_trainjobs():
        return "ended"
    if run not in created:
        return "none"
    return "cleanup" if cleaned_up else "owner" if remaining else "launcher"


def disturb_all(
    plane: tuple, plans: list[Plan], folder, evidence, disturb: Callable[[PipelineRun, Plan], tuple[str, str]]
) -> None:
    """Start the runs, some side by side, disturb each, and record the counts.

    `disturb` returns the kind of disturbance and its result.
    """
    calls = compile_runs(plans, folder)

    def disturb_one(plan: Plan) -> tuple[str, str]:
        return disturb(start_run(plane, plan.name, calls[plan.name]), plan)

    with ThreadPoolExecutor(CONCURRENT_RUNS) as threads:
        counts = Counter(threads.map(disturb_one, plans))
    for case in sorted({case for case, _ in counts}):
        columns = {name: counts[case, name] for name in ("launcher", "cleanup", "owner", "ended", "none")}
        print(f"{case}: {columns}")
        evidence("pipeline ends", end=case, runs=sum(columns.values()), **columns, left=0)


def test_terminated_runs_leave_no_active_trainjob(plane, created, random_numbers, evidence, tmp_path):
    seconds = measure_start(plane, tmp_path)
    print(f"a training runs after {seconds:.0f} s")
    plans = [
        Plan(f"terminated-{number}", ON_KILL[number % 3], random_numbers.uniform(0.6, 1.6), number % 4 == 0)
        for number in range(RUNS)
    ]

    def terminate_run(run: PipelineRun, plan: Plan) -> tuple[str, str]:
        time.sleep(plan.moment * seconds)
        was_killed = plan.launcher_is_killed and kill_launcher(run)
        terminate(run)
        case = f"{'killed and ' if was_killed else ''}terminated, {plan.on_kill}"
        return case, wait_for_end(run, created)

    disturb_all(plane, plans, tmp_path, evidence, terminate_run)


def test_runs_that_lose_a_pod_leave_no_active_trainjob(plane, created, random_numbers, evidence, tmp_path):
    """The launcher's container and pod disappear at once, and the training ends some seconds later."""
    plans = [
        Plan(f"lost-{number}", ON_KILL[number % 3], random_numbers.uniform(0.0, 5.0), launcher_is_killed=True)
        for number in range(RUNS)
    ]

    def lose_pod(run: PipelineRun, plan: Plan) -> tuple[str, str]:
        wait_until(lambda: run.list_container_pids(launcher_node(run.name), "main"), SECONDS, interval=POLL_SECONDS)
        time.sleep(plan.moment)
        pod = run.list_launcher_pods().get(launcher_node(run.name))
        kill_launcher(run)
        if pod is not None:
            name = pod["metadata"]["name"]
            run.client.request("DELETE", path_of("Pod", NAMESPACE, name), {"gracePeriodSeconds": 0})
        time.sleep(plan.moment)
        run.finish_training()
        return f"pod lost, {plan.on_kill}", wait_for_end(run, created)

    disturb_all(plane, plans, tmp_path, evidence, lose_pod)
