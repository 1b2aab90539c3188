"""The Role of manifests/ is all that a step's engine needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.cluster import Cluster, Connection
from trainjob.errors import PermissionDenied
from trainjob.run import Limits, Listener, cancel, submit, wait

ROLE = yaml.safe_load((Path(__file__).parents[2] / "manifests" / "role.yaml").read_text())


@pytest.fixture
def restricted(laptop, cluster, unique):
    """The cluster as a service account sees it that has this Role and nothing else."""

    def create(path, body):
        return cluster._door.ask("POST", path, doing="set the test up", body=body)

    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": unique}})
    create(f"{rbac}/roles", {**ROLE, "metadata": {"name": unique}})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": unique}
    subject = {"kind": "ServiceAccount", "name": unique, "namespace": "default"}
    create(f"{rbac}/rolebindings", {"metadata": {"name": unique}, "roleRef": reference, "subjects": [subject]})
    path = f"/api/v1/namespaces/default/serviceaccounts/{unique}/token"
    token = create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "clusters": [{"name": "c", "cluster": {"server": laptop.server}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    opened = Cluster(Connection(kubeconfig_json=json.dumps(kubeconfig)), patience=0.0)
    yield opened
    opened.close()


def shell(script):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))


def test_submit_wait_logs_adopt_and_cancel(restricted, unique):
    lines = []
    reference = submit(restricted, shell("echo hello"), RunKey("test", "role", unique, "run-1"))
    outcome = wait(restricted, reference, listener=Listener(on_log=lines.append))
    assert outcome.succeeded
    assert [str(line) for line in lines] == ["[node-0] hello"]
    assert submit(restricted, shell("echo hello"), RunKey("test", "role", unique, "run-1")).adopted
    assert cancel(restricted, reference)


def test_a_failure_is_explained_and_ended(restricted, unique):
    reference = submit(restricted, shell("echo why >&2; exit 3"), RunKey("test", "role", unique, "run-1"))
    outcome = wait(restricted, reference, limits=Limits(max_restarts=0))
    assert (outcome.exit_code, outcome.log_tail) == (3, ("why",))


def test_a_workspace_comes_and_goes(restricted, unique):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    restricted.create_claim({"metadata": {"name": unique, "namespace": "default"}, "spec": spec})
    claim = restricted.get_claim(unique, "default")
    assert restricted.delete_claim(unique, "default", claim["metadata"]["uid"])


def test_and_nothing_more(restricted):
    with pytest.raises(PermissionDenied, match="secrets"):
        restricted._door.ask("GET", "/api/v1/namespaces/default/secrets", doing="list secrets")
