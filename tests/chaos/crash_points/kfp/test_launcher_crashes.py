"""Tests that kill the KFP launcher at each crash point of a run, alone or beside a second launcher.

Then the next try of the workflow engine continues.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.support.crash_points import (
    ADOPTION_POINTS,
    BEFORE_CLEANUP,
    BEFORE_PAUSE,
    CREATION_POINTS,
    FIRST_ACTOR_POINTS,
    LAUNCHER_POINTS,
    RESUBMISSION_POINTS,
    SUBMITTED,
    TERMINATION_POINTS,
    WAITING,
    arm_trap,
    kill_parameters,
    reached_by,
    release,
)
from tests.support.interruptions import evict
from tests.support.polling import wait_until
from trainjob.client import Connection
from trainjob.lifecycle import RunKey
from trainjob.manifest import labels
from trainjob_kfp.launcher import clean_up

SECONDS, MAX_TRIES = 300.0, 5
ROOT = Path(__file__).resolve().parents[4]
STARTUP = Path(__file__).resolve().parent.with_name("startup")
PATH = os.pathsep.join([str(STARTUP), str(ROOT), os.environ.get("PYTHONPATH", "")])
UNFINISHED_POINTS = (*CREATION_POINTS, *ADOPTION_POINTS, SUBMITTED, WAITING)


class StepUnderTest:
    """The task of one pipeline run, and its launchers."""

    def __init__(self, pods, laptop, folder, *, fails_first=False):
        self.folder, self._pods, self._laptop = folder, pods, laptop
        self.run = pods.new_run()
        self.key = RunKey("kfp", self.run.workflow, "train", self.run.id)
        self._failing_command = f"test -e {folder}/mended || exit 3; " if fails_first else ""
        self._tries = 0

    def start(self, launcher, **options):
        """Start a pod whose trap is in the folder of the launcher's name.

        The options are further arguments of the component.
        """
        folder = self.folder / launcher
        folder.mkdir(exist_ok=True)
        script = f"{self._failing_command}until test -e {self.folder}/go; do sleep 0.05; done"
        variables = {"CRASH_FOLDER": str(folder), "PYTHONPATH": PATH}
        request = {"image": "busybox", "command": ["sh", "-c"], "args": [script], **options}
        self._tries += 1
        return self._pods.start(self.run, self._laptop.kubeconfig, self._tries - 1, variables=variables, **request)

    def finish_job(self):
        (self.folder / "go").touch()

    def is_waiting(self, pod):
        """Return whether the pod's launcher waits for a TrainJob."""
        return "TrainJob default/" in self.read_output(pod)

    def read_output(self, pod):
        """Return the pod's log; empty before its processes have started."""
        with contextlib.suppress(Exception):
            return self._pods.read_log(pod)
        return ""

    def kill(self, pod):
        """Kill the pod's container by its first process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pod.wait_for_process(), signal.SIGKILL)
        assert pod.wait_for_end() == "Failed"

    def run_to_end(self, launcher, pod=None):
        """Start the launcher again, as Argo does, until it has succeeded; return its pod."""
        output = ""
        for _ in range(MAX_TRIES):
            pod = pod or self.start(launcher)
            if pod.wait_for_end() == "Succeeded":
                return pod
            output, pod = self.read_output(pod), None
            (self.folder / "mended").touch()
        return pytest.fail(f"{launcher} has not succeeded\n{output}")


@pytest.fixture
def step(pods, laptop, tmp_path, request):
    point = request.node.callspec.params["point"]
    made = StepUnderTest(pods, laptop, tmp_path, fails_first=point.fails_first)
    yield made
    made.finish_job()


def check_result(step, audit, evidence, point, beside, pod, kills=1):
    """Compare the API server's record with the output of the launcher."""
    audit.record_and_check(evidence, step.key, point=point.name, actor="KFP launcher", beside=beside, kills=kills)
    outputs, ends = pod.executor_output()["parameterValues"], audit.end_states(step.key)
    assert not audit.active_uids(step.key)
    assert ends[outputs["uid"]] == outputs["status"] == "Complete"
    assert outputs["uid"] == audit.created_uids(step.key)[-1]


@pytest.mark.parametrize("point", kill_parameters(LAUNCHER_POINTS))
def test_a_launcher_that_dies_is_replaced_by_its_next_try(step, audit, evidence, point):
    kills = 1 + kill_first_launcher(step, point)
    arm_trap(step.folder / "first", point)
    if point not in UNFINISHED_POINTS:
        step.finish_job()
    first = step.start("first")
    assert first.wait_for_end() == "Failed"
    assert reached_by(step.folder / "first"), step.read_output(first)
    step.finish_job()
    check_result(step, audit, evidence, point, "alone", step.run_to_end("first"), kills=kills)


@pytest.mark.parametrize("point", kill_parameters(RESUBMISSION_POINTS))
def test_a_launcher_that_dies_after_an_interruption_leaves_one_trainjob(step, audit, evidence, cluster, point):
    """The next try creates the attempt that the first one could not create, or adopts the one that it created."""
    first, selector = step.start("first"), f"{labels.RUN_KEY}={step.key.digest}"
    wait_until(lambda: step.is_waiting(first), SECONDS)
    wait_until(lambda: "Running" in step.read_output(first), SECONDS)
    arm_trap(step.folder / "first", point)
    evict(cluster, selector)
    assert first.wait_for_end() == "Failed"
    assert reached_by(step.folder / "first"), step.read_output(first)
    second = step.start("first")
    wait_until(lambda: "TrainJob default/" in step.read_output(second), SECONDS)
    [job] = cluster.list_trainjobs("default", selector)
    assert labels.get_interruptions(job) == ("adopted" in step.read_output(second))
    step.finish_job()
    check_result(step, audit, evidence, point, "interrupted", step.run_to_end("first", second))


