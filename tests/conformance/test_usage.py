"""Times in pods and TrainJobs from which `trainjob cost` computes what a TrainJob has used."""

from __future__ import annotations

from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import counters, is_finished, list_pods, shell


def scheduled_at(pod):
    """Return the time of the pod's condition PodScheduled; empty without it."""
    conditions = pod["status"].get("conditions", [])
    return next(
        (c["lastTransitionTime"] for c in conditions if (c["type"], c["status"]) == ("PodScheduled", "True")), ""
    )


def is_running(job):
    return counters(job).get("node", {}).get("ready") == 1


def test_times_of_a_pod(client, namespace):
    """The condition PodScheduled keeps the time of the binding. It is not later than the first start of a container."""
    client.create(shell("sleep 1"), namespace)
    job = client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    [status] = pod["status"]["containerStatuses"]
    ended = status["state"]["terminated"]
    created = [item["metadata"]["creationTimestamp"] for item in (job, pod)]
    times = [*created, scheduled_at(pod), ended["startedAt"], ended["finishedAt"]]
    assert times == sorted(times)
    assert ended["startedAt"] < ended["finishedAt"]


def test_last_state_of_a_deleted_pod(client, namespace):
    """The DELETED event of a pod has the time of its binding, and a deletionTimestamp or the end of its containers."""
    client.create(shell("sleep 600"), namespace)
    client.wait_for("TrainJob", namespace, "job", is_running)
    (pod,) = list_pods(client, namespace)
    since = {"resourceVersion": pod["metadata"]["resourceVersion"]}
    client.patch("TrainJob", namespace, "job", {"spec": {"suspend": True}})
    events = client.watch_events(path_of("Pod", namespace), **since)
    last = next(event["object"] for event in events if event["type"] == "DELETED")
    assert scheduled_at(last) == scheduled_at(pod) != ""
    [status] = last["status"]["containerStatuses"]
    assert last["metadata"].get("deletionTimestamp") or "terminated" in status["state"]


def test_generation_counts_suspensions(client, namespace):
    """A TrainJob that was created suspended has generation 2 after it was resumed, and 4 after another suspension."""
    client.create(shell("sleep 600", suspend=True), namespace)
    generations = []
    for suspend in (False, True, False):
        patched = client.patch("TrainJob", namespace, "job", {"spec": {"suspend": suspend}})
        generations.append(patched["metadata"]["generation"])
    assert generations == [2, 3, 4]
