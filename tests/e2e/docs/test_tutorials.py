"""The laptop tutorials, from start to end: their files and commands, for a user who has only Python and git.

The commands build the wheels from a clone of this checkout, and install them. Only the address of the repository is
replaced. The downloads are gigabytes. If `UV_CACHE_DIR` is set, uv's cache in it is used, and remains.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.demo.demo_processes import find_processes
from tests.e2e.demo.newcomer import create_newcomer
from tests.e2e.docs.page_session import PageFailure, PageSession
from tests.support.code_blocks import ROOT
from tests.support.page_commands import page_steps
from tests.support.polling import wait_until

# Each page, and the folder in the home folder in which its files are.
TUTORIALS = {"docs/tutorials/laptop.md": ".", "docs/tutorials/own-model.md": "trainjob-tutorial"}
REPOSITORY = "https://github.com/trainjob/trainjob"
COMMAND_SECONDS = 1500.0

pytestmark = pytest.mark.timeout(3600)


def test_a_new_user_follows_both_tutorials(tmp_path):
    no_wheels = tmp_path / "no wheels"
    no_wheels.mkdir()
    with create_newcomer(no_wheels) as newcomer:
        repository = make_repository(newcomer.temporary / "server" / "trainjob")
        scratch = newcomer.temporary / "outputs"
        for number, (page, folder) in enumerate(TUTORIALS.items()):
            outputs = scratch / str(number)
            outputs.mkdir(parents=True)
            newcomer.give(newcomer.temporary)
            session = PageSession(
                newcomer.home / folder,
                outputs,
                {**newcomer.environment, "USER": "newcomer", "COLUMNS": "132"},  # a login sets USER; Airflow needs it
                {REPOSITORY: repository.as_uri()},
                user=newcomer.user,
                seconds=COMMAND_SECONDS,
            )
            try:
                with session:
                    session.run(page_steps(page))
            except PageFailure as failure:
                pytest.fail(str(failure), pytrace=False)
            finally:
                for seconds, step in session.timings:
                    print(f"{seconds:6.1f} s  {step}")
        check_scores(read_outputs(scratch / "0"))
        wait_until(lambda: not find_processes(newcomer.mark, newcomer.home))
        left = {path.name for path in newcomer.home.iterdir()}
        assert left <= {".cache", ".local"}  # caches of programs


def make_repository(folder: Path) -> Path:
    """Create a git repository with the files of this checkout that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    author = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "Checkout of the tests")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def read_outputs(folder: Path) -> str:
    """Return the outputs of all commands, in their order."""
    files = sorted(folder.glob("*.out"), key=lambda path: int(path.stem))
    return "\n".join(path.read_text("utf-8", errors="replace") for path in files)


def check_scores(output: str) -> None:
    """Check that four epochs teach the model the tickets, and one epoch does not."""
    scores = [(int(before), int(after)) for before, after in re.findall(r"exact match: (\d+)/60 -> (\d+)/60", output)]
    [(base, four_epochs), (_, one_epoch)] = scores
    assert base <= 5
    assert four_epochs >= 50
    assert one_epoch < four_epochs
