"""The environments of `trainjob demo`: which ones a demo needs, and what it announces."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from trainjob.errors import InvalidSpec
from trainjob_demo.announcement import format_announcement
from trainjob_demo.environments import parse_environments, select_locks


@pytest.mark.parametrize("framework", ["torchtune", "trl"])
@pytest.mark.parametrize("engine", ["airflow", "kfp"])
def test_each_engine_and_framework_has_a_lock(engine, framework):
    names = ["initializer", framework, engine]
    assert [lock.name for lock in select_locks(names).values()] == names


def test_the_announcement_names_what_is_missing_where_and_its_size():
    missing = list(select_locks(["torchtune", "kfp"]).values())
    first, torchtune, kfp, last = format_announcement(missing, Path("/home/new user/environments")).splitlines()
    assert first == "These Python environments are created in /home/new user/environments, once:"
    assert re.fullmatch(r"  torchtune    download of about \d\.\d GB, \d minutes at 10 MB/s \(.+\)", torchtune)
    assert re.fullmatch(r"  kfp          download of about \d+ MB, some seconds at 10 MB/s", kfp)
    assert re.fullmatch(r"They need at most \d\.\d GB of disk\. To delete them: trainjob local clean", last)


def test_existing_environments_are_used():
    here = Path(sys.prefix)
    assert parse_environments([f"airflow={here}", f"trl={here}"]) == {"airflow": here, "trl": here}


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("airflow", "write it as NAME=DIR"),
        ("airflow=", "write it as NAME=DIR"),
        ("spark=/tmp", "NAME is one of initializer, torchtune, trl, llamafactory, runtimes, airflow, kfp"),
        ("airflow=/dev", "name the folder of a Python environment"),
    ],
)
def test_a_wrong_environment_is_refused(text, allowed):
    with pytest.raises(InvalidSpec, match=allowed) as refused:
        parse_environments([text])
    assert (refused.value.problems[0].field, refused.value.problems[0].value) == ("--environment", repr(text))
