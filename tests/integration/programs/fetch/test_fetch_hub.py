"""Fetches from a loopback Hugging Face hub with the real client."""

from __future__ import annotations

import hashlib
import os
import re
import signal
from pathlib import Path

import pytest

from tests.integration.programs.fetch.conftest import EXPECTED_MODEL_FILES
from tests.integration.programs.fetch.fetch_results import failure_message, is_complete, read_contents, read_receipt
from tests.support.polling import wait_until
from trainjob.programs.fetch.listing import StoreFile
from trainjob.programs.fetch.part_file import BLOCK_BYTES, get_part_names
from trainjob_local.demo.hub import HubHandler

DATASET = "hf://demo/tickets"
MODEL = "hf://demo/tiny"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "workspace" / "model"


@pytest.mark.parametrize("uri", [DATASET, f"{DATASET}/data"])
def test_a_dataset_is_the_whole_repository(tmp_path, run_fetch, hub, uri):
    done = run_fetch("dataset", uri, HF_ENDPOINT=hub.url)
    assert read_receipt(done)["files"] == 3
    assert read_contents(tmp_path / "workspace" / "dataset") == read_contents(
        tmp_path / "hub" / "datasets/demo/tickets"
    )


def test_prepared_rows_are_those_of_the_addresss_folder_or_file(tmp_path, run_fetch, hub):
    rows = {f"{name}/train.jsonl": f'{{"text": "{name}"}}\n'.encode() for name in ("chats", "pairs")}
    for name, content in rows.items():
        path = tmp_path / "hub/datasets/demo/rows" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    for address, name in (("chats", "chats"), ("pairs", "pairs"), ("chats/train.jsonl", "chats")):
        read_receipt(run_fetch("dataset", f"hf://demo/rows/{address}", "--split", "train", HF_ENDPOINT=hub.url))
        content = rows[f"{name}/train.jsonl"]
        expected = {"source/train.jsonl": content, "data/train.jsonl": content}
        assert read_contents(tmp_path / "workspace" / "dataset") == expected
    absent = run_fetch("dataset", "hf://demo/rows/cha", "--split", "train", HF_ENDPOINT=hub.url)
    assert "demo/rows/cha" in failure_message(absent)


def test_a_model_is_everything_but_weights_in_other_formats(tmp_path, run_fetch, hub, model):
    found = read_receipt(run_fetch("model", MODEL, ENDPOINT=hub.url))
    assert sorted(read_contents(model)) == EXPECTED_MODEL_FILES
    assert (found["uri"], found["fetched"], len(found["revision"])) == (MODEL, 4, 40)
    assert found["bytes"] == sum(map(len, read_contents(model).values()))


def test_ignored_files_are_not_fetched(tmp_path, run_fetch, hub):
    read_receipt(run_fetch("dataset", DATASET, HF_ENDPOINT=hub.url, IGNORE_PATTERNS="*.md, heldout/*,"))
    assert sorted(read_contents(tmp_path / "workspace" / "dataset")) == ["data/train.parquet"]
    assert "it has README.md" in failure_message(
        run_fetch("dataset", DATASET, HF_ENDPOINT=hub.url, IGNORE_PATTERNS="*")
    )


def test_the_log_reports_the_progress(run_fetch, hub):
    left_out, first, *files, last = run_fetch("model", MODEL, HF_ENDPOINT=hub.url).stdout.splitlines()
    assert left_out == "fetch: left out, 34 B: pytorch_model.bin"
    assert re.fullmatch(r"fetch: 4 files, \d+ B, from hf://demo/tiny at [0-9a-f]{40}", first)
    # A slow fetch also prints a line every ten seconds.
    counted = [re.match(r"fetch: (\d)/4 ", line) for line in files]
    assert [match[1] for match in counted if match] == ["1", "2", "3", "4"]
    assert files[-1].endswith("(100 %)")
    assert last.startswith("fetch: done {")


def test_existing_files_are_not_fetched_again(run_fetch, hub, model):
    first = read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    hub.handler_class.requests.clear()
    again = run_fetch("model", MODEL, HF_ENDPOINT=hub.url)
    assert read_receipt(again) == {**first, "fetched": 0}
    assert "all files are in the folder already" in again.stdout
    assert hub.list_sent_files() == []


def test_only_changed_files_are_fetched_and_stale_ones_are_removed(tmp_path, run_fetch, hub, model):
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    (model / "notes.txt").write_text("somebody's own")
    repository = tmp_path / "hub" / "models/demo/tiny"
    (repository / "model.safetensors").write_text("trained a little more")
    (repository / "original/tokenizer.model").unlink()
    hub.handler_class.requests.clear()
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["fetched"] == 1
    assert hub.list_sent_files() == ["model.safetensors"]
    assert sorted(read_contents(model)) == ["README.md", "config.json", "model.safetensors", "notes.txt"]
    assert (model / "model.safetensors").read_text() == "trained a little more"


def test_a_revision_is_pinned(tmp_path, run_fetch, hub, model):
    pinned = read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["revision"]
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url, REVISION=pinned))["fetched"] == 0
    (tmp_path / "hub" / "models/demo/tiny/config.json").write_text("a new commit")
    message = failure_message(run_fetch("model", MODEL, HF_ENDPOINT=hub.url, REVISION=pinned))
    assert f"model demo/tiny at {pinned} does not exist (HTTP 404)" in message
    assert "check the revision" in message


