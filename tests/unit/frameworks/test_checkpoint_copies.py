"""Order of requests to the program that copies checkpoints, and what it reports."""

from __future__ import annotations

import json
import os

import pytest

from tests.unit.frameworks.test_checkpoints import save
from trainjob.errors import FetchError
from trainjob.frameworks.checkpoint_copies.copies import Upload
from trainjob.frameworks.checkpoint_copies.program import Copier
from trainjob.frameworks.checkpoint_copies.requests import Requests
from trainjob.frameworks.checkpoint_owner import CheckpointOwner, find_owner, get_kept_folder
from trainjob.frameworks.copier_process import FETCH, REMOVE, UPLOAD, CopierProcess
from trainjob.frameworks.fine_tuning.run_files import UNMERGED, write_record
from trainjob.frameworks.fine_tuning.start import _decide
from trainjob.frameworks.fine_tuning.training_run import TrainingRun
from trainjob.frameworks.input_identity import identify_inputs
from trainjob.frameworks.transformers.checkpoints import claim_checkpoints, has_complete_checkpoint

URI = "s3://bucket/checkpoints"
OWNER = CheckpointOwner("run", {"framework": "trl"})


def read(*lines):
    requests, found = Requests(), []
    requests.fill(lines)
    while request := requests.take():
        found.append(request)
    return found, requests.skipped


def line(*request):
    return json.dumps(request) + "\n"


@pytest.mark.parametrize(
    ("lines", "expected", "skipped"),
    [
        ([line(UPLOAD, "a/1"), line(UPLOAD, "a/2"), line(UPLOAD, "a/3")], [[UPLOAD, "a/3"]], ["1", "2"]),
        ([line(UPLOAD, "a/1"), line(REMOVE)], [[REMOVE]], []),
        ([line(FETCH, "a"), line(UPLOAD, "a/1")], [[FETCH, "a"], [UPLOAD, "a/1"]], []),
        ([line(REMOVE), line(FETCH, "a")], [[REMOVE], [FETCH, "a"]], []),
        ([line(UPLOAD, "a/1"), line(), line(UPLOAD, "a/2")], [[UPLOAD, "a/1"]], []),
        ([line(UPLOAD, "a/1"), line(UPLOAD, "a/2")[:-4]], [[UPLOAD, "a/1"]], []),
        ([], [], []),
    ],
)
def test_the_newest_upload_is_done_and_every_other_request(lines, expected, skipped):
    assert read(*lines) == (expected, skipped)


class Store:
    """Copies whose methods return or raise what a test gives."""

    def __init__(self, **results):
        self._results = results

    def __getattr__(self, name):
        def call(*_):
            result = self._results[name]
            if isinstance(result, Exception):
                raise result
            return result

        return call


def create_copier(monkeypatch, **results):
    copier = Copier(URI, "owner", "")
    monkeypatch.setattr(copier, "_open", lambda: Store(**results))
    return copier


def test_an_upload_is_one_line_of_the_log(monkeypatch, tmp_path):
    def upload(result):
        return create_copier(monkeypatch, upload=result).upload(tmp_path / "checkpoint-4")

    assert upload(Upload(1_200_000_000)) == f"copied checkpoint-4 (1.2 GB) to {URI} in 0 s"
    assert upload(Upload()) == ""
    warning = f"warning: checkpoint-4 is not copied to {URI}: "
    assert upload(Upload(reason="it was removed")) == f"{warning}it was removed"
    assert upload(OSError("no\nspace")) == f"{warning}no space"


def test_a_store_that_cannot_be_listed_is_no_error_and_a_known_copy_that_cannot_be_read_is(monkeypatch, tmp_path):
    assert create_copier(monkeypatch, find_newest=OSError("refused")).fetch(tmp_path) == {"warning": "refused"}
    assert create_copier(monkeypatch, find_newest=None).fetch(tmp_path) == {}
    damaged = create_copier(monkeypatch, find_newest=4, download=FetchError("it is damaged")).fetch(tmp_path)
    assert damaged == {"error": f"checkpoint-4 cannot be fetched from {URI}: it is damaged"}


def test_a_variable_with_a_credential_is_not_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_ACCESS_KEY", "a-secret-of-this-test")
    warning = create_copier(monkeypatch, upload=OSError("key a-secret-of-this-test")).upload(tmp_path / "checkpoint-4")
    assert "a-secret-of-this-test" not in warning


def start_program(text):
    return CopierProcess(["-c", text], URI, OWNER.digest)


