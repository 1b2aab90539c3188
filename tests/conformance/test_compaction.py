"""Responses for resourceVersions that etcd has compacted; the test needs its own etcd."""

from __future__ import annotations

from contextlib import closing

import pytest
import urllib3

from control_plane import ControlPlane
from tests.conformance.idle_objects import create_objects, error_of, names_of, resource_version_of
from tests.support.kubernetes_client import Client, path_of

OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@pytest.fixture
def uncached_control_plane(target, tmp_path):
    """Start a control plane without a watch cache in its API server.

    The fixture is a client and the URL of etcd.
    """
    trainer = "{}.{}".format(*target.trainer)
    with (
        ControlPlane(tmp_path, trainer=trainer, apiserver_args=["--watch-cache=false"]) as cluster,
        closing(Client.from_kubeconfig(str(cluster.kubeconfig))) as client,
    ):
        yield client, cluster.info["etcd"]


def compact_etcd(etcd, revision):
    """Remove all revisions before this one from etcd."""
    order = {"revision": str(revision), "physical": True}
    assert urllib3.request("POST", f"{etcd}/v3/kv/compaction", json=order, timeout=60).status == 200


@pytest.mark.only("controlplane-2.3")
def test_compacted_versions(uncached_control_plane):
    """A watch, a list or a page token of a compacted resourceVersion gets 410 Expired."""
    client, etcd = uncached_control_plane
    path = path_of("Secret", "default")
    created = create_objects(client, "default", "Secret", "abcd")
    head = client.request("GET", path, limit=2).body["metadata"]
    client.delete("Secret", "default", "c")
    (last,) = create_objects(client, "default", "Secret", "e")
    compact_etcd(etcd, resource_version_of(last))

    (event,) = client.watch_events(path, resourceVersion=resource_version_of(created[0]))
    status = event["object"]
    assert (event["type"], status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"] == "The resourceVersion for the provided watch is too old."

    exact = {"resourceVersion": resource_version_of(created[0]), "resourceVersionMatch": "Exact"}
    response = client.request("GET", path, **exact)
    assert error_of(response) == (410, "Expired", "The resourceVersion for the provided list is too old.")

    response = client.request("GET", path, limit=2, **{"continue": head["continue"]})
    assert error_of(response) == (410, "Expired", OLD_TOKEN)
    rest = client.request("GET", path, limit=2, **{"continue": response.body["metadata"]["continue"]}).body
    assert names_of(rest["items"]) == ["d", "e"]
