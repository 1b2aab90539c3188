"""The record of a fetched folder, also if it is damaged, and the progress lines of a fetch."""

from __future__ import annotations

import json
import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.programs.fetch.progress import TransferProgress
from trainjob.programs.fetch.record import RECORD_FOLDER, Record, RecordedFile, RecordWriter, read_record
from trainjob.status import TransferLogParser

RECORDED_FILE = RecordedFile("a/b", 3, "mark", "ab")


def test_a_record_is_complete_only_after_finish(tmp_path):
    assert read_record(tmp_path) == Record()
    writer = RecordWriter(tmp_path, "hf://o/n", "c0ffee", [RECORDED_FILE])
    writer.add(RecordedFile("c", 1, "m", "cd"))
    assert not read_record(tmp_path).complete
    writer.finish()
    found = read_record(tmp_path)
    assert (found.uri, found.revision, found.complete, list(found.files)) == ("hf://o/n", "c0ffee", True, ["a/b", "c"])
    RecordWriter(tmp_path, "hf://o/n", "c0ffee", [RECORDED_FILE]).close()
    assert not read_record(tmp_path).complete


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_line_that_is_cut_short_is_ignored(tmp_path, cut):
    writer = RecordWriter(tmp_path, "hf://o/n", "", [RECORDED_FILE])
    writer.finish()
    path = tmp_path / RECORD_FOLDER / "record.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    found = read_record(tmp_path)
    assert found.files == {"a/b": RECORDED_FILE}
    assert found.complete == (cut == 1)  # only the line's end is missing


@given(st.one_of(st.text(), st.lists(st.one_of(st.text(), st.integers(), st.none(), st.just({"format": "x"})))))
def test_any_damaged_record_is_incomplete(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("record")
    (folder / RECORD_FOLDER).mkdir()
    text = content if isinstance(content, str) else "\n".join(map(json.dumps, content))
    (folder / RECORD_FOLDER / "record.jsonl").write_text(text, "utf-8", "surrogatepass")
    assert not read_record(folder).complete


def test_bytes_of_incomplete_files_are_reported_periodically():
    lines, reported = [], threading.Event()

    def report(line):
        lines.append(line)
        if "25 %" in line:
            reported.set()

    progress = TransferProgress("fetch", 2, 4_000_000, report, interval=0.01)
    with progress.report_periodically():
        progress.add_bytes(1_000_000)
        assert reported.wait(60)
    assert re.fullmatch(r"fetch: 1\.0 MB of 4\.0 MB \(25 %\), [\d.]+ [kMG]B/s, 0 min \d s left", lines[0])
    assert TransferLogParser().feed(lines[0]).percent == 25  # Airflow's page shows it
    progress.report_file("a", 1_000_000)
    assert lines[-1] == "fetch: 1/2 a 1.0 MB (25 %)"
    progress.report_file("b", 3_000_000, moved=False)
    assert lines[-1] == "fetch: 2/2 b 3.0 MB (100 %, already there)"
    assert TransferProgress("fetch", 0, 0, lines.append)._percent() == 100
