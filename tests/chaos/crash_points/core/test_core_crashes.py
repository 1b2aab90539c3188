"""Tests that kill a process of the core at each crash point of a run, alone or beside a second process.

Then the process is started again.
"""

from __future__ import annotations

import json
import signal

import pytest

from tests.chaos.crash_points.core.core_steps import SECONDS, StepUnderTest
from tests.support.api_proxy import ApiProxy
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

UNFINISHED_POINTS = (*CREATION_POINTS, *ADOPTION_POINTS, SUBMITTED, WAITING)


@pytest.fixture
def step(laptop, unique, tmp_path, request):
    point = getattr(request.node, "callspec", None) and request.node.callspec.params["point"]
    made = StepUnderTest(laptop, tmp_path, unique, fails_first=bool(point and point.fails_first))
    yield made
    made.finish_job()


@pytest.mark.parametrize("point", kill_parameters(CORE_POINTS))
def test_a_process_that_dies_is_replaced_by_its_next_try(step, audit, evidence, point):
    kills = 1 + kill_first_actor(step, point)
    arm_trap(step.folder / "first", point)
    if point not in UNFINISHED_POINTS:
        step.finish_job()
    first = step.start("first")
    assert first.wait(SECONDS) == -signal.SIGKILL, step.read_output("first")
    assert reached_by(step.folder / "first") == first.pid
    step.finish_job()
    step.run_to_end("first")
    step.check(audit, evidence, point.name, "alone", kills=kills)


def kill_first_actor(step, point):
    """Kill a first process if there must be a TrainJob to adopt; return the number of kills."""
    if point not in ADOPTION_POINTS:
        return 0
    creator = step.start("creator")
    wait_until(lambda: step.is_waiting("creator"), SECONDS)
    creator.kill()
    creator.wait(SECONDS)
    return 1


@pytest.mark.slow
@pytest.mark.parametrize("point", CORE_POINTS, ids=lambda point: point.slug)
def test_a_process_that_dies_beside_a_second_one_leaves_one_trainjob(step, audit, evidence, point):
    """Both processes are held at the point if both reach it; the first one dies there and is started again."""
    kills = 1 + kill_first_actor(step, point)
    for actor in ("first", "second"):
        arm_trap(step.folder / actor, point, "hold")
    if point not in UNFINISHED_POINTS:
        step.finish_job()
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
    step.finish_job()
    step.run_to_end("second", second)
    step.run_to_end("first", again)
    step.check(audit, evidence, point.name, "racing", kills=kills)


def is_adopting(step, point):
    return point in FIRST_ACTOR_POINTS and step.is_waiting("second")


def test_a_late_creation_of_a_dead_process_is_adopted_by_the_next_one(step, audit, evidence, laptop):
    """The request arrives after the next process has decided to create, so that creation fails with a conflict."""
    kubeconfig = step.folder / "kubeconfig"
    with ApiProxy(laptop) as proxy:
        kubeconfig.write_text(json.dumps(proxy.kubeconfig))
        is_held = proxy.hold_requests(labels.TASK)  # only the request to create contains it
        first = step.start("first", kubeconfig)
        assert is_held.wait(SECONDS)
        first.kill()
        first.wait(SECONDS)
        arm_trap(step.folder / "second", BEFORE_CREATE, "hold")
        second = step.start("second")
        wait_until(lambda: reached_by(step.folder / "second"), SECONDS)
        assert not audit.created_uids(step.key)
        proxy.release_requests()
        wait_until(lambda: audit.created_uids(step.key), SECONDS)
        release(step.folder / "second")
        step.finish_job()
        step.run_to_end("second", second)
    step.check(audit, evidence, "create sent, arrives after the next one has decided", "racing")
    assert len(audit.created_uids(step.key)) == 1
