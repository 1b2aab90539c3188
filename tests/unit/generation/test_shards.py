"""Shards of rows: each row has one answer, in the order of the input, with any nodes in any attempts."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.frameworks.generation.shards import Answer, ShardFiles, run_shards

CONDITIONS = {"model": "a"}


class Killed(Exception):
    """The node was killed."""


def build_files(output, rows, *, conditions=CONDITIONS, size=3, job="job-1"):
    return ShardFiles(Path(output), conditions, len(rows), size, job)


def answer_all(files, rows, computed, *, rank=0, shards=None, before=lambda _: None):
    """Compute shards as a node does, at most a given number of them before it is killed."""

    def compute(shard):
        if shards is not None and len(computed) >= shards:
            raise Killed
        before(shard)
        if not files.is_finished(shard):
            files.write(shard, [Answer(f"answer {rows[number]['id']}", 2) for number in files.shards[shard]], 0.5)
        computed.append(shard)

    run_shards(files, compute, rank)


def read_output(output):
    return [json.loads(line) for line in (Path(output) / "generated.jsonl").read_text("utf-8").splitlines()]


def make_rows(count):
    return [{"id": number, "prompt": "é\u2028", "\ud800": "ü"} for number in range(count)]


def expect(rows):
    return [{**row, "generated_text": f"answer {row['id']}", "generated_tokens": 2} for row in rows]


@given(st.data(), st.integers(1, 40), st.integers(1, 7))
def test_each_row_has_one_answer_whatever_nodes_are_killed(data, count, size):
    rows, finished = make_rows(count), []
    with tempfile.TemporaryDirectory() as output:
        for attempt in range(data.draw(st.integers(1, 4))):
            files = build_files(output, rows, size=size, job=f"job-{attempt}")
            assert sorted(number for shard in files.shards for number in shard) == list(range(count))
            for rank in range(data.draw(st.integers(1, 4))):
                computed = []
                with contextlib.suppress(Killed):
                    answer_all(files, rows, computed, rank=rank, shards=data.draw(st.integers(0, 3)))
                finished += computed
        last = []
        files = build_files(output, rows, size=size, job="last")
        answer_all(files, rows, last)
        assert sorted([*finished, *last]) == list(range(len(files.shards)))  # none twice
        result = files.merge(rows)
        assert read_output(output) == expect(rows)
        assert (result["rows"], result["shards"], result["tokens"]) == (count, len(files.shards), 2 * count)
        assert result["seconds"] == 0.5 * len(files.shards)


def test_nodes_that_run_at_once_share_the_shards(tmp_path):
    rows, computed = make_rows(60), [[] for _ in range(3)]
    meeting = threading.Barrier(3, timeout=10)

    def run(rank):
        files = build_files(tmp_path, rows)
        waits = iter([meeting.wait])
        answer_all(files, rows, computed[rank], rank=rank, before=lambda _: next(waits, lambda: None)())

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(computed)
    build_files(tmp_path, rows).merge(rows)
    assert read_output(tmp_path) == expect(rows)


def test_a_node_computes_what_another_has_claimed_and_not_written(tmp_path):
    rows, computed = make_rows(9), []
    assert build_files(tmp_path, rows).claim(0)  # by a pod that was replaced in the same job
    answer_all(build_files(tmp_path, rows), rows, computed)
    assert computed == [1, 2, 0]


def test_a_node_that_comes_late_computes_nothing_and_has_the_same_result(tmp_path):
    rows, computed = make_rows(9), []
    late = build_files(tmp_path, rows)
    files = build_files(tmp_path, rows)
    answer_all(files, rows, computed)
    result = files.merge(rows)
    assert not (tmp_path / ".shards").exists()
    late.write(1, [], 0.1)  # it was still computing this shard
    assert not late.claim(2)
    answer_all(late, rows, computed, rank=1)
    assert computed == [0, 1, 2]
    assert build_files(tmp_path, rows).read_result() == late.read_result() == result
    assert not (tmp_path / ".shards").exists()


@pytest.mark.parametrize("change", [{"conditions": {"model": "b"}}, {"size": 4}])
def test_shards_of_other_conditions_do_not_count(tmp_path, change):
    rows, computed = make_rows(9), []
    files = build_files(tmp_path, rows)
    answer_all(files, rows, [])
    other = build_files(tmp_path, rows, **change)
    assert other.list_unfinished() == [*range(len(other.shards))]
    files.merge(rows)
    assert other.read_result() is None
    answer_all(build_files(tmp_path, rows, **change), rows, computed)
    assert computed == [*range(len(other.shards))]


def test_an_output_that_was_deleted_is_written_again(tmp_path):
    rows, computed = make_rows(3), []
    files = build_files(tmp_path, rows)
    answer_all(files, rows, [])
    files.merge(rows)
    (tmp_path / "generated.jsonl").unlink()
    answer_all(build_files(tmp_path, rows), rows, computed)
    assert computed == [0]


def test_a_shard_without_one_answer_for_each_row_is_never_merged(tmp_path):
    rows = make_rows(3)
    files = build_files(tmp_path, rows)
    files.write(0, [Answer("only one", 1)], 0.1)
    with pytest.raises(RuntimeError, match=r"000000.json is damaged: delete it, and run the step again"):
        files.merge(rows)
    assert not (tmp_path / "generated.jsonl").exists()
