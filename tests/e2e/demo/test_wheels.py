"""`trainjob demo` from the wheels of `make dist`, for a user who has nothing but Python and pip.

The downloads are gigabytes. If `UV_CACHE_DIR` is set, uv's cache in it is used, and remains.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.e2e.demo.demo_processes import find_processes
from tests.e2e.demo.newcomer import create_newcomer
from tests.support.polling import wait_until

DIST = Path(__file__).resolve().parents[3] / "dist"

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def newcomer():
    """Yield a user who has installed `trainjob[demo]` with pip."""
    with create_newcomer(DIST) as user:
        user.run("python3", "-m", "venv", user.home / "venv")
        user.run(user.home / "venv" / "bin" / "pip", "install", "trainjob[demo]")
        yield user


@pytest.fixture
def trainjob(newcomer):
    return newcomer.home / "venv" / "bin" / "trainjob"


def has_no_process(newcomer):
    return not find_processes(newcomer.mark, newcomer.home)


def test_an_interrupted_creation_leaves_no_process_and_no_incomplete_environment(newcomer, trainjob):
    with newcomer.start(trainjob, "demo") as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("  Resolved") and "creating the environment torchtune\n" in lines:
                break
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 130, "".join(lines) + output
    assert "Traceback" not in output
    wait_until(lambda: has_no_process(newcomer))
    environments = newcomer.home / ".cache" / "trainjob" / "environments"
    assert lines[0] == f"These Python environments are created in {environments}, once:\n"
    assert [path.name.partition("-")[0] for path in environments.iterdir() if path.is_dir()] == ["initializer"]


@pytest.mark.usefixtures("torchrun_lock")
@pytest.mark.parametrize("engine", ["airflow", "kfp"])
def test_the_model_learns(engine, newcomer, trainjob):
    first = newcomer.run(trainjob, "demo", "--engine", engine)
    print(first)
    announced, created = first.index(f"  {engine} "), first.index(f"creating the environment {engine}\n")
    assert announced < first.index("GB of disk") < created
    check_score(first)
    second = newcomer.run(trainjob, "demo", "--engine", engine)
    assert second.startswith("creating the tiny model and the tickets\n")
    check_score(second)
    wait_until(lambda: has_no_process(newcomer))


def check_score(output):
    score = re.search(r"^exact match: (\d+)/60 -> (\d+)/60$", output, re.MULTILINE)
    assert score, output
    assert int(score[1]) <= 5
    assert int(score[2]) >= 50


def test_only_caches_are_left(newcomer):
    left = {path.name for path in newcomer.home.iterdir()} | {path.name for path in newcomer.temporary.iterdir()}
    # torch and uv leave files in the folder for temporary files; uv keeps its credentials in .local.
    assert {name for name in left if not name.startswith(("torchinductor_", "uv-"))} <= {".cache", ".local", "venv"}
