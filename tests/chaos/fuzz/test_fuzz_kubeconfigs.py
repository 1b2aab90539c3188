"""Fuzz tests of invalid kubeconfigs: `NoClusterConfigured` is raised, without a secret in its message."""

from __future__ import annotations

import base64
import json
import tempfile
import traceback
from pathlib import Path

import yaml
from hypothesis import strategies as st

from tests.chaos.fuzz.fuzzing import JSON, damaged_json, edge_cases, fuzz
from trainjob.client import Connection
from trainjob.client.connection import open_client
from trainjob.errors import InvalidSpec, NoClusterConfigured

TOKEN, PASSWORD = "token-0123456789abcdef", "pw-0123456789abcdef"


def make_kubeconfig(cluster, user):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }


BASIC = {"token": TOKEN, "username": "me", "password": PASSWORD}
KUBECONFIG = make_kubeconfig({"insecure-skip-tls-verify": False}, BASIC)
CERTIFICATES = make_kubeconfig(
    {
        "certificate-authority-data": base64.b64encode(b"ca").decode(),
        "tls-server-name": "kube",
        "proxy-url": "http://127.0.0.1:2",
    },
    {"token": TOKEN, "tokenFile": "/nowhere/token", "auth-provider": {"name": "gcp"}},
)
EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "/nowhere/no-such-plugin",
    "args": ["token"],
    "env": [{"name": "A", "value": PASSWORD}],
    "interactiveMode": "Never",
}
PLUGIN = make_kubeconfig({"insecure-skip-tls-verify": False}, {"exec": EXEC})
CONFIGS = damaged_json(KUBECONFIG) | damaged_json(CERTIFICATES) | damaged_json(PLUGIN)
BOMB = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def open_connection(connection):
    """Open a connection; return `a client`, or the class of the error, which shows no secret."""
    try:
        client, namespace = open_client(connection)
    except (NoClusterConfigured, InvalidSpec) as error:
        shown = "".join(traceback.format_exception(error))
        assert TOKEN not in shown
        assert PASSWORD not in shown
        return type(error).__name__
    assert isinstance(client.configuration.host, str)
    assert isinstance(namespace, str)
    client.close()
    return "a client"


@fuzz("kubeconfigs as JSON text", 200, config=CONFIGS | JSON | edge_cases)
def test_a_kubeconfig_as_json_is_opened_or_refused(config):
    return open_connection(Connection(kubeconfig_text=json.dumps(config) or "x"))


@fuzz(
    "kubeconfig files",
    200,
    text=CONFIGS.map(lambda config: yaml.safe_dump(config).encode())
    | st.binary(max_size=60)
    | st.sampled_from(
        [BOMB.encode(), b"[" * 5000, b"a: &a [*a]", b"!!python/object/apply:os.system [id]", b"\xff\xfe\x00"]
    )
    | st.tuples(st.integers(0, 400), st.text(max_size=3)).map(
        lambda cut: (yaml.safe_dump(KUBECONFIG)[: cut[0]] + cut[1]).encode(errors="replace")
    ),
)
def test_a_kubeconfig_file_is_opened_or_refused(text):
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(text)
        return open_connection(Connection(kubeconfig=file.name))


@fuzz(
    "connections without a kubeconfig",
    200,
    server=st.sampled_from(
        ["https://h", "h:1", "https://u:p@h", "ftp://h", "https://", "https://h:x", "https://[", "//h", "\0"]
    )
    | st.text(max_size=6),
    context=st.text(max_size=3),
)
def test_an_explicit_connection_is_opened_or_refused(server, context):
    try:
        connection = Connection(server=server or "x", context=context)
    except InvalidSpec as error:
        assert "u:p" not in str(error)
        return "InvalidSpec"
    assert "u:p" not in repr(connection)
    return open_connection(connection)
