"""KFP's launcher dies at each point of a run's life, alone or beside another; then the engine's next try goes on."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.support.crash_points import (
    ADOPTION_POINTS,
    BEFORE_CLEANUP,
    CREATION_POINTS,
    FIRST_ACTOR_POINTS,
    LAUNCHER_POINTS,
    SUBMITTED,
    TERMINATION_POINTS,
    WAITING,
    arm_trap,
    kill_parameters,
    reached_by,
    release,
)
from tests.support.polling import wait_until
from trainjob.client import Connection
from trainjob.lifecycle import RunKey
from trainjob_kfp.launcher import clean_up

pytestmark = pytest.mark.timeout(300)
SECONDS, MAX_TRIES = 90.0, 5
ROOT = Path(__file__).resolve().parents[4]
STARTUP = Path(__file__).resolve().parent.with_name("startup")
PATH = os.pathsep.join([str(STARTUP), str(ROOT), os.environ.get("PYTHONPATH", "")])
UNFINISHED_POINTS = (*CREATION_POINTS, *ADOPTION_POINTS, SUBMITTED, WAITING)


class StepUnderTest:
    """The task of one pipeline run, and the launchers that work for it."""

    def __init__(self, pods, laptop, folder, *, fails_first=False):
        self.folder, self._pods, self._laptop = folder, pods, laptop
        self.run = pods.new_run()
        self.key = RunKey("kfp", self.run.workflow, "train", self.run.id)
        self._failing_command = f"test -e {folder}/mended || exit 3; " if fails_first else ""
        self._tries = 0

    def start(self, launcher):
        """A pod; its trap is in the folder of its name."""
        place = self.folder / launcher
        place.mkdir(exist_ok=True)
        script = f"{self._failing_command}until test -e {self.folder}/go; do sleep 0.05; done"
        variables = {"CRASH_FOLDER": str(place), "PYTHONPATH": PATH}
        request = {"image": "busybox", "command": ["sh", "-c"], "args": [script]}
        self._tries += 1
        return self._pods.start(self.run, self._laptop.kubeconfig, self._tries - 1, variables=variables, **request)

    def finish_job(self):
        (self.folder / "go").touch()

    def is_waiting(self, pod):
        """Whether it follows a TrainJob."""
        return "TrainJob default/" in self.read_output(pod)

    def read_output(self, pod):
        """What its processes wrote; nothing before they have begun."""
        with contextlib.suppress(Exception):
            return self._pods.said(pod)
        return ""

    def kill(self, pod):
        """The pod's container dies: all of it goes with its first process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pod.process(), signal.SIGKILL)
        assert pod.end() == "Failed"

    def run_to_end(self, launcher, pod=None):
        """Start it again, as Argo does, until it has succeeded."""
        told = ""
        for _ in range(MAX_TRIES):
            pod = pod or self.start(launcher)
            if pod.end() == "Succeeded":
                return pod
            told, pod = self.read_output(pod), None
            (self.folder / "mended").touch()
        return pytest.fail(f"{launcher} has not succeeded\n{told}")


@pytest.fixture
def step(pods, laptop, tmp_path, request):
    point = request.node.callspec.params["point"]
    made = StepUnderTest(pods, laptop, tmp_path, fails_first=point.fails_first)
    yield made
    made.finish_job()


def check_result(step, audit, evidence, point, beside, pod, kills=1):
    """What the API server saw, beside what the launcher told KFP."""
    audit.judge(evidence, step.key, point=point.name, actor="KFP launcher", beside=beside, kills=kills)
    told, ends = pod.output()["parameterValues"], audit.ends(step.key)
    assert not audit.active(step.key)
    assert ends[told["uid"]] == told["status"] == "Complete"
    assert told["uid"] == audit.made(step.key)[-1]


