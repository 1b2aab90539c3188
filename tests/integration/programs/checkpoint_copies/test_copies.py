"""Copies of checkpoints in loopback object stores: complete or not there, whenever a process is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.azure_server import AzureServer
from tests.support.export_runs import read_tree
from tests.support.gcs_server import GcsServer
from tests.support.object_server import ObjectServer
from tests.support.s3_server import S3Server
from trainjob.frameworks.transformers.checkpoints import mark_complete

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = Path(__file__).with_name("copying_program.py")
PREFIX = "models/copies/owner"
MARK = "trainjob_complete"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(params=[S3Server, GcsServer, AzureServer], ids=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    with request.param() as server:
        yield server


@pytest.fixture
def start(store: ObjectServer, tmp_path: Path) -> Start:
    """Return a function that starts the program of the tests."""
    home = {"HOME": str(tmp_path), "PYTHONPATH": f"{ROOT / 'core/src'}", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*words: object) -> subprocess.Popen[str]:
        python = ROOT / ".venv/initializer/bin/python"
        command = [python, PROGRAM, f"{store.scheme}://{PREFIX}", store.url, *map(str, words)]
        env = {"PATH": os.environ["PATH"], **home, **store.environment}
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


@pytest.fixture
def run(start: Start) -> Callable[..., str]:
    """Return a function that runs the program, and returns what it prints."""

    def run(*words: object) -> str:
        out, err = (process := start(*words)).communicate(timeout=60)
        assert process.returncode == 0, err
        return out.strip()

    return run


def save(output: Path, step: int, content: str = "") -> Path:
    checkpoint = output / f"checkpoint-{step}"
    (checkpoint / "below").mkdir(parents=True)
    (checkpoint / "model.safetensors").write_text(f"weights of {step}{content}")
    (checkpoint / "below/rng_state.pth").write_text("random")
    mark_complete(checkpoint, "owner")
    return checkpoint


def test_the_last_checkpoint_is_copied_and_fetched(
    store: ObjectServer, run: Callable[..., str], tmp_path: Path
) -> None:
    assert run("find") == "None"
    run("upload", save(tmp_path, 4))
    eighth = save(tmp_path, 8)
    assert "reason=''" in run("upload", eighth)
    assert run("find") == "8"
    assert {name.split("/")[0] for name in store.read_prefix(PREFIX)} == {"checkpoint-8"}
    put = [key for key in store.sent_keys() if "checkpoint-8/" in key]
    assert put[-1].endswith(MARK)
    fetched = tmp_path / "new/kept"
    assert run("download", fetched, 8) == str(fetched / "checkpoint-8")
    expected = read_tree(eighth)
    found = read_tree(fetched / "checkpoint-8")
    assert {**found, MARK: b""} == {**expected, MARK: b""}
    assert json.loads(found[MARK]) == json.loads(expected[MARK])
    run("remove")
    assert store.read_prefix(PREFIX) == {}


def test_a_checkpoint_is_sent_once_and_a_new_save_of_the_step_again(
    store: ObjectServer, run: Callable[..., str], tmp_path: Path
) -> None:
    run("upload", save(tmp_path / "a", 4))
    before = len(store.sent_keys())
    assert run("upload", tmp_path / "a/checkpoint-4") == "Upload(size=0, reason='')"
    assert len(store.sent_keys()) == before
    run("upload", save(tmp_path / "b", 4, " again"))
    assert store.read_prefix(PREFIX)["checkpoint-4/model.safetensors"] == b"weights of 4 again"


def test_a_copy_of_a_later_step_stays(store: ObjectServer, run: Callable[..., str], tmp_path: Path) -> None:
    run("upload", save(tmp_path, 8))
    run("upload", save(tmp_path, 4))
    assert run("find") == "8"


def test_an_incomplete_checkpoint_is_not_copied(store: ObjectServer, run: Callable[..., str], tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 4)
    (checkpoint / "model.safetensors").write_text("cut")
    assert "another size" in run("upload", checkpoint)
    (checkpoint / MARK).unlink()
    assert "not complete" in run("upload", checkpoint)
    assert store.read_prefix(PREFIX) == {}


def test_a_damaged_copy_is_never_marked(
    store: ObjectServer, start: Start, run: Callable[..., str], tmp_path: Path
) -> None:
    run("upload", save(tmp_path, 4))
    found = store.objects[f"{PREFIX}/checkpoint-4/model.safetensors"]
    found.data = found.data.upper()  # the same size
    _, err = (process := start("download", tmp_path / "new", 4)).communicate(timeout=60)
    assert process.returncode != 0
    assert "model.safetensors of the copy of checkpoint-4 has another content than was sent" in err
    assert list((tmp_path / "new").glob(f"**/{MARK}")) == []


def kill_at(store: ObjectServer, start: Start, number: int, *words: object) -> bool:
    """Kill the program before its request of this number; return False if it has fewer."""
    process: list[subprocess.Popen[str]] = []
    count, started = iter(range(1_000)), os.pipe()

    def kill(_method: str, _key: str, after: bool) -> None:
        if not after and next(count) == number:
            os.read(started[0], 1)
            process[0].send_signal(signal.SIGKILL)
            process[0].wait()

    store.hook = kill
    process.append(start(*words))
    os.write(started[1], b"x")
    process[0].communicate(timeout=60)
    store.hook = lambda method, key, after: None
    os.close(started[0])
    os.close(started[1])
    assert process[0].returncode in (0, -signal.SIGKILL)
    return process[0].returncode != 0


def test_a_kill_at_any_request_of_an_upload_leaves_only_complete_copies(
    store: ObjectServer, start: Start, run: Callable[..., str], tmp_path: Path
) -> None:
    run("upload", save(tmp_path, 4))
    eighth, number = save(tmp_path, 8), 0
    earlier = dict(store.objects)
    while True:
        store.objects = dict(earlier)
        was_killed = kill_at(store, start, number, "upload", eighth)
        step = run("find")
        assert step in ("4", "8")
        run("download", tmp_path / f"new-{number}", step)
        run("upload", eighth)
        assert {name.split("/")[0] for name in store.read_prefix(PREFIX)} == {"checkpoint-8"}
        if not was_killed:
            break
        number += 1
    assert number >= 6


def test_a_download_is_repeated_after_a_kill_at_any_request(
    store: ObjectServer, start: Start, run: Callable[..., str], tmp_path: Path
) -> None:
    run("upload", save(tmp_path, 4))
    number, folder = 0, tmp_path / "new"
    while kill_at(store, start, number, "download", folder, 4):
        assert list(folder.glob(f"**/{MARK}")) == []
        number += 1
    assert number >= 3
    assert (folder / "checkpoint-4/model.safetensors").read_text() == "weights of 4"
    assert [path.name for path in folder.iterdir()] == ["checkpoint-4"]
