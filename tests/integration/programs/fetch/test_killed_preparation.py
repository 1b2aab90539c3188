"""A preparation of rows that is killed with SIGKILL: nothing counts as complete, and the next try completes it."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import dataclass

import datasets
import pytest

from tests.integration.programs.fetch.fetch_results import is_complete, read_contents
from tests.support.killed_calls import kill_at_file_access
from trainjob.programs.fetch import Fetch, program
from trainjob.programs.fetch.listing import Listing, StoreFile
from trainjob.programs.fetch.preparation import EVAL_FILE, TRAIN_FILE, Preparation
from trainjob.programs.fetch.record import RECORD_FOLDER

ROWS = [{"text": f"ticket {number}"} for number in range(8)]
CONTENT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
QUICK_POINTS = 60  # the last ones: files are written, recorded and moved


@dataclass(frozen=True)
class OneFile:
    """A store with one file."""

    content: bytes = CONTENT
    connections = 1

    def list_files(self):
        return Listing((StoreFile("train.jsonl", "train.jsonl", len(self.content), "mark"),))

    def add_digest(self, file, *, has_arrived):
        return file

    def create_readers(self, revision):
        return lambda *, is_sequential: self

    def read_into(self, file, offset, buffer):
        buffer[:] = self.content[offset : offset + len(buffer)]
        return len(buffer)

    def close(self):
        pass

    def abort(self):
        pass


@pytest.fixture
def fetch(monkeypatch, tmp_path):
    """Return a function that fetches the file and prepares its rows."""
    monkeypatch.setattr(program, "create_source", lambda _: OneFile())
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "unused")

    def run(folder, **preparation):
        request = Preparation(**preparation) if preparation else None
        program.fetch(Fetch("dataset", folder, "s3://b/x", preparation=request), lambda _: None)

    return run


def count_accesses(work, reset):
    """Return the number of file accesses of a call."""
    low, high = 0, 1
    while reset() or kill_at_file_access(work, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        reset()
        low, high = (middle, high) if kill_at_file_access(work, middle) else (low, middle)
    return high


def check_kills(folder, before, work, expected, points):
    """Kill the work at each point; the next try must leave the expected files only."""

    def reset():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(before, folder)

    total = count_accesses(work, reset)
    for point in points(total):
        reset()
        killed = kill_at_file_access(work, point) == signal.SIGKILL
        assert not is_complete(folder) or read_contents(folder) in (expected, read_contents(before))
        assert kill_at_file_access(work, 10**9) == 0
        assert read_contents(folder) == expected, (point, killed)
        assert is_complete(folder)
        assert [path.name for path in (folder / RECORD_FOLDER).iterdir()] == ["lock", "record.jsonl"]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(lambda total: range(total - QUICK_POINTS, total, 6), id="while rows are written"),
        pytest.param(lambda total: range(0, total, 5), id="everywhere", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("earlier", [{}, {"split": "train[:2]"}], ids=["files as they are", "other rows"])
def test_a_killed_preparation_is_completed(fetch, tmp_path, earlier, points):
    before, folder, given = tmp_path / "before", tmp_path / "dataset", {"split": "train[2:]", "eval_fraction": 0.5}
    fetch(before, **earlier)
    fetch(folder, **given)
    expected = read_contents(folder)
    assert sorted(expected) == [TRAIN_FILE, EVAL_FILE, "source/train.jsonl"]
    check_kills(folder, before, lambda: fetch(folder, **given), expected, points)


def test_files_as_they_are_replace_prepared_rows_also_after_a_kill(fetch, tmp_path):
    before, folder = tmp_path / "before", tmp_path / "dataset"
    fetch(before, split="train", eval_fraction=0.5)
    check_kills(folder, before, lambda: fetch(folder), {"train.jsonl": CONTENT}, lambda total: range(0, total, 2))
