"""Tests of credentials as people store them: with a line end, a blank or another character after them."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler

import pytest
import yaml

from tests.support.loopback_server import LoopbackServer

SECRET = "hf_SECRETsecretSECRET1234"
ODD_ENDS = {"line end": "\n", "Windows line end": "\r\n", "blank": " ", "control character": "\x01", "euro": "€"}
CHECKPOINT = ["--output", "missing", "--destination"]
PROGRAMS = {
    "fetch": ("trainjob.programs.fetch", ["--kind", "model", "--folder", "out"]),
    "export": ("trainjob.programs.export", [*CHECKPOINT, "hf://acme/model"]),
    "registry": ("trainjob.programs.export", [*CHECKPOINT, "s3://bucket/model"]),
}


class Unauthorized(BaseHTTPRequestHandler):
    """A hub that does not accept the token, and repeats the header in its answer."""

    def do_GET(self):
        self.send_response(401)
        self.end_headers()
        self.wfile.write(str(self.headers).encode())

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names that http.server calls

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def hub():
    server = LoopbackServer(Unauthorized)
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
    kubeconfig = yaml.safe_load(laptop.kubeconfig.read_text())
    token = kubeconfig["users"][0]["user"]["token"]
    kubeconfig["users"][0]["user"]["token"] = token + end
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    command = [sys.executable, "-m", "trainjob", "--kubeconfig", str(path), "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert token not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if end.strip():
        assert "the token of the connection can't be sent" in done.stderr
        assert done.returncode == 1
    else:
        assert done.returncode == 0, done.stderr
