"""Tests of errors in `trainjob run` after it created a TrainJob: the `on_kill` action is applied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from tests.support import crash_points
from tests.support.crash_points import CrashPoint, raise_at
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.cli.follow import follow
from trainjob.cli.request_file import to_user_request
from trainjob.manifest import labels
from trainjob.status import derive_verdict

BEFORE_FIRST_LINE = CrashPoint("before its first line", "before", "trainjob.cli.follow:describe_submission")
BEFORE_LISTENER = CrashPoint(
    "before its listener", "before", "trainjob.cli.progress_output:ProgressOutput.create_listener"
)
POINTS = [crash_points.AFTER_CREATE, BEFORE_FIRST_LINE, BEFORE_LISTENER, crash_points.SUBMITTED, crash_points.WAITING]


def user_request(unique, on_kill="delete"):
    trainer = CustomTrainerContainer(image="busybox", command=["sleep", "60"])
    return to_user_request(TrainJob(trainer=trainer, on_kill=on_kill, name=unique), unique)


def active_jobs(cluster, request):
    jobs = cluster.list_trainjobs("default", f"{labels.RUN_KEY}={request.key.digest}")
    return [job for job in jobs if not derive_verdict(job).phase.finished and not job["spec"].get("suspend")]


def follow_with_error(cluster, request, point, error):
    with Path(os.devnull).open("w") as output, raise_at(point, error), pytest.raises(type(error)) as raised:
        follow(cluster, request, "", Console(file=output))
    assert raised.value is error


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_an_error_after_the_creation_deletes_the_trainjob(cluster, unique, capsys, point):
    request = user_request(unique)
    follow_with_error(cluster, request, point, ImportError("injected"))
    assert not active_jobs(cluster, request)
    assert "it was deleted" in capsys.readouterr().err


@pytest.mark.parametrize(("on_kill", "left"), [("suspend", 0), ("keep", 1)])
def test_an_error_applies_the_kill_action(cluster, unique, on_kill, left):
    request = user_request(unique, on_kill)
    follow_with_error(cluster, request, BEFORE_FIRST_LINE, ImportError("injected"))
    assert len(active_jobs(cluster, request)) == left


def test_a_closed_output_pipe_leaves_the_trainjob_running(cluster, unique):
    request = user_request(unique)
    follow_with_error(cluster, request, BEFORE_FIRST_LINE, BrokenPipeError("nobody reads"))
    [job] = active_jobs(cluster, request)
    cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])