ANSWER = "import json, sys; sys.stdin.readline(); print(json.dumps({answer}), flush=True); sys.stdin.readline()"


def test_a_copy_that_cannot_be_fetched_ends_the_attempt(tmp_path, capsys):
    process = start_program(ANSWER.format(answer={"error": "checkpoint-4 cannot be fetched"}))
    with pytest.raises(FetchError, match="checkpoint-4 cannot be fetched"):
        process.fetch(tmp_path)
    process.finish()
    process = start_program(ANSWER.format(answer={"warning": "access denied"}))
    assert process.fetch(tmp_path) == ""
    process.finish()
    assert f"warning: the copies of checkpoints in {URI} cannot be read: access denied\n" in capsys.readouterr().out


def test_a_program_that_has_ended_is_a_warning(tmp_path, capsys):
    process = start_program("raise SystemExit(1)")
    assert process.fetch(tmp_path) == ""
    process._process.wait()
    process.upload(tmp_path / "checkpoint-4")
    process.finish_training(keep=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"warning: the copies of checkpoints in {URI} cannot be read: the process that copies has ended",
        f"warning: checkpoint-4 is not copied to {URI}: the process that copies has ended",
    ]


def test_the_program_ends_although_a_forked_process_has_its_input():
    process = start_program("import sys; [line for line in iter(sys.stdin.readline, '[]\\n')]")
    inherited = os.dup(process._process.stdin.fileno())
    process.finish()
    os.close(inherited)


def test_a_checkpoint_that_was_moved_or_is_too_long_counts_as_claimed(tmp_path, capsys):
    def is_known(limit=99):
        return has_complete_checkpoint(tmp_path, OWNER.digest, lambda path: int(path.name.split("-")[1]) <= limit)

    claim_checkpoints(tmp_path, OWNER)
    assert not is_known()
    save(tmp_path, OWNER, 4)
    assert is_known()
    assert not is_known(limit=3)
    kept = get_kept_folder(tmp_path, OWNER.digest)
    kept.mkdir(parents=True)
    (tmp_path / "checkpoint-4").rename(kept / "checkpoint-4")
    assert is_known()
    capsys.readouterr()
    assert claim_checkpoints(tmp_path, OWNER, fetched_from=URI) == tmp_path / "checkpoint-4"
    assert capsys.readouterr().out.endswith(f"checkpoint-4 is complete, and was fetched from {URI}\n")
    (tmp_path / "checkpoint-4/model.safetensors").unlink()
    assert not is_known()
    assert not has_complete_checkpoint(tmp_path, "another", lambda _: True)


RECORDING = """
import json, pathlib, sys
with pathlib.Path({file!r}).open("a") as file:
    for line in iter(sys.stdin.readline, "[]\\n"):
        file.write(json.loads(line)[0] + " ")
        if "fetch" in line:
            print("{{}}", flush=True)
"""


class Run(TrainingRun):
    uses_lora = True

    def get_argument(self, name):
        return {"max_steps": 12}.get(name)


@pytest.mark.parametrize(
    ("record", "keeps", "expected"),
    [
        ({}, False, ["fetch"]),
        ({"complete": True}, False, ["remove"]),
        ({"complete": True}, True, ["remove"]),
        ({"complete": True, UNMERGED: "the merge did not end"}, False, ["remove"]),
        ({"complete": True, UNMERGED: "the merge did not end"}, True, []),
        ({"complete": False, "step": 4}, False, []),
    ],
)
def test_a_start_fetches_only_what_is_missing_and_removes_what_is_complete(tmp_path, record, keeps, expected):
    output, requests = tmp_path / "output", tmp_path / "requests"
    requests.touch()
    (tmp_path / "model").mkdir()
    program = ["-c", RECORDING.format(file=str(requests))]
    described = json.dumps({"run": "run", "fields": {"framework": "trl"}})
    paths = (tmp_path / "model", tmp_path / "model", None, output)
    run = Run(described, "m", *paths, {}, True, keeps, "sft", URI, program)
    owner = find_owner(described, identify_inputs(run.inputs, output))
    claim_checkpoints(output, owner)
    if record.get("step"):
        save(output, owner, record["step"])
    write_record(output, {"owner": owner.digest, "length": run.length, **record})
    copiers = []
    start = _decide(run, {}, copiers)
    assert start.is_trained == (UNMERGED in record)
    for copier in copiers:
        copier.finish()
    assert requests.read_text().split() == expected
