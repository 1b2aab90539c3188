"""The tutorials on one machine, from start to end: their files and commands, for a user who has only Python and git.

The commands build the wheels from a clone of this checkout, and install them. Only the address of the repository is
replaced. The downloads are gigabytes. If `UV_CACHE_DIR` is set, uv's cache in it is used, and remains.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.demo.demo_processes import find_processes
from tests.e2e.demo.newcomer import Newcomer, create_newcomer
from tests.e2e.docs.page_session import PageFailure, PageSession
from tests.support.code_blocks import ROOT, CodeBlock
from tests.support.page_commands import PageCommand, page_steps
from tests.support.polling import wait_until

# Each page, and the folder in the home folder in which its files are.
TUTORIALS = {"docs/tutorials/laptop.md": ".", "docs/tutorials/own-model.md": "trainjob-tutorial"}
EVERY_NIGHT = "docs/tutorials/every-night.md"
COMPLETE = '"phase": "Complete"'
CLONE = "git clone https://github.com/trainjob/trainjob"
COMMAND_SECONDS = 1500.0

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def newcomer(tmp_path):
    """Return a user who has no wheels."""
    no_wheels = tmp_path / "no wheels"
    no_wheels.mkdir()
    with create_newcomer(no_wheels) as newcomer:
        yield newcomer


def check_that_only_caches_are_left(newcomer: Newcomer) -> None:
    wait_until(lambda: not find_processes(newcomer.mark, newcomer.home))
    assert {path.name for path in newcomer.home.iterdir()} <= {".cache", ".local"}


def test_a_new_user_follows_both_laptop_tutorials(newcomer):
    scratch = newcomer.temporary / "outputs"
    for number, (page, folder) in enumerate(TUTORIALS.items()):
        run_page(newcomer, newcomer.home / folder, scratch / str(number), page_steps(page))
    check_scores(read_outputs(scratch / "0"))
    check_that_only_caches_are_left(newcomer)


def test_a_new_user_trains_every_night(newcomer):
    """The triggered run succeeds, and Ctrl-C ends Airflow before the files are deleted."""
    folder = newcomer.home / "every-night"
    folder.mkdir()
    newcomer.give(folder)
    steps = page_steps(EVERY_NIGHT)
    clean_up = next(number for number, step in enumerate(steps) if getattr(step, "text", "") == "deactivate")
    added = [
        "until airflow dags list-runs every_night --state success | grep first; do sleep 2; done",
        f"test $(trainjob list --json | grep -c '{COMPLETE}') = 6  # three steps of two runs",
        "pkill -INT -P $!; wait $!",  # the program is a child of the session's shell
    ]
    added = [PageCommand(EVERY_NIGHT, 0, text, ()) for text in added]
    run_page(newcomer, folder, newcomer.temporary / "outputs", [*steps[:clean_up], *added, *steps[clean_up:]])
    check_that_only_caches_are_left(newcomer)


def run_page(newcomer: Newcomer, folder: Path, outputs: Path, steps: Sequence[CodeBlock | PageCommand]) -> None:
    """Run the steps of a page with a repository on this machine, and print their times."""
    repository = newcomer.temporary / "server" / "trainjob"
    if not repository.exists():
        make_repository(repository)
    outputs.mkdir(parents=True)
    newcomer.give(newcomer.temporary)
    session = PageSession(
        folder,
        outputs,
        {**newcomer.environment, "USER": "newcomer", "COLUMNS": "132"},  # a login sets USER; Airflow needs it
        {CLONE: f"git clone {repository.as_uri()}"},
        user=newcomer.user,
        seconds=COMMAND_SECONDS,
    )
    try:
        with session:
            session.run(steps)
    except PageFailure as failure:
        pytest.fail(str(failure), pytrace=False)
    finally:
        for seconds, step in session.timings:
            print(f"{seconds:6.1f} s  {step}")


def make_repository(folder: Path) -> None:
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
