"""The program beside a training, as the pod gets it, with loopback object stores."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs.checkpoint_copies.test_copies import ROOT, save
from tests.support.azure_server import AzureServer
from tests.support.gcs_server import GcsServer
from tests.support.object_server import ObjectServer
from tests.support.s3_server import S3Server
from trainjob.frameworks.copier_process import FETCH, REMOVE, UPLOAD
from trainjob.frameworks.program_options import COPIER_DEPENDENCIES
from trainjob.packing import program_command


@pytest.fixture(params=[S3Server, GcsServer, AzureServer], ids=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    with request.param() as server:
        yield server


def run(store: ObjectServer, home: Path, *requests: tuple[str, ...], valid: bool = True) -> tuple[list[str], list[str]]:
    """Run the program, and return the lines of its standard output and of its log."""
    _, *program = program_command("trainjob.frameworks.checkpoint_copies", *COPIER_DEPENDENCIES)
    uri = f"{store.scheme}://models/copies/"
    command = [ROOT / ".venv/initializer/bin/python", *program, "--endpoint", store.url, uri, "owner"]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **store.credentials(valid=valid)}
    text = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_uploads_fetches_and_removals(store: ObjectServer, tmp_path: Path) -> None:
    fourth, eighth = (save(tmp_path / "output", step) for step in (4, 8))
    uri = f"{store.scheme}://models/copies"
    out, log = run(store, tmp_path, (FETCH, str(tmp_path / "new")), (UPLOAD, str(fourth)), (UPLOAD, str(eighth)))
    assert out == ["{}"]
    copied = [line.partition(" (")[0] for line in log if line.startswith("copied ")]
    assert copied[-1] == "copied checkpoint-8"
    assert f" to {uri} in " in log[-1]
    assert {name.split("/")[0] for name in store.read_prefix("models/copies/owner")} == {"checkpoint-8"}

    out, log = run(store, tmp_path, (FETCH, str(tmp_path / "new")))
    assert json.loads(out[0]) == {"checkpoint": "checkpoint-8"}
    assert log[0].startswith("fetched checkpoint-8 (")
    assert (tmp_path / "new/checkpoint-8/model.safetensors").read_text() == "weights of 8"
    assert run(store, tmp_path, (REMOVE,)) == ([], [])
    assert store.objects == {}


def test_a_store_that_denies_access_is_a_warning_for_each_request(store: ObjectServer, tmp_path: Path) -> None:
    checkpoint = save(tmp_path / "output", 4)
    requests = (FETCH, str(tmp_path / "new")), (UPLOAD, str(checkpoint))
    out, log = run(store, tmp_path, *requests, valid=False)
    reason = "no valid credentials" if store.scheme == "gs" else "access denied"
    assert reason in json.loads(out[0])["warning"]
    assert [line.partition(" to ")[0] for line in log] == ["warning: checkpoint-4 is not copied"]
    assert reason in log[0]
    _, log = run(store, tmp_path, (REMOVE,), valid=False)
    assert [line.partition(" in ")[0] for line in log] == ["warning: the copies of checkpoints"]
    secrets = [value for value in store.credentials(valid=False).values() if len(value) > 12]
    assert not any(secret in line for line in [*out, *log] for secret in secrets)
