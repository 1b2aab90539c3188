"""Errors of the launcher's own code after a TrainJob's creation: its kill action ends the TrainJob."""

from __future__ import annotations

import pytest

from tests.support import crash_points
from tests.support.crash_points import CrashPoint, raise_at
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Connection
from trainjob.lifecycle import RunKey, submit
from trainjob.manifest import labels
from trainjob.status import derive_verdict
from trainjob_kfp.launcher import launch

JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "60"]))
BEFORE_REFERENCE = CrashPoint(
    "before its reference is set", "before", "trainjob_kfp.termination:Terminator.set_reference"
)
BEFORE_LISTENER = CrashPoint("before its listener", "before", "trainjob_kfp.launcher:_build_listener")
POINTS = [crash_points.AFTER_CREATE, BEFORE_REFERENCE, BEFORE_LISTENER, crash_points.SUBMITTED, crash_points.WAITING]


@pytest.fixture
def key(unique):
    return RunKey("kfp", "pipeline", "train", unique)


def active_uids(cluster, key):
    jobs = cluster.list_trainjobs("default", f"{labels.RUN_KEY}={key.digest}")
    return [job["metadata"]["uid"] for job in jobs if not derive_verdict(job).phase.finished]


def launch_with_error(laptop, key, point, on_kill):
    with raise_at(point, ImportError("injected")), pytest.raises(ImportError, match="injected"):
        launch(
            JOB, namespace="default", connection=Connection(kubeconfig=str(laptop.kubeconfig)), key=key, on_kill=on_kill
        )


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_an_unexpected_error_deletes_the_trainjob(laptop, cluster, key, capsys, point):
    launch_with_error(laptop, key, point, "delete")
    assert not active_uids(cluster, key)
    assert "it was deleted, because of an error: ImportError: injected" in capsys.readouterr().out


def test_an_unexpected_error_deletes_the_trainjob_with_keep_on_drain(laptop, cluster, key):
    launch_with_error(laptop, key, BEFORE_LISTENER, "keep_on_drain")
    assert not active_uids(cluster, key)


def test_a_kept_trainjob_is_adopted_by_the_next_try(laptop, cluster, key):
    launch_with_error(laptop, key, BEFORE_LISTENER, "keep")
    [uid] = active_uids(cluster, key)
    assert submit(cluster, JOB.model_copy(update={"on_kill": "keep"}), key).uid == uid