def test_equal_files_of_another_program_are_kept(tmp_path, run_fetch, hub, model):
    (model / "original").mkdir(parents=True)
    for name in EXPECTED_MODEL_FILES:
        (model / name).write_bytes((tmp_path / "hub" / "models/demo/tiny" / name).read_bytes())
    (model / "config.json").write_bytes((model / "config.json").read_bytes().upper())
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["fetched"] == 1
    assert hub.list_sent_files() == ["config.json"]


def test_a_file_that_arrives_damaged_is_fetched_again(tmp_path, run_fetch, hub, model):
    hub.handler_class.damaged_files |= {"model.safetensors", "config.json"}
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert (model / "model.safetensors").read_text() == "models/demo/tiny model.safetensors"
    assert (model / "config.json").read_text() == "models/demo/tiny config.json"


def test_a_file_that_is_always_damaged_is_refused(run_fetch, hub, model):
    class AlwaysDamaged(set):
        def discard(self, name):
            pass

    hub.handler_class.damaged_files = AlwaysDamaged({"model.safetensors"})
    message = failure_message(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert "model.safetensors of model demo/tiny was damaged during the transfer" in message
    assert not (model / "model.safetensors").exists()
    assert not is_complete(model)


@pytest.mark.parametrize("without_ranges", [False, True], ids=["ranges", "a-hub-that-ignores-ranges"])
def test_a_killed_download_of_a_large_file_is_continued(
    tmp_path, start_fetch, run_fetch, hub, model, monkeypatch, without_ranges
):
    content = os.urandom(3 * BLOCK_BYTES)
    (tmp_path / "hub" / "models/demo/tiny/model.safetensors").write_bytes(content)
    parts, processes = model / ".trainjob-fetch/parts", []

    def send_some(handler, path, first, end):
        """Send all but the last block, and kill the fetch when they are on disk."""
        is_last = path.name == "model.safetensors" and end == len(content)
        HubHandler._send_part(handler, path, first, first + 1 if is_last else end)
        if is_last:
            wait_until(lambda: processes and [path.read_bytes() for path in parts.glob("*.blocks")] == [b"\1\1\0"])
            processes[0].kill()

    with monkeypatch.context() as patched:
        patched.setattr(hub.handler_class, "_send_part", send_some)
        processes.append(start_fetch("model", MODEL, HF_ENDPOINT=hub.url))
        processes[0].communicate()
    assert processes[0].returncode == -signal.SIGKILL
    assert not (model / "model.safetensors").exists()
    hub.handler_class.ranges.clear()
    hub.handler_class.without_ranges = without_ranges
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert (model / "model.safetensors").read_bytes() == content
    requested = {(first, end) for name, first, end in hub.handler_class.ranges if name == "model.safetensors"}
    assert requested == {(0 if without_ranges else 2 * BLOCK_BYTES, len(content))}
    assert not parts.exists()


def test_a_damaged_block_of_a_killed_download_is_noticed(tmp_path, start_fetch, run_fetch, hub, model):
    """The blocks of an earlier fetch are part of the digest, too."""
    content = os.urandom(2 * BLOCK_BYTES)
    (tmp_path / "hub" / "models/demo/tiny/model.safetensors").write_bytes(content)
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    (model / ".trainjob-fetch/record.jsonl").unlink()
    (model / "model.safetensors").unlink()
    mark = hashlib.sha256(content).hexdigest()
    part = model / ".trainjob-fetch/parts" / get_part_names(StoreFile("", "model.safetensors", 0, mark))[0]
    part.parent.mkdir()
    part.write_bytes(b"x" + content[1:])
    part.with_name(f"{part.name}.blocks").write_bytes(b"\1\1")
    hub.handler_class.ranges.clear()
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert (model / "model.safetensors").read_bytes() == content
    assert len([name for name, *_ in hub.handler_class.ranges if name == "model.safetensors"]) == 2


@pytest.mark.parametrize("token", ["hf_right", "hf_wrong", ""])
def test_a_private_repository_requires_its_token(run_fetch, hub, model, token):
    done = run_fetch("model", "hf://demo/private", HF_ENDPOINT=hub.url, ACCESS_TOKEN=token)
    if token == "hf_right":
        assert read_receipt(done)["fetched"] == len(EXPECTED_MODEL_FILES)
    else:
        assert "hf_wrong" not in failure_message(done) + done.stdout
        assert not model.exists()


@pytest.mark.slow
def test_a_fetch_killed_at_any_request_is_completed_by_the_next(tmp_path, start_fetch, run_fetch, hub, model):
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    expected, requests = read_contents(model), len(hub.handler_class.requests)
    for point in range(1, requests):
        for path in sorted(model.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        hub.handler_class.requests.clear()
        process = start_fetch("model", MODEL, HF_ENDPOINT=hub.url)

        def kill(line, pid=process.pid, point=point):
            if len(hub.handler_class.requests) >= point:
                os.kill(pid, signal.SIGKILL)

        hub.handler_class.hook = staticmethod(kill)
        process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL
        assert not is_complete(model)
        hub.handler_class.hook = staticmethod(lambda line: None)
        read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
        assert read_contents(model) == expected
        assert is_complete(model)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://demo/tiny", "allowed are hf://… or s3://…"),
        ("hf://demo/tiny/x", "it must be hf://ORGANIZATION/NAME, without a path"),
        ("hf://demo/none", "model demo/none is not on the hub"),
        ("", "it must be a URI: hf://… or s3://…"),
    ],
)
def test_a_failure_is_reported_in_one_sentence(run_fetch, hub, uri, message):
    assert message in failure_message(run_fetch("model", uri, HF_ENDPOINT=hub.url, ACCESS_TOKEN="hf_right"))
