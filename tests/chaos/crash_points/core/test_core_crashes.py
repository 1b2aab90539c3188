"""The core's process dies at each point of a run's life, alone or beside another; then it is started again."""

from __future__ import annotations

import signal

import pytest

from tests.chaos.crash_points.core.core_steps import SECONDS, Step
from tests.chaos.crash_points.core.holding_proxy import HoldingProxy
from tests.support.crash_points import (
    ADOPTION,
    CORE,
    CREATION,
    DECIDED,
    ONLY_FOR_ONE,
    SUBMITTED,
    WAITING,
    arm,
    dying_alone,
    let_go,
    reached,
)
from tests.support.polling import until
from trainjob.manifest import labels

pytestmark = pytest.mark.timeout(180)
BEFORE_THE_END = (*CREATION, *ADOPTION, SUBMITTED, WAITING)


@pytest.fixture
def step(laptop, unique, tmp_path, request):
    point = getattr(request.node, "callspec", None) and request.node.callspec.params["point"]
    made = Step(laptop, tmp_path, unique, fails_first=bool(point and point.fails_first))
    yield made
    made.let_job_end()


@pytest.mark.parametrize("point", dying_alone(CORE))
def test_dies_alone(step, audit, evidence, point):
    kills = 1 + another_has_died(step, point)
    arm(step.folder / "first", point)
    if point not in BEFORE_THE_END:
        step.let_job_end()
    first = step.start("first")
    assert first.wait(SECONDS) == -signal.SIGKILL, step.said("first")
    assert reached(step.folder / "first") == first.pid
    step.let_job_end()
    step.to_its_end("first")
    step.check(audit, evidence, point.name, "alone", kills=kills)


def another_has_died(step, point):
    """Where there must be something to adopt: its maker is dead. The number of kills."""
    if point not in ADOPTION:
        return 0
    maker = step.start("maker")
    until(lambda: step.waits("maker"), SECONDS)
    maker.kill()
    maker.wait(SECONDS)
    return 1


@pytest.mark.slow
@pytest.mark.parametrize("point", CORE, ids=lambda point: point.slug)
def test_dies_beside_another(step, audit, evidence, point):
    """Both are brought to the point, if it is there for both; one dies there, and is started again."""
    kills = 1 + another_has_died(step, point)
    for actor in ("first", "second"):
        arm(step.folder / actor, point, "hold")
    if point not in BEFORE_THE_END:
        step.let_job_end()
    first = step.start("first")
    until(lambda: reached(step.folder / "first"), SECONDS)
    second = step.start("second")
    until(lambda: reached(step.folder / "second") or second.poll() is not None or adopts(step, point), SECONDS)
    first.kill()
    first.wait(SECONDS)
    again = step.start("first")
    let_go(step.folder / "second")
    step.let_job_end()
    step.to_its_end("second", second)
    step.to_its_end("first", again)
    step.check(audit, evidence, point.name, "racing", kills=kills)


def adopts(step, point):
    return point in ONLY_FOR_ONE and step.waits("second")


def test_what_the_dead_one_has_sent_arrives_when_the_next_one_has_decided(step, audit, evidence, laptop):
    """It is in the way of the next one's own creation, which adopts it."""
    with HoldingProxy(laptop, labels.TASK) as proxy:  # only the request to create has it
        first = step.start("first", proxy.kubeconfig(step.folder / "kubeconfig"))
        assert proxy.held.wait(SECONDS)
        first.kill()
        first.wait(SECONDS)
        arm(step.folder / "second", DECIDED, "hold")
        second = step.start("second")
        until(lambda: reached(step.folder / "second"), SECONDS)
        assert not audit.made(step.key)
        proxy.release()
        until(lambda: audit.made(step.key), SECONDS)
        let_go(step.folder / "second")
        step.let_job_end()
        step.to_its_end("second", second)
    step.check(audit, evidence, "create sent, arrives after the next one has decided", "racing")
    assert len(audit.made(step.key)) == 1
