"""Errors of `trainjob run`'s own code after a TrainJob's creation: the job's kill action ends it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from tests.support import crash_points
from tests.support.crash_points import Point, failing
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.cli.asking import by_person
from trainjob.cli.following import follow
from trainjob.manifest import labels
from trainjob.status import judge

CREATED = Point("before its first line", "before", "trainjob.cli.following:told")
LISTENING = Point("before its listener", "before", "trainjob.cli.story:Story.of")
POINTS = [crash_points.ANSWERED, CREATED, LISTENING, crash_points.SUBMITTED, crash_points.WAITING]


def asked_for(unique, on_kill="delete"):
    trainer = CustomTrainerContainer(image="busybox", command=["sleep", "60"])
    return by_person(TrainJob(trainer=trainer, on_kill=on_kill, name=unique), unique)


def active(cluster, asked):
    jobs = cluster.list_trainjobs("default", f"{labels.RUN_KEY}={asked.key.digest}")
    return [job for job in jobs if not judge(job).phase.finished and not job["spec"].get("suspend")]


def broken_follow(cluster, asked, point, error):
    with Path(os.devnull).open("w") as output, failing(point, error), pytest.raises(type(error)) as raised:
        follow(cluster, asked, "", Console(file=output))
    assert raised.value is error


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_it_is_deleted(cluster, unique, capsys, point):
    asked = asked_for(unique)
    broken_follow(cluster, asked, point, ImportError("injected"))
    assert not active(cluster, asked)
    assert "it was deleted" in capsys.readouterr().err


@pytest.mark.parametrize(("on_kill", "left"), [("suspend", 0), ("keep", 1)])
def test_the_kill_action_counts(cluster, unique, on_kill, left):
    asked = asked_for(unique, on_kill)
    broken_follow(cluster, asked, CREATED, ImportError("injected"))
    assert len(active(cluster, asked)) == left


def test_a_reader_that_is_gone_leaves_it_alone(cluster, unique):
    asked = asked_for(unique)
    broken_follow(cluster, asked, CREATED, BrokenPipeError("nobody reads"))
    [job] = active(cluster, asked)
    cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])
