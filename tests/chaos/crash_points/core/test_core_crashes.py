"""The core's process dies at each point of a run's life, alone or beside another; then it is started again."""

from __future__ import annotations

import signal

import pytest

from tests.chaos.crash_points.core.core_steps import SECONDS, StepUnderTest
from tests.chaos.crash_points.core.holding_proxy import HoldingProxy
from tests.support.crash_points import (
    ADOPTION_POINTS,
    BEFORE_CREATE,
    CORE_POINTS,
    CREATION_POINTS,
    FIRST_ACTOR_POINTS,
    SUBMITTED,
    WAITING,
    arm_trap,
    kill_parameters,
    reached_by,
    release,
)
from tests.support.polling import wait_until
from trainjob.manifest import labels

pytestmark = pytest.mark.timeout(180)
UNFINISHED_POINTS = (*CREATION_POINTS, *ADOPTION_POINTS, SUBMITTED, WAITING)


@pytest.fixture
def step(laptop, unique, tmp_path, request):
    point = getattr(request.node, "callspec", None) and request.node.callspec.params["point"]
    made = StepUnderTest(laptop, tmp_path, unique, fails_first=bool(point and point.fails_first))
    yield made
    made.finish_job()


@pytest.mark.parametrize("point", kill_parameters(CORE_POINTS))
def test_dies_alone(step, audit, evidence, point):
    kills = 1 + kill_first_actor(step, point)
    arm_trap(step.folder / "first", point)
    if point not in UNFINISHED_POINTS:
        step.let_job_end()
    first = step.start("first")
    assert first.wait(SECONDS) == -signal.SIGKILL, step.said("first")
    assert reached_by(step.folder / "first") == first.pid
    step.let_job_end()
    step.to_its_end("first")
    step.check(audit, evidence, point.name, "alone", kills=kills)


def kill_first_actor(step, point):
    """Where there must be something to adopt: its maker is dead. The number of kills."""
    if point not in ADOPTION_POINTS:
        return 0
    maker = step.start("maker")
    wait_until(lambda: step.waits("maker"), SECONDS)
    maker.kill()
    maker.wait(SECONDS)
    return 1


@pytest.mark.slow
@pytest.mark.parametrize("point", CORE_POINTS, ids=lambda point: point.slug)
def test_dies_beside_another(step, audit, evidence, point):
    """Both are brought to the point, if it is there for both; one dies there, and is started again."""
    kills = 1 + kill_first_actor(step, point)
    for actor in ("first", "second"):
        arm_trap(step.folder / actor, point, "hold")
    if point not in UNFINISHED_POINTS:
        step.let_job_end()
    first = step.start("first")
    wait_until(lambda: reached_by(step.folder / "first"), SECONDS)
    second = step.start("second")
    wait_until(
        lambda: reached_by(step.folder / "second") or second.poll() is not None or is_adopting(step, point), SECONDS
    )
    first.kill()
    first.wait(SECONDS)
    again = step.start("first")
    release(step.folder / "second")
    step.let_job_end()
    step.to_its_end("second", second)
    step.to_its_end("first", again)
    step.check(audit, evidence, point.name, "racing", kills=kills)


def is_adopting(step, point):
    return point in FIRST_ACTOR_POINTS and step.waits("second")


def test_what_the_dead_one_has_sent_arrives_when_the_next_one_has_decided(step, audit, evidence, laptop):
    """It is in the way of the next one's own creation, which adopts it."""
    with HoldingProxy(laptop, labels.TASK) as proxy:  # only the request to create has it
        first = step.start("first", proxy.write_kubeconfig(step.folder / "kubeconfig"))
        assert proxy.held.wait(SECONDS)
        first.kill()
        first.wait(SECONDS)
        arm_trap(step.folder / "second", BEFORE_CREATE, "hold")
        second = step.start("second")
        wait_until(lambda: reached_by(step.folder / "second"), SECONDS)
        assert not audit.made(step.key)
        proxy.release()
        wait_until(lambda: audit.made(step.key), SECONDS)
        release(step.folder / "second")
        step.let_job_end()
        step.to_its_end("second", second)
    step.check(audit, evidence, "create sent, arrives after the next one has decided", "racing")
    assert len(audit.made(step.key)) == 1
