"""Tests of credentials as people store them: with a line end, a blank or another character after them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.loopback_server import LoopbackServer
from tests.support.odd_credentials import ODD_ENDS, SECRET, HeaderEcho, write_odd_kubeconfig

CHECKPOINT = ["--output", "missing", "--destination"]
PROGRAMS = {
    "fetch": ("trainjob.programs.fetch", ["--kind", "model", "--folder", "out"]),
    "export": ("trainjob.programs.export", [*CHECKPOINT, "hf://acme/model"]),
    "registry": ("trainjob.programs.export", [*CHECKPOINT, "s3://bucket/model"]),
}


@pytest.fixture(scope="module")
def hub():
    server = LoopbackServer(HeaderEcho)
    yield server.url
    server.stop()


@pytest.mark.parametrize("end", ODD_ENDS.values(), ids=ODD_ENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_prints_a_credential(hub, tmp_path, program, end):
    module, arguments = PROGRAMS[program]
    values = {"HF_ENDPOINT": hub, "ENDPOINT": hub, "STORAGE_URI": "hf://acme/llama"}
    secrets = dict.fromkeys(["ACCESS_TOKEN", "HF_TOKEN", "REGISTRY_TOKEN"], SECRET + end)
    environment = {**os.environ, **values, **secrets}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode in (1, 2)
    assert SECRET[3:] not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if end.strip():
        assert "its character 26 is not printable ASCII" in done.stderr


@pytest.mark.parametrize("end", ODD_ENDS.values(), ids=ODD_ENDS)
def test_the_token_of_a_kubeconfig_is_not_printed(laptop, tmp_path, end):
    path = tmp_path / "kubeconfig"
    token = write_odd_kubeconfig(laptop.kubeconfig, path, end)
    command = [sys.executable, "-m", "trainjob", "--kubeconfig", str(path), "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert token not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if end.strip():
        assert "the token of the connection can't be sent" in done.stderr
        assert done.returncode == 1
    else:
        assert done.returncode == 0, done.stderr
