"""Fetching from the Hugging Face hub, by the real client over the wire."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

import pytest

from tests.integration.programs.fetch.fetch_results import failure_message, is_complete, read_contents, read_receipt
from tests.support.polling import wait_until
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


def test_a_model_is_configuration_tokenizer_and_safetensors(tmp_path, run_fetch, hub, model):
    found = read_receipt(run_fetch("model", MODEL, ENDPOINT=hub.url))
    assert sorted(read_contents(model)) == ["config.json", "model.safetensors", "original/tokenizer.model"]
    assert (found["uri"], found["fetched"], len(found["revision"])) == (MODEL, 3, 40)
    assert found["bytes"] == sum(map(len, read_contents(model).values()))


def test_what_is_ignored_is_not_fetched(tmp_path, run_fetch, hub):
    read_receipt(run_fetch("dataset", DATASET, HF_ENDPOINT=hub.url, IGNORE_PATTERNS="*.md, heldout/*,"))
    assert sorted(read_contents(tmp_path / "workspace" / "dataset")) == ["data/train.parquet"]
    assert "it has README.md" in failure_message(
        run_fetch("dataset", DATASET, HF_ENDPOINT=hub.url, IGNORE_PATTERNS="*")
    )


def test_it_tells_how_far_it_is(run_fetch, hub):
    first, *files, last = run_fetch("model", MODEL, HF_ENDPOINT=hub.url).stdout.splitlines()
    assert re.fullmatch(r"fetch: 3 files, \d+ B, from hf://demo/tiny at [0-9a-f]{40}", first)
    # A slow fetch also prints a line every ten seconds.
    counted = [re.match(r"fetch: (\d)/3 ", line) for line in files]
    assert [match[1] for match in counted if match] == ["1", "2", "3"]
    assert files[-1].endswith("(100 %)")
    assert last.startswith("fetch: done {")


def test_what_is_there_is_not_fetched_again(run_fetch, hub, model):
    first = read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    hub.watched.seen.clear()
    again = run_fetch("model", MODEL, HF_ENDPOINT=hub.url)
    assert read_receipt(again) == {**first, "fetched": 0}
    assert "all of it is there already" in again.stdout
    assert hub.files_sent() == []


def test_only_what_changed_is_fetched_and_what_is_stale_is_removed(tmp_path, run_fetch, hub, model):
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    (model / "notes.txt").write_text("somebody's own")
    repository = tmp_path / "hub" / "models/demo/tiny"
    (repository / "model.safetensors").write_text("trained a little more")
    (repository / "original/tokenizer.model").unlink()
    hub.watched.seen.clear()
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["fetched"] == 1
    assert hub.files_sent() == ["model.safetensors"]
    assert sorted(read_contents(model)) == ["config.json", "model.safetensors", "notes.txt"]
    assert (model / "model.safetensors").read_text() == "trained a little more"


def test_a_revision_is_pinned(tmp_path, run_fetch, hub, model):
    pinned = read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["revision"]
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url, REVISION=pinned))["fetched"] == 0
    (tmp_path / "hub" / "models/demo/tiny/config.json").write_text("a new commit")
    said = failure_message(run_fetch("model", MODEL, HF_ENDPOINT=hub.url, REVISION=pinned))
    assert f"model demo/tiny at {pinned} is not there (HTTP 404)" in said
    assert "check the revision" in said


def test_a_folder_that_somebody_else_filled_is_read_and_kept(tmp_path, run_fetch, hub, model):
    (model / "original").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "original/tokenizer.model"):
        (model / name).write_bytes((tmp_path / "hub" / "models/demo/tiny" / name).read_bytes())
    (model / "config.json").write_bytes((model / "config.json").read_bytes().upper())
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["fetched"] == 1
    assert hub.files_sent() == ["config.json"]


def test_what_arrives_damaged_is_asked_for_again(tmp_path, run_fetch, hub, model):
    hub.watched.damage |= {"model.safetensors", "config.json"}
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert (model / "model.safetensors").read_text() == "models/demo/tiny model.safetensors"
    assert (model / "config.json").read_text() == "models/demo/tiny config.json"


def test_what_stays_damaged_is_refused(run_fetch, hub, model):
    class Always(set):
        def discard(self, name):
            pass

    hub.watched.damage = Always({"model.safetensors"})
    said = failure_message(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert "model.safetensors of model demo/tiny arrives damaged" in said
    assert not (model / "model.safetensors").exists()
    assert not is_complete(model)


@pytest.mark.parametrize("without_ranges", [False, True], ids=["ranges", "a-hub-that-ignores-ranges"])
def test_a_large_file_goes_on_where_it_was_broken_off(
    tmp_path, start_fetch, run_fetch, hub, model, monkeypatch, without_ranges
):
    content = os.urandom(1 << 20) * 24  # huggingface_hub 1.27 writes blocks of 10 MB
    (tmp_path / "hub" / "models/demo/tiny/model.safetensors").write_bytes(content)
    parts = model / ".trainjob-fetch/parts"
    processes = []

    def fetched():
        with contextlib.suppress(FileNotFoundError):  # a small file's part is renamed meanwhile
            return max((part.stat().st_size for part in parts.glob("*")), default=0)

    def send_half(handler, path, first, end):
        """Send half of the large file, and end the fetch when a part of it is in a file."""
        hub.watched.ranges.append((path.name, first, end))
        HubHandler._send_part(handler, path, first, end // 2 if path.name == "model.safetensors" else end)
        if path.name == "model.safetensors":
            wait_until(lambda: (fetched() or 0) > 1 << 20 and processes)
            processes[0].kill()

    with monkeypatch.context() as patched:
        patched.setattr(hub.watched, "_send_part", send_half)
        processes.append(start_fetch("model", MODEL, HF_ENDPOINT=hub.url))
        processes[0].communicate()
    assert processes[0].returncode == -signal.SIGKILL
    assert not (model / "model.safetensors").exists()
    there = max(part.stat().st_size for part in parts.glob("*"))
    hub.watched.ranges.clear()
    hub.watched.without_ranges = without_ranges
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert (model / "model.safetensors").read_bytes() == content
    asked = [(first, end) for name, first, end in hub.watched.ranges if name == "model.safetensors"]
    assert asked == [(0 if without_ranges else there, len(content))]
    assert not parts.exists()


@pytest.mark.parametrize("token", ["hf_right", "hf_wrong", ""])
def test_a_private_repository_wants_its_token(run_fetch, hub, model, token):
    done = run_fetch("model", "hf://demo/private", HF_ENDPOINT=hub.url, ACCESS_TOKEN=token)
    if token == "hf_right":
        assert read_receipt(done)["fetched"] == 3
    else:
        assert "hf_wrong" not in failure_message(done) + done.stdout
        assert not model.exists()


@pytest.mark.slow
def test_killed_at_any_request_and_run_again_it_is_whole(tmp_path, start_fetch, run_fetch, hub, model):
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    wanted, requests = read_contents(model), len(hub.watched.seen)
    for point in range(1, requests):
        for path in sorted(model.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        hub.watched.seen.clear()
        process = start_fetch("model", MODEL, HF_ENDPOINT=hub.url)

        def kill(line, pid=process.pid, point=point):
            if len(hub.watched.seen) >= point:
                os.kill(pid, signal.SIGKILL)

        hub.watched.hook = staticmethod(kill)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert not is_complete(model)
        hub.watched.hook = staticmethod(lambda line: None)
        read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
        assert read_contents(model) == wanted
        assert is_complete(model)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("azure://demo/tiny", "give hf://org/name, s3://bucket/prefix or gs://bucket/prefix"),
        ("hf://demo", "give hf://org/name, s3://bucket/prefix or gs://bucket/prefix"),
        ("hf://demo/none", "model demo/none is not on the hub"),
        ("", "give hf://org/name, s3://bucket/prefix or gs://bucket/prefix"),
    ],
)
def test_what_is_wrong_is_one_sentence(run_fetch, hub, uri, says):
    assert says in failure_message(run_fetch("model", uri, HF_ENDPOINT=hub.url, ACCESS_TOKEN="hf_right"))