@pytest.mark.parametrize("point", kill_parameters(LAUNCHER_POINTS))
def test_dies_alone(step, audit, evidence, point):
    kills = 1 + kill_first_launcher(step, point)
    arm_trap(step.folder / "first", point)
    if point not in UNFINISHED_POINTS:
        step.let_job_end()
    first = step.start("first")
    assert first.end() == "Failed"
    assert reached_by(step.folder / "first"), step.said(first)
    step.let_job_end()
    check_result(step, audit, evidence, point, "alone", step.to_its_end("first"), kills=kills)


def kill_first_launcher(step, point):
    """Where there must be something to adopt: its maker is dead. The number of kills."""
    if point not in ADOPTION_POINTS:
        return 0
    maker = step.start("maker")
    wait_until(lambda: step.waits(maker), SECONDS)
    step.kill(maker)
    return 1


@pytest.mark.slow
@pytest.mark.parametrize("point", LAUNCHER_POINTS, ids=lambda point: point.slug)
def test_dies_beside_another(step, audit, evidence, point):
    """Both are brought to the point, if it is there for both; one dies there, and is started again."""
    kills = 1 + kill_first_launcher(step, point)
    for launcher in ("first", "second"):
        arm_trap(step.folder / launcher, point, "hold")
    if point not in UNFINISHED_POINTS:
        step.let_job_end()
    first = step.start("first")
    wait_until(lambda: reached_by(step.folder / "first"), SECONDS)
    second = step.start("second")
    wait_until(
        lambda: reached_by(step.folder / "second") or (point in FIRST_ACTOR_POINTS and step.waits(second)), SECONDS
    )
    step.kill(first)
    again = step.start("first")
    release(step.folder / "second")
    step.let_job_end()
    ended = [step.to_its_end("second", second), step.to_its_end("first", again)]
    check_result(step, audit, evidence, point, "racing", ended[0], kills=kills)
    assert ended[1].output()["parameterValues"]["uid"] == ended[0].output()["parameterValues"]["uid"]


@pytest.mark.slow
@pytest.mark.parametrize("point", TERMINATION_POINTS, ids=lambda point: point.slug)
def test_dies_while_it_cleans_up(step, audit, evidence, laptop, point):
    """The run is terminated: nobody tries again, and what is left is for the exit handler's `cleanup`."""
    arm_trap(step.folder / "first", point)
    first = step.start("first")
    wait_until(lambda: step.waits(first), SECONDS)
    os.kill(first.process(), signal.SIGTERM)
    assert first.end() == "Failed"
    assert reached_by(step.folder / "first"), step.said(first)
    key = RunKey("kfp", step.run.workflow, "clean-up", step.run.id)
    left = clean_up(connection=Connection(kubeconfig=str(laptop.kubeconfig)), key=key)
    more, name = f"; left for the exit handler's cleanup: {len(left)}", f"terminated: {point.name}"
    audit.judge(evidence, step.key, point=name, actor="KFP launcher", beside="alone", kills=1, more=more)
    assert not audit.active(step.key)
    if point.name != "clean-up sent":  # then it may be on its way
        assert bool(left) == (point is BEFORE_CLEANUP)


@pytest.mark.slow
@pytest.mark.parametrize("point", [BEFORE_CLEANUP], ids=lambda point: point.slug)
def test_a_launcher_that_was_taken_for_lost_deletes_what_the_next_try_has_adopted(step, audit, evidence, point):
    """Its node was away, so that Argo has started another one; the node is back, and its kubelet ends the old pod."""
    arm_trap(step.folder / "first", point, "pass")
    first = step.start("first")
    wait_until(lambda: step.waits(first), SECONDS)
    second = step.start("second")
    wait_until(lambda: step.waits(second), SECONDS)
    os.kill(int((step.folder / "first" / "pid").read_text()), signal.SIGTERM)
    assert first.end() == "Failed"
    assert reached_by(step.folder / "first"), step.said(first)
    step.let_job_end()
    assert second.end() == "Succeeded", step.said(second)
    check_result(step, audit, evidence, point, "racing", second, kills=0)
