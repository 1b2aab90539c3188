"""Deletion: preconditions, finalizers, grace periods, garbage collection, namespaces."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.integration.local.served_registry import (
    TRAINJOBS,
    ServedRegistry,
    owned_config_map,
    pod,
    serve_registry,
    trainjob,
)
from tests.support.polling import wait_until
from trainjob_local.apiserver import StatusError


@pytest.fixture
def served() -> Iterator[ServedRegistry]:
    with serve_registry() as opened:
        yield opened


@pytest.fixture
def core(served: ServedRegistry) -> client.CoreV1Api:
    return client.CoreV1Api(served.create_client())


def create_job(served: ServedRegistry, name: str = "a", **metadata: object) -> dict[str, dict[str, str]]:
    body = trainjob(name)
    body["metadata"] |= metadata
    return served.registry.create("trainjobs", body, "default")


def is_deleted(served: ServedRegistry, plural: str, name: str) -> bool:
    try:
        served.registry.get(plural, name, "default")
    except StatusError as error:
        return error.code == 404
    return False


def test_a_pod_on_a_node_is_removed_when_the_kubelet_deletes_it(served: ServedRegistry, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", pod("p"))
    served.registry.bind("p", "n", "default")
    assert core.delete_namespaced_pod("p", "default").metadata.deletion_grace_period_seconds == 30
    shorter = core.delete_namespaced_pod("p", "default", grace_period_seconds=5)
    assert shorter.metadata.deletion_grace_period_seconds == 5
    longer = core.delete_namespaced_pod("p", "default", grace_period_seconds=60)
    assert longer.metadata.deletion_grace_period_seconds == 5
    assert (
        core.delete_namespaced_pod("p", "default", grace_period_seconds=-1).metadata.deletion_grace_period_seconds == 1
    )
    assert core.read_namespaced_pod("p", "default").metadata.deletion_timestamp is not None
    core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
    assert is_deleted(served, "pods", "p")


def test_a_pod_that_never_ran_or_has_ended_is_removed_immediately(
    served: ServedRegistry, core: client.CoreV1Api
) -> None:
    core.create_namespaced_pod("default", pod("never"))
    assert core.delete_namespaced_pod("never", "default").metadata.name == "never"
    core.create_namespaced_pod("default", pod("ended"))
    served.registry.bind("ended", "n", "default")
    core.patch_namespaced_pod_status("ended", "default", {"status": {"phase": "Succeeded"}})
    core.delete_namespaced_pod("ended", "default")
    assert is_deleted(served, "pods", "never")
    assert is_deleted(served, "pods", "ended")


def test_foreground_does_not_wait_for_dependents_that_do_not_block(served: ServedRegistry) -> None:
    job = create_job(served)
    held = owned_config_map("held", job, block_owner_deletion=False)
    held["metadata"]["finalizers"] = ["x.io/held"]
    served.registry.create("configmaps", held, "default")
    served.request("DELETE", f"{TRAINJOBS}/a", {"propagationPolicy": "Foreground"})
    wait_until(lambda: is_deleted(served, "trainjobs", "a"))
    wait_until(lambda: "deletionTimestamp" in served.registry.get("configmaps", "held", "default")["metadata"])


def test_jobs_orphan_their_pods_by_default(served: ServedRegistry) -> None:
    spec = {"template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    job = served.registry.create("jobs", {"metadata": {"name": "j"}, "spec": spec}, "default")
    served.registry.create("configmaps", owned_config_map("child", job), "default")
    response = served.request("DELETE", f"{jobs}/j")
    assert "child pods are preserved by default when jobs are deleted" in response.headers["warning"]
    assert response.json["metadata"]["finalizers"] == ["orphan"]
    wait_until(lambda: is_deleted(served, "jobs", "j"))
    assert not is_deleted(served, "configmaps", "child")


def test_an_object_is_collected_when_all_its_owners_are_absent(served: ServedRegistry) -> None:
    first, second = create_job(served, "a"), create_job(served, "b")
    shared = owned_config_map("shared", first)
    (other,) = owned_config_map("", second)["metadata"]["ownerReferences"]
    shared["metadata"]["ownerReferences"].append({**other, "controller": False})
    served.registry.create("configmaps", shared, "default")
    served.registry.delete("trainjobs", "a", "default")
    wait_until(lambda: len(served.registry.get("configmaps", "shared", "default")["metadata"]["ownerReferences"]) == 1)

    stranger = owned_config_map("stranger", second)
    stranger["metadata"]["ownerReferences"][0] |= {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
    served.registry.create("configmaps", stranger, "default")
    ghost = owned_config_map("ghost", second)
    ghost["metadata"]["ownerReferences"][0]["uid"] = "another"
    served.registry.create("configmaps", ghost, "default")
    wait_until(lambda: is_deleted(served, "configmaps", "ghost"))
    assert not is_deleted(served, "configmaps", "stranger")  # the server does not know whether its owner exists


def test_a_namespace_is_removed_after_its_content(served: ServedRegistry, core: client.CoreV1Api) -> None:
    core.create_namespace({"metadata": {"name": "n"}})
    core.create_namespaced_config_map("n", {"metadata": {"name": "c"}})
    core.create_namespaced_pod("n", pod("p"))
    served.registry.bind("p", "node", "n")
    assert core.delete_namespace("n").status
    ending = core.read_namespace("n")
    assert ending.status.phase == "Terminating"
    with pytest.raises(ApiException) as raised:
        core.create_namespaced_config_map("n", {"metadata": {"name": "late"}})
    assert raised.value.status == 403
    assert "unable to create new content in namespace n because it is being terminated" in raised.value.body
    wait_until(lambda: not core.list_namespaced_config_map("n").items)
    assert core.read_namespace("n").metadata.name == "n"  # the pod is still there
    core.delete_namespaced_pod("p", "n", grace_period_seconds=0)
    wait_until(lambda: "n" not in [found.metadata.name for found in core.list_namespace().items])
    with pytest.raises(ApiException) as kept:
        core.delete_namespace("default")
    assert "this namespace may not be deleted" in kept.value.body


def test_subscribers_see_deletions_in_order(served: ServedRegistry) -> None:
    seen: queue.Queue[tuple[str, str]] = queue.Queue()
    served.registry.create("configmaps", {"metadata": {"name": "c"}}, "default")
    subscription = served.registry.subscribe(
        lambda change: seen.put((change.type, change.key[1])), resources=["configmaps"]
    )
    served.registry.patch("configmaps", "c", {"data": {"a": "b"}}, "default")
    served.registry.delete("configmaps", "c", "default")
    subscription.close()
    served.registry.create("configmaps", {"metadata": {"name": "d"}}, "default")
    assert [seen.get_nowait() for _ in range(3)] == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]
    assert seen.empty()
