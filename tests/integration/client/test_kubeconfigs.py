"""Each field of a kubeconfig is obeyed, or refused by name; what kubectl ends at once is not tried for a minute."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler

import pytest
import yaml

from tests.support.loopback_server import LoopbackServer
from trainjob.client import Cluster, Connection
from trainjob.client.backoff import is_temporary
from trainjob.errors import ClusterUnreachable, CredentialPluginFailed, NoClusterConfigured, Unauthorized

VERSION = "client.authentication.k8s.io/v1"
SECRET = "SECRETsecretSECRET1234"


def make_kubeconfig(cluster, user):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def connect(content, **more):
    return contextlib.closing(Cluster(Connection(kubeconfig_text=yaml.safe_dump(content), **more), retry_seconds=0.0))


@pytest.fixture
def cluster_fields(laptop):
    return {"server": laptop.server, "certificate-authority": str(laptop.ca_file)}


@pytest.fixture
def plugin(tmp_path):
    """Return a function that writes a plugin, and returns the fields of `exec` for it."""

    def write(script, **more):
        path = tmp_path / "plugin"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        return {"exec": {"apiVersion": VERSION, "command": str(path), **more}}

    return write


def credential(token):
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": token}})


class Recorder(BaseHTTPRequestHandler):
    """An API server that records the headers of each request."""

    headers_seen: list = []  # noqa: RUF012 - each test clears it

    def do_GET(self):
        self.headers_seen.append(self.headers.items())
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"items": [], "metadata": {"resourceVersion": "1"}}')

    def log_message(self, *arguments):
        pass


@pytest.fixture
def recorder():
    Recorder.headers_seen.clear()
    server = LoopbackServer(Recorder)
    yield server
    server.stop()


def request_headers(recorder, user, **cluster):
    with connect(make_kubeconfig({"server": recorder.url, **cluster}, user)) as opened:
        opened.list_trainjobs("default")
    return Recorder.headers_seen[-1]


# -- fields that are obeyed --------------------------------------------------------------------------------------------


def test_a_kubeconfig_may_be_yaml_or_json(laptop):
    content = yaml.safe_load(laptop.kubeconfig.read_text())
    for text in (yaml.safe_dump(content), json.dumps(content)):
        with contextlib.closing(Cluster(Connection(kubeconfig_text=text))) as cluster:
            assert isinstance(cluster.list_trainjobs("default"), list)


def test_a_token_file_is_read_before_the_token(laptop, cluster_fields, tmp_path):
    (tmp_path / "token").write_text(laptop.token + "\n")  # as `kubectl create token NAME > token` writes it
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(make_kubeconfig(cluster_fields, {"token": "wrong", "tokenFile": "token"})))
    with contextlib.closing(Cluster(Connection(kubeconfig=str(path)), retry_seconds=0.0)) as cluster:
        assert isinstance(cluster.list_trainjobs("default"), list)


def test_a_user_is_impersonated(recorder):
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["developers", "admins"],
        "as-user-extra": {"acme.com/Project": ["a", "b"]},
    }
    found = [(name, value) for name, value in request_headers(recorder, user) if name.startswith("Impersonate")]
    assert found == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "developers"),
        ("Impersonate-Group", "admins"),
        ("Impersonate-Extra-acme.com%2FProject", "a"),
        ("Impersonate-Extra-acme.com%2FProject", "b"),
    ]


def test_user_name_and_password_are_sent(recorder):
    headers = dict(request_headers(recorder, {"username": "jane", "password": "a:b"}))
    assert headers["Authorization"] == f"Basic {base64.b64encode(b'jane:a:b').decode()}"


@contextlib.contextmanager
def recording_proxy():
    """Yield the URL of a proxy that refuses all requests, and their heads."""
    heads = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        heads.append(client.recv(65536).decode())
                        client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heads
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("server", ["https://api.example.invalid:6443", "https://127.0.0.1:6443"])
def test_the_proxy_of_a_cluster_is_used_whatever_the_environment_says(monkeypatch, server):
    monkeypatch.setenv("NO_PROXY", "*")
    with recording_proxy() as (address, heads):
        fields = {"server": server, "proxy-url": f"http://jane:s%20t@{address}"}
        with connect(make_kubeconfig(fields, {"token": "t"})) as opened, pytest.raises(ClusterUnreachable) as raised:
            opened.list_trainjobs("default")
    assert heads[0].startswith(f"CONNECT {server.removeprefix('https://')} ")
    assert f"Basic {base64.b64encode(b'jane:s t').decode()}" in heads[0]
    assert "s%20t" not in str(raised.value)


def test_the_certificate_may_have_the_name_that_the_cluster_states(laptop, cluster_fields):
    for name, works in (("localhost", True), ("another.example", False)):
        content = make_kubeconfig({**cluster_fields, "tls-server-name": name}, {"token": laptop.token})
        with connect(content) as opened:
            if works:
                assert isinstance(opened.list_trainjobs("default"), list)
            else:
                with pytest.raises(NoClusterConfigured, match="certificate") as raised:
                    opened.list_trainjobs("default")
                assert "tls-server-name" in raised.value.hint


# -- fields that are refused by name -----------------------------------------------------------------------------------

REFUSED = {
    "gcp": ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider gcp", "gke-gcloud-auth-plugin"),
    "azure": ({}, {"auth-provider": {"name": "azure"}}, "auth-provider azure", "kubelogin"),
    "oidc": ({}, {"auth-provider": {"name": "oidc", "config": {"id-token": SECRET}}}, "oidc", "oidc-login"),
    "another provider": ({}, {"auth-provider": 5}, "auth-provider", ""),
    "unknown field": ({"certificate-autority": "/ca"}, {}, "certificate-autority", "correct its name"),
    "socks": ({"proxy-url": "socks5://127.0.0.1:9"}, {}, "proxy-url", "SOCKS"),
    "proxy with a wrong port": ({"proxy-url": "http://h:x"}, {}, "proxy-url", ""),
    "groups without a user": ({}, {"as-groups": ["a"]}, "without as", "add the field as"),
    "line end in a group": ({}, {"as": "a", "as-groups": ["a\nb"]}, "as-groups", ""),
    "token of another type": ({}, {"token": 5}, "token of its user is no text", ""),
    "token file that is missing": ({}, {"tokenFile": "/nowhere/token"}, "/nowhere/token", ""),
    "plugin of an old version": (
        {},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1"}},
        "apiVersion",
        "",
    ),
    "plugin that needs a terminal": (
        {},
        {"exec": {"apiVersion": VERSION, "command": "sh", "interactiveMode": "Always"}},
        "interactiveMode",
        "",
    ),
    "plugin with an unknown field": ({}, {"exec": {"program": "sh"}}, "program", ""),
    "server of another type": ({"server": 5}, {}, "server of its cluster is no text", ""),
    "no server": ({"server": None}, {}, "no server", "add the URL"),
    **{
        f"server {url}": ({"server": url}, {}, "URL of an API server", "")
        for url in (
            "https://127.0.0.1:abc",
            "https://127.0.0.1:99999",
            "https://a b:6443",
            "ftp://h",
            "https://h:0",
            "127.0.0.1:1",
        )
    },
}


@pytest.mark.parametrize(("cluster", "user", "named", "advice"), REFUSED.values(), ids=REFUSED)
def test_a_field_that_cannot_be_obeyed_is_refused_by_name(cluster, user, named, advice):
    content = make_kubeconfig({"server": "https://127.0.0.1:1", **cluster}, user)
    with pytest.raises(NoClusterConfigured) as raised:
        Cluster(Connection(kubeconfig_text=json.dumps(content)))
    message, _, hint = str(raised.value).partition("\n")
    assert named in message
    assert advice in hint
    assert SECRET not in str(raised.value)
    assert not raised.value.retryable


@pytest.mark.parametrize("content", ["[]", "5", "null", "a: [", "clusters: {}", "{}"])
def test_a_text_that_is_no_kubeconfig_is_refused(content):
    with pytest.raises(NoClusterConfigured, match="the kubeconfig of this connection can't be used"):
        Cluster(Connection(kubeconfig_text=content))


@pytest.mark.parametrize("is_file", [True, False])
def test_the_error_of_a_text_that_is_no_yaml_does_not_show_it(tmp_path, is_file):
    text = f"users:\n- user: {{token: {SECRET}\nclusters: ]"
    (tmp_path / "kubeconfig").write_text(text)
    given = {"kubeconfig": str(tmp_path / "kubeconfig")} if is_file else {"kubeconfig_text": text}
    with pytest.raises(NoClusterConfigured, match=r"it is neither YAML nor JSON, at line 3") as raised:
        Cluster(Connection(**given))
    assert SECRET not in str(raised.value)


def test_a_user_that_does_not_exist_is_refused():
    content = make_kubeconfig({"server": "https://127.0.0.1:1"}, {})
    content["contexts"][0]["context"]["user"] = "nobody"
    with pytest.raises(NoClusterConfigured, match="nobody"):
        Cluster(Connection(kubeconfig_text=json.dumps(content)))


def test_null_is_the_same_as_a_field_that_is_missing(cluster_fields):
    content = make_kubeconfig(cluster_fields, {"exec": None, "token": None})
    with connect(content) as opened, pytest.raises(Unauthorized):
        opened.list_trainjobs("default")


# -- credential plugins ------------------------------------------------------------------------------------------------


def test_a_plugin_gives_the_token(laptop, cluster_fields, plugin, tmp_path):
    shutil.copy(laptop.ca_file, tmp_path / "ca.crt")
    script = f"printf %s \"$KUBERNETES_EXEC_INFO\" >{tmp_path}/info; echo '{credential(laptop.token)}'"
    user = plugin(script, provideClusterInfo=True, env=[{"name": "A", "value": "b"}])
    user["exec"]["command"] = "./plugin"  # relative to the kubeconfig
    path = tmp_path / "kubeconfig"
    fields = {**cluster_fields, "certificate-authority": "ca.crt"}
    path.write_text(yaml.safe_dump(make_kubeconfig(fields, user)))
    with contextlib.closing(Cluster(Connection(kubeconfig=str(path)), retry_seconds=0.0)) as cluster:
        assert isinstance(cluster.list_trainjobs("default"), list)
    given = json.loads((tmp_path / "info").read_text())["spec"]
    assert given["interactive"] is False
    assert given["cluster"]["server"] == laptop.server
    assert base64.b64decode(given["cluster"]["certificate-authority-data"]) == laptop.ca_file.read_bytes()


def test_a_plugin_that_fails_once_is_run_again(laptop, cluster_fields, plugin, tmp_path):
    script = f"[ -e {tmp_path}/failed ] || {{ touch {tmp_path}/failed; exit 255; }}; echo '{credential(laptop.token)}'"
    content = make_kubeconfig(cluster_fields, plugin(script))
    with contextlib.closing(Cluster(Connection(kubeconfig_text=json.dumps(content)))) as cluster:
        assert isinstance(cluster.list_trainjobs("default"), list)


FAILURES = {
    "expired login": ("echo warning >&2; echo login has expired >&2; exit 255", "login has expired"),
    "no words": ("exit 3", "exit code 3"),
    "credentials in its output": ('echo "denied: $API_TOKEN" >&2; exit 1', "denied: ***"),
    "no JSON": ("echo hello", "it gave no such output"),
    "no credentials": (f"echo '{json.dumps({'apiVersion': VERSION, 'status': {}})}'", "it gave no such output"),
    "another version": ('echo \'{"apiVersion": "v0", "status": {"token": "t"}}\'', "it gave no such output"),
    "token of another type": (
        f"echo '{json.dumps({'apiVersion': VERSION, 'status': {'token': 5}})}'",
        "it gave no such output",
    ),
}


@pytest.mark.parametrize(("script", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_plugin_that_fails_is_temporary_and_nothing_is_sent(recorder, plugin, script, reason):
    user = plugin(script, env=[{"name": "API_TOKEN", "value": SECRET}])
    with pytest.raises(CredentialPluginFailed) as raised:
        Cluster(
            Connection(kubeconfig_text=json.dumps(make_kubeconfig({"server": recorder.url}, user))), retry_seconds=0.0
        )
    assert reason in str(raised.value)
    assert SECRET not in str(raised.value)
    assert isinstance(raised.value, Unauthorized)
    assert raised.value.retryable
    assert is_temporary(raised.value)
    assert Recorder.headers_seen == []


def test_a_plugin_that_is_not_installed_is_refused_with_its_hint():
    plugin = {"apiVersion": VERSION, "command": "no-such-plugin", "installHint": "see https://example.com\nfor help"}
    content = make_kubeconfig({"server": "https://127.0.0.1:1"}, {"exec": plugin})
    with pytest.raises(NoClusterConfigured, match="no-such-plugin can't be started") as raised:
        Cluster(Connection(kubeconfig_text=json.dumps(content)))
    assert "see https://example.com for help" in raised.value.hint


def test_a_plugin_that_hangs_ends_with_its_children(monkeypatch, plugin, tmp_path, caplog):
    monkeypatch.setattr("trainjob.client.credential_plugin._MAX_SECONDS", 1.0)
    monkeypatch.setattr("trainjob.client.credential_plugin._REPORT_SECONDS", 0.5)
    script = f"sleep 1000 & echo $! >{tmp_path}/child; wait"
    content = make_kubeconfig({"server": "https://127.0.0.1:1"}, plugin(script))
    with pytest.raises(CredentialPluginFailed, match="did not end within"):
        Cluster(Connection(kubeconfig_text=json.dumps(content)), retry_seconds=0.0)
    assert f"waiting for the credential plugin {tmp_path}/plugin" in caplog.text
    child = int((tmp_path / "child").read_text())
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(child, 0)
            time.sleep(0.1)


def test_a_plugin_that_fails_at_its_renewal_is_an_outage(laptop, cluster_fields, plugin, tmp_path):
    status = {"token": laptop.token, "expirationTimestamp": "2020-01-01T00:00:00Z"}
    output = json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})
    script = f"[ ! -e {tmp_path}/fails ] || {{ echo throttled >&2; exit 1; }}; echo '{output}'"
    with connect(make_kubeconfig(cluster_fields, plugin(script))) as opened:
        opened.list_trainjobs("default")
        (tmp_path / "fails").touch()
        with pytest.raises(CredentialPluginFailed, match="throttled"):
            opened.list_trainjobs("default")
        (tmp_path / "fails").unlink()
        assert isinstance(opened.list_trainjobs("default"), list)


def test_other_connections_are_opened_while_a_plugin_is_tried_again(laptop, plugin, tmp_path):
    """A process of its own, because it has shared clusters."""
    content = make_kubeconfig({"server": laptop.server}, plugin("exit 1"))
    program = (
        "import json, sys, threading\n"
        "from trainjob.client import Connection, shared_cluster\n"
        "blocked, works = Connection(kubeconfig_text=sys.argv[1]), Connection(kubeconfig=sys.argv[2])\n"
        "threading.Thread(target=shared_cluster, args=[blocked], daemon=True).start()\n"
        "shared_cluster(works).list_trainjobs('default')\n"
        "print('opened', flush=True)\n"
    )
    command = [sys.executable, "-c", program, json.dumps(content), str(laptop.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.stdout == "opened\n", done.stderr
