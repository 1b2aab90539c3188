"""Deletion: preconditions, finalizers, grace periods, garbage collection, namespaces."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest
from apiserver_door import TRAINJOBS, Door, owned, pod, serving, trainjob
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from trainjob_local.apiserver import Refusal
from waiting_for import until


@pytest.fixture
def door() -> Iterator[Door]:
    with serving() as opened:
        yield opened


@pytest.fixture
def core(door: Door) -> client.CoreV1Api:
    return client.CoreV1Api(door.client())


def make_job(door: Door, name: str = "a", **metadata: object) -> dict[str, dict[str, str]]:
    body = trainjob(name)
    body["metadata"] |= metadata
    return door.registry.create("trainjobs", body, "default")


def gone(door: Door, plural: str, name: str) -> bool:
    try:
        door.registry.get(plural, name, "default")
    except Refusal as refusal:
        return refusal.code == 404
    return False


def test_a_pod_on_a_node_goes_when_the_kubelet_says_so(door: Door, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", pod("p"))
    door.registry.bind("p", "n", "default")
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
    assert gone(door, "pods", "p")


def test_a_pod_that_never_ran_or_has_ended_goes_at_once(door: Door, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", pod("never"))
    assert core.delete_namespaced_pod("never", "default").metadata.name == "never"
    core.create_namespaced_pod("default", pod("ended"))
    door.registry.bind("ended", "n", "default")
    core.patch_namespaced_pod_status("ended", "default", {"status": {"phase": "Succeeded"}})
    core.delete_namespaced_pod("ended", "default")
    assert gone(door, "pods", "never")
    assert gone(door, "pods", "ended")


def test_foreground_does_not_wait_for_dependents_that_do_not_block(door: Door) -> None:
    job = make_job(door)
    held = owned("held", job, blocks=False)
    held["metadata"]["finalizers"] = ["x.io/held"]
    door.registry.create("configmaps", held, "default")
    door.ask("DELETE", f"{TRAINJOBS}/a", {"propagationPolicy": "Foreground"})
    until(lambda: gone(door, "trainjobs", "a"))
    until(lambda: "deletionTimestamp" in door.registry.get("configmaps", "held", "default")["metadata"])


def test_jobs_orphan_their_pods_unless_told_otherwise(door: Door) -> None:
    spec = {"template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    job = door.registry.create("jobs", {"metadata": {"name": "j"}, "spec": spec}, "default")
    door.registry.create("configmaps", owned("child", job), "default")
    answer = door.ask("DELETE", f"{jobs}/j")
    assert "child pods are preserved by default when jobs are deleted" in answer.headers["warning"]
    assert answer.json["metadata"]["finalizers"] == ["orphan"]
    until(lambda: gone(door, "jobs", "j"))
    assert not gone(door, "configmaps", "child")


def test_two_owners_and_owners_that_never_were(door: Door) -> None:
    first, second = make_job(door, "a"), make_job(door, "b")
    shared = owned("shared", first)
    (other,) = owned("", second)["metadata"]["ownerReferences"]
    shared["metadata"]["ownerReferences"].append({**other, "controller": False})
    door.registry.create("configmaps", shared, "default")
    door.registry.delete("trainjobs", "a", "default")
    until(lambda: len(door.registry.get("configmaps", "shared", "default")["metadata"]["ownerReferences"]) == 1)

    stranger = owned("stranger", second)
    stranger["metadata"]["ownerReferences"][0] |= {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
    door.registry.create("configmaps", stranger, "default")
    ghost = owned("ghost", second)
    ghost["metadata"]["ownerReferences"][0]["uid"] = "another"
    door.registry.create("configmaps", ghost, "default")
    until(lambda: gone(door, "configmaps", "ghost"))
    assert not gone(door, "configmaps", "stranger")  # we can't know whether its owner is there


def test_a_namespace_takes_its_content_along(door: Door, core: client.CoreV1Api) -> None:
    core.create_namespace({"metadata": {"name": "n"}})
    core.create_namespaced_config_map("n", {"metadata": {"name": "c"}})
    core.create_namespaced_pod("n", pod("p"))
    door.registry.bind("p", "node", "n")
    assert core.delete_namespace("n").status
    ending = core.read_namespace("n")
    assert ending.status.phase == "Terminating"
    with pytest.raises(ApiException) as raised:
        core.create_namespaced_config_map("n", {"metadata": {"name": "late"}})
    assert raised.value.status == 403
    assert "unable to create new content in namespace n because it is being terminated" in raised.value.body
    until(lambda: not core.list_namespaced_config_map("n").items)
    assert core.read_namespace("n").metadata.name == "n"  # the pod is still there
    core.delete_namespaced_pod("p", "n", grace_period_seconds=0)
    until(lambda: "n" not in [found.metadata.name for found in core.list_namespace().items])
    with pytest.raises(ApiException) as kept:
        core.delete_namespace("default")
    assert "this namespace may not be deleted" in kept.value.body


def test_subscribers_see_deletions_in_order(door: Door) -> None:
    seen: queue.Queue[tuple[str, str]] = queue.Queue()
    door.registry.create("configmaps", {"metadata": {"name": "c"}}, "default")
    subscription = door.registry.subscribe(
        lambda change: seen.put((change.type, change.key[1])), resources=["configmaps"]
    )
    door.registry.patch("configmaps", "c", {"data": {"a": "b"}}, "default")
    door.registry.delete("configmaps", "c", "default")
    subscription.close()
    door.registry.create("configmaps", {"metadata": {"name": "d"}}, "default")
    assert [seen.get_nowait() for _ in range(3)] == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]
    assert seen.empty()