@pytest.mark.parametrize("point", [BEFORE_PAUSE], ids=lambda point: point.slug)
def test_a_launcher_that_dies_before_another_attempt_is_replaced_by_its_next_try(step, audit, evidence, cluster, point):
    """The next try creates its first TrainJob, so that it starts a new count of failures."""
    arm_trap(step.folder / "first", point)
    step.finish_job()
    first = step.start("first", attempts=2)
    assert first.wait_for_end() == "Failed"
    assert reached_by(step.folder / "first"), step.read_output(first)
    (step.folder / "mended").touch()
    ended = step.run_to_end("first")
    [complete] = [
        job
        for job in cluster.list_trainjobs("default", f"{labels.RUN_KEY}={step.key.digest}")
        if job["metadata"]["uid"] == ended.executor_output()["parameterValues"]["uid"]
    ]
    assert labels.get_failures(complete) == 0
    check_result(step, audit, evidence, point, "alone", ended)


def kill_first_launcher(step, point):
    """Kill a first launcher if a TrainJob must exist to adopt; return the number of kills."""
    if point not in ADOPTION_POINTS:
        return 0
    creator = step.start("creator")
    wait_until(lambda: step.is_waiting(creator), SECONDS)
    step.kill(creator)
    return 1


@pytest.mark.slow
@pytest.mark.parametrize("point", LAUNCHER_POINTS, ids=lambda point: point.slug)
def test_a_launcher_that_dies_beside_a_second_one_leaves_one_trainjob(step, audit, evidence, point):
    """Both launchers are held at the point if both reach it; the first one dies there and is started again."""
    kills = 1 + kill_first_launcher(step, point)
    for launcher in ("first", "second"):
        arm_trap(step.folder / launcher, point, "hold")
    if point not in UNFINISHED_POINTS:
        step.finish_job()
    first = step.start("first")
    wait_until(lambda: reached_by(step.folder / "first"), SECONDS)
    second = step.start("second")
    wait_until(
        lambda: reached_by(step.folder / "second") or (point in FIRST_ACTOR_POINTS and step.is_waiting(second)), SECONDS
    )
    step.kill(first)
    again = step.start("first")
    release(step.folder / "second")
    step.finish_job()
    ended = [step.run_to_end("second", second), step.run_to_end("first", again)]
    check_result(step, audit, evidence, point, "racing", ended[0], kills=kills)
    assert ended[1].executor_output()["parameterValues"]["uid"] == ended[0].executor_output()["parameterValues"]["uid"]


@pytest.mark.slow
@pytest.mark.parametrize("point", TERMINATION_POINTS, ids=lambda point: point.slug)
def test_the_exit_handler_ends_the_trainjob_of_a_launcher_that_dies_in_its_cleanup(
    step, audit, evidence, laptop, point
):
    """Argo does not retry a terminated run, so the exit handler's `cleanup` ends the remaining TrainJob."""
    arm_trap(step.folder / "first", point)
    first = step.start("first")
    wait_until(lambda: step.is_waiting(first), SECONDS)
    os.kill(first.wait_for_process(), signal.SIGTERM)
    assert first.wait_for_end() == "Failed"
    assert reached_by(step.folder / "first"), step.read_output(first)
    key = RunKey("kfp", step.run.workflow, "clean-up", step.run.id)
    remaining = clean_up(connection=Connection(kubeconfig=str(laptop.kubeconfig)), key=key)
    suffix, name = f"; left for the exit handler's cleanup: {len(remaining)}", f"terminated: {point.name}"
    audit.record_and_check(evidence, step.key, point=name, actor="KFP launcher", beside="alone", kills=1, suffix=suffix)
    assert not audit.active_uids(step.key)
    if point is BEFORE_CLEANUP:  # later, the TrainJob is being deleted, and may exist until its pods are gone
        assert remaining


@pytest.mark.slow
@pytest.mark.parametrize("point", [BEFORE_CLEANUP], ids=lambda point: point.slug)
def test_the_next_try_survives_that_a_lost_launcher_deletes_its_adopted_trainjob(step, audit, evidence, point):
    """The launcher's node was unreachable, so Argo started a second launcher, which adopted the TrainJob.

    Then the node is back, and its kubelet ends the old pod, which deletes the TrainJob.
    """
    arm_trap(step.folder / "first", point, "pass")
    first = step.start("first")
    wait_until(lambda: step.is_waiting(first), SECONDS)
    second = step.start("second")
    wait_until(lambda: step.is_waiting(second), SECONDS)
    os.kill(int((step.folder / "first" / "pid").read_text()), signal.SIGTERM)
    assert first.wait_for_end() == "Failed"
    assert reached_by(step.folder / "first"), step.read_output(first)
    step.finish_job()
    assert second.wait_for_end() == "Succeeded", step.read_output(second)
    check_result(step, audit, evidence, point, "racing", second, kills=0)
