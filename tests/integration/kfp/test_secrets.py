"""Tests that everything that a run leaves behind does not contain a Secret's value."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client, config

from trainjob_demo.engines.kfp import RUN_PIPELINE
from trainjob_local.demo.hub import HubServer

CHAIN = Path(__file__).resolve().parent / "secret_chain.py"
LISTS = [
    f"/apis/{path}"
    for path in (
        "trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
        "jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
        "batch/v1/namespaces/default/jobs",
        "events.k8s.io/v1/namespaces/default/events",
    )
] + [f"/api/v1/namespaces/default/{kind}" for kind in ("pods", "events", "configmaps", "services", "secrets")]


@pytest.fixture
def get_text(laptop):
    """Yield a client, and a function that returns the API server's text at a path."""
    api_client = config.new_client_from_config(config_file=str(laptop.kubeconfig))

    def get(path):
        try:
            found, *_ = api_client.call_api(path, "GET", auth_settings=["BearerToken"], response_type="object")
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise
        return json.dumps(found)

    yield api_client, get
    api_client.close()


def create_secret_and_claim(api_client, value, name):
    """Create a Secret with the value, and a claim of the same name."""
    core = client.CoreV1Api(api_client)
    core.create_namespaced_secret("default", {"metadata": {"name": name}, "stringData": {"HF_TOKEN": value}})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    core.create_namespaced_persistent_volume_claim("default", {"metadata": {"name": name}, "spec": spec})


def find_value(value, folder, texts):
    """Return the files below this folder and the texts that contain the value.

    The value may be plain or in base64.
    """
    encoded = [value.encode(), base64.b64encode(value.encode()).rstrip(b"=")]
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    everything = files | {name: text.encode() for name, text in texts.items()}
    return sorted(name for name, content in everything.items() if any(text in content for text in encoded))


def test_only_the_secret_object_contains_the_value(laptop, get_text, tmp_path, unique):
    api_client, get = get_text
    value = f"hf_{secrets.token_hex(16)}"
    create_secret_and_claim(api_client, value, unique)
    rows = tmp_path / "hub" / "datasets" / "demo" / "gated" / "rows.txt"
    rows.parent.mkdir(parents=True)
    rows.write_text("a-row\n")
    run = tmp_path / "run"
    run.mkdir()
    environment = {
        **os.environ,
        "KUBECONFIG": str(laptop.kubeconfig),
        "TRAINJOB_RUN_ID": unique,
        "TMPDIR": str(run),  # files that the components unpack and write are searched, too
    }
    with HubServer(tmp_path / "hub", tokens={"demo/gated": value}) as hub:
        done = subprocess.run(
            [sys.executable, RUN_PIPELINE, CHAIN, run, unique, unique, hub.url],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout
    # The value was used: the Hub returned the row for it, and the second step's container had it.
    assert "[node-0] a-row" in done.stdout
    assert hashlib.sha256(value.encode()).hexdigest() in done.stdout
    texts = {path: text for path in LISTS if (text := get(path)) is not None} | {"log": done.stdout}
    assert all(unique in texts[path] for path in LISTS if path.endswith(("/trainjobs", "/jobsets", "/pods")))
    assert any(path.endswith("/events") for path in texts)
    assert list(run.rglob("*.yaml"))
    assert list(run.rglob("executor_output.json"))
    assert find_value(value, run, texts) == ["/api/v1/namespaces/default/secrets"]


def test_find_value_finds_plain_and_encoded_values(tmp_path):
    value = secrets.token_hex(16)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "plain").write_text(f"token={value}\n")
    (tmp_path / "packed").write_bytes(b"\0" + base64.b64encode(value.encode()))
    (tmp_path / "clean").write_text("nothing")
    assert find_value(value, tmp_path, {"log": f"x{value}", "other": ""}) == ["deep/plain", "log", "packed"]
