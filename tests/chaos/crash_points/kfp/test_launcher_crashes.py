"""KFP's launcher dies at each point of a run's life, alone or beside another; then the engine's next try goes on."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.support.crash_points import (
    ABOUT_TO_DELETE,
    ADOPTION,
    CREATION,
    LAUNCHER,
    ONLY_FOR_ONE,
    SUBMITTED,
    TERMINATION,
    WAITING,
    arm,
    dying_alone,
    let_go,
    reached,
)
from tests.support.polling import until
from trainjob.client import Connection
from trainjob.lifecycle import RunKey
from trainjob_kfp.launcher import clean_up

pytestmark = pytest.mark.timeout(300)
SECONDS, MOST_TRIES = 90.0, 5
ROOT = Path(__file__).resolve().parents[4]
STARTUP = Path(__file__).resolve().parent.with_name("startup")
PATH = os.pathsep.join([str(STARTUP), str(ROOT), os.environ.get("PYTHONPATH", "")])
BEFORE_THE_END = (*CREATION, *ADOPTION, SUBMITTED, WAITING)


class Step:
    """The task of one pipeline run, and the launchers that work for it."""

    def __init__(self, pods, laptop, folder, *, fails_first=False):
        self.folder, self._pods, self._laptop = folder, pods, laptop
        self.run = pods.new_run()
        self.key = RunKey("kfp", self.run.workflow, "train", self.run.id)
        self._fails = f"test -e {folder}/mended || exit 3; " if fails_first else ""
        self._tries = 0

    def start(self, launcher):
        """A pod; its trap is in the folder of its name."""
        place = self.folder / launcher
        place.mkdir(exist_ok=True)
        script = f"{self._fails}until test -e {self.folder}/go; do sleep 0.05; done"
        variables = {"CRASH_FOLDER": str(place), "PYTHONPATH": PATH}
        request = {"image": "busybox", "command": ["sh", "-c"], "args": [script]}
        self._tries += 1
        return self._pods.start(self.run, self._laptop.kubeconfig, self._tries - 1, variables=variables, **request)

    def let_job_end(self):
        (self.folder / "go").touch()

    def waits(self, pod):
        """Whether it follows a TrainJob."""
        return "TrainJob default/" in self.said(pod)

    def said(self, pod):
        """What its processes wrote; nothing before they have begun."""
        with contextlib.suppress(Exception):
            return self._pods.said(pod)
        return ""

    def kill(self, pod):
        """The pod's container dies: all of it goes with its first process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pod.process(), signal.SIGKILL)
        assert pod.end() == "Failed"

    def to_its_end(self, launcher, pod=None):
        """Start it again, as Argo does, until it has succeeded."""
        told = ""
        for _ in range(MOST_TRIES):
            pod = pod or self.start(launcher)
            if pod.end() == "Succeeded":
                return pod
            told, pod = self.said(pod), None
            (self.folder / "mended").touch()
        return pytest.fail(f"{launcher} has not succeeded\n{told}")


@pytest.fixture
def step(pods, laptop, tmp_path, request):
    point = request.node.callspec.params["point"]
    made = Step(pods, laptop, tmp_path, fails_first=point.fails_first)
    yield made
    made.let_job_end()


def check(step, audit, evidence, point, beside, pod, kills=1):
    """What the API server saw, beside what the launcher told KFP."""
    audit.judge(evidence, step.key, point=point.name, actor="KFP launcher", beside=beside, kills=kills)
    told, ends = pod.output()["parameterValues"], audit.ends(step.key)
    assert not audit.active(step.key)
    assert ends[told["uid"]] == told["status"] == "Complete"
    assert told["uid"] == audit.made(step.key)[-1]


@pytest.mark.parametrize("point", dying_alone(LAUNCHER))
def test_dies_alone(step, audit, evidence, point):
    kills = 1 + another_has_died(step, point)
    arm(step.folder / "first", point)
    if point not in BEFORE_THE_END:
        step.let_job_end()
    first = step.start("first")
    assert first.end() == "Failed"
    assert reached(step.folder / "first"), step.said(first)
    step.let_job_end()
    check(step, audit, evidence, point, "alone", step.to_its_end("first"), kills=kills)


def another_has_died(step, point):
    """Where there must be something to adopt: its maker is dead. The number of kills."""
    if point not in ADOPTION:
        return 0
    maker = step.start("maker")
    until(lambda: step.waits(maker), SECONDS)
    step.kill(maker)
    return 1


@pytest.mark.slow
@pytest.mark.parametrize("point", LAUNCHER, ids=lambda point: point.slug)
def test_dies_beside_another(step, audit, evidence, point):
    """Both are brought to the point, if it is there for both; one dies there, and is started again."""
    kills = 1 + another_has_died(step, point)
    for launcher in ("first", "second"):
        arm(step.folder / launcher, point, "hold")
    if point not in BEFORE_THE_END:
        step.let_job_end()
    first = step.start("first")
    until(lambda: reached(step.folder / "first"), SECONDS)
    second = step.start("second")
    until(lambda: reached(step.folder / "second") or (point in ONLY_FOR_ONE and step.waits(second)), SECONDS)
    step.kill(first)
    again = step.start("first")
    let_go(step.folder / "second")
    step.let_job_end()
    ended = [step.to_its_end("second", second), step.to_its_end("first", again)]
    check(step, audit, evidence, point, "racing", ended[0], kills=kills)
    assert ended[1].output()["parameterValues"]["uid"] == ended[0].output()["parameterValues"]["uid"]


@pytest.mark.slow
@pytest.mark.parametrize("point", TERMINATION, ids=lambda point: point.slug)
def test_dies_while_it_cleans_up(step, audit, evidence, laptop, point):
    """The run is terminated: nobody tries again, and what is left is for the exit handler's `cleanup`."""
    arm(step.folder / "first", point)
    first = step.start("first")
    until(lambda: step.waits(first), SECONDS)
    os.kill(first.process(), signal.SIGTERM)
    assert first.end() == "Failed"
    assert reached(step.folder / "first"), step.said(first)
    key = RunKey("kfp", step.run.workflow, "clean-up", step.run.id)
    left = clean_up(connection=Connection(kubeconfig=str(laptop.kubeconfig)), key=key)
    more, name = f"; left for the exit handler's cleanup: {len(left)}", f"terminated: {point.name}"
    audit.judge(evidence, step.key, point=name, actor="KFP launcher", beside="alone", kills=1, more=more)
    assert not audit.active(step.key)
    if point.name != "clean-up sent":  # then it may be on its way
        assert bool(left) == (point is ABOUT_TO_DELETE)


@pytest.mark.slow
@pytest.mark.parametrize("point", [ABOUT_TO_DELETE], ids=lambda point: point.slug)
def test_a_launcher_that_was_taken_for_lost_deletes_what_the_next_try_has_adopted(step, audit, evidence, point):
    """Its node was away, so that Argo has started another one; the node is back, and its kubelet ends the old pod."""
    arm(step.folder / "first", point, "pass")
    first = step.start("first")
    until(lambda: step.waits(first), SECONDS)
    second = step.start("second")
    until(lambda: step.waits(second), SECONDS)
    os.kill(int((step.folder / "first" / "pid").read_text()), signal.SIGTERM)
    assert first.end() == "Failed"
    assert reached(step.folder / "first"), step.said(first)
    step.let_job_end()
    assert second.end() == "Succeeded", step.said(second)
    check(step, audit, evidence, point, "racing", second, kills=0)
