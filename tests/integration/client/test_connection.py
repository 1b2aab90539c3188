"""Tests of errors at the connection: one clear sentence each, with advice.

The cases are no cluster, a wrong kubeconfig, an expired token and a missing permission.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import ClusterUnreachable, InvalidSpec, NoClusterConfigured, PermissionDenied, Unauthorized
from trainjob.lifecycle import RunKey, submit

JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]))


def kubeconfig(server: str, token: str, ca_file: Path | None = None) -> str:
    authority = {"certificate-authority": str(ca_file)} if ca_file else {}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, **authority}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
    )


def message_of(error) -> str:
    text = str(error)
    assert error.hint, "no word on what to do"
    assert text.count("\n") == 1
    assert "Traceback" not in text
    return text


def test_no_cluster_is_configured(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with pytest.raises(NoClusterConfigured) as raised:
        Cluster()
    assert "trainjob local up" in message_of(raised.value)


@pytest.mark.parametrize("content", [None, "", "not: [yaml", "apiVersion: v1\nkind: Config\n"])
def test_an_invalid_kubeconfig_is_reported(tmp_path, content):
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(NoClusterConfigured) as raised:
        Cluster(Connection(kubeconfig=str(path)))
    assert str(path) in message_of(raised.value).partition("\n")[0]


def test_a_missing_context_is_reported(laptop):
    with pytest.raises(NoClusterConfigured, match="nonesuch"):
        Cluster(Connection(kubeconfig=str(laptop.kubeconfig), context="nonesuch"))


def test_a_server_that_does_not_respond_is_reported(unique, refusing_url):
    cluster = Cluster(Connection(kubeconfig_text=kubeconfig(refusing_url, "t")), retry_seconds=0.0)
    with pytest.raises(ClusterUnreachable) as raised:
        submit(cluster, JOB, RunKey("test", "w", unique, "r"))
    assert refusing_url in message_of(raised.value)
    assert raised.value.retryable


def test_an_expired_token_is_reported(laptop, unique):
    cluster = Cluster(Connection(kubeconfig_text=kubeconfig(laptop.server, "expired-token", laptop.ca_file)))
    with pytest.raises(Unauthorized) as raised:
        submit(cluster, JOB, RunKey("test", "w", unique, "r"))
    text = message_of(raised.value)
    assert laptop.server in text
    assert "expired-token" not in text


def test_a_missing_permission_is_reported(laptop, cluster, unique):
    from kubernetes import client, config

    api = config.new_client_from_config(str(laptop.kubeconfig))
    core = client.CoreV1Api(api)
    core.create_namespaced_service_account("default", {"metadata": {"name": unique}})
    request = {"spec": {"expirationSeconds": 3600}}
    token = core.create_namespaced_service_account_token(unique, "default", request).status.token
    api.close()
    nobody = Cluster(Connection(kubeconfig_text=kubeconfig(laptop.server, token, laptop.ca_file)))
    with pytest.raises(PermissionDenied) as raised:
        submit(nobody, JOB, RunKey("test", "w", unique, "r"))
    text = message_of(raised.value)
    for expected in ("trainjobs", "default", unique, "manifests/"):
        assert expected in text
    assert token not in text
    nobody.close()


def test_a_rotated_token_file_is_read_again(laptop, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    cluster = Cluster(Connection(server=laptop.server, token_file=str(token), ca_file=str(laptop.ca_file)))
    with pytest.raises(Unauthorized):
        cluster.list_trainjobs("default")
    import yaml

    token.write_text(yaml.safe_load(Path(laptop.kubeconfig).read_text())["users"][0]["user"]["token"])
    assert isinstance(cluster.list_trainjobs("default"), list)


def test_only_one_way_to_reach_the_cluster_may_be_given():
    with pytest.raises(InvalidSpec, match="kubeconfig and in_cluster"):
        Connection(kubeconfig="x", in_cluster=True)


def test_a_connection_shows_no_credentials():
    assert "secret" not in repr(Connection(kubeconfig_text='{"token": "secret"}'))


def test_the_service_account_of_the_pod_is_the_last_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert Connection().uses_service_account
    assert Connection(in_cluster=True).uses_service_account
    assert not Connection(server="http://127.0.0.1:1").uses_service_account
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    assert not Connection().uses_service_account
