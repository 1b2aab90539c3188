"""Tests of the usage in outcomes, with real pods on a laptop cluster."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timezone

import pytest

from tests.integration.lifecycle.test_life import make_run_key, shell
from tests.support.polling import wait_until
from trainjob.client import Cluster, Connection
from trainjob.inspection.cost import group_usages, parse_job_usages, read_job_usages
from trainjob.lifecycle import Limits, submit, wait, wait_async

GPU = "nvidia.com/gpu"


def list_pods(cluster, reference, phase=None):
    pods = cluster.list_pods(reference.name, reference.namespace)
    return [pod for pod in pods if phase in (None, pod["status"].get("phase"))]


def seconds_of(pod):
    """Return the seconds from the pod's binding to the end of its only container."""
    [bound] = [each["lastTransitionTime"] for each in pod["status"]["conditions"] if each["type"] == "PodScheduled"]
    [status] = pod["status"]["containerStatuses"]
    return (parse(status["state"]["terminated"]["finishedAt"]) - parse(bound)).total_seconds()


def parse(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.fixture
def other_cluster(laptop):
    """Yield another client, as in another process."""
    with closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))) as opened:
        yield opened


def test_the_outcome_has_the_seconds_of_all_pods(cluster, unique):
    step = shell("sleep 2", num_nodes=2, resources_per_node={"gpu": 2})
    reference = submit(cluster, step, make_run_key(unique))
    usage = wait(cluster, reference).usage
    expected = sum(map(seconds_of, list_pods(cluster, reference)))
    assert expected >= 4
    assert (usage.pod_seconds, usage.gpu_seconds, usage.complete) == (expected, 2 * expected, True)


def test_restarts_in_place_are_one_interval_of_the_pod(cluster, unique, tmp_path):
    script = f"sleep 1; test -e {tmp_path}/failed || {{ touch {tmp_path}/failed; exit 3; }}"
    reference = submit(cluster, shell(script), make_run_key(unique))
    outcome = wait(cluster, reference, limits=Limits(max_restarts=None))
    [pod] = list_pods(cluster, reference)
    [status] = pod["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    first_start = parse(status["lastState"]["terminated"]["startedAt"])
    end = parse(status["state"]["terminated"]["finishedAt"])
    assert outcome.pod_seconds == seconds_of(pod) >= (end - first_start).total_seconds() >= 2
    assert outcome.restarts == 1
    [bound] = [each["lastTransitionTime"] for each in pod["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert outcome.started == bound
    assert outcome.queued_seconds + outcome.run_seconds == outcome.seconds >= 2


def test_a_pod_that_was_replaced_counts_in_addition_to_its_replacement(cluster, unique, tmp_path):
    step = shell(f"until test -e {tmp_path}/go; do sleep 0.1; done; sleep 1", resources_per_node={"gpu": 1})
    reference = submit(cluster, step, make_run_key(unique))
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(wait, cluster, reference)
        [first] = wait_until(lambda: list_pods(cluster, reference, "Running"))
        bound = next(c["lastTransitionTime"] for c in first["status"]["conditions"] if c["type"] == "PodScheduled")
        now = datetime.now(timezone.utc)
        wait_until(lambda: (datetime.now(timezone.utc) - parse(bound)).total_seconds() >= 2)
        path = f"/api/v1/namespaces/{reference.namespace}/pods/{first['metadata']['name']}"
        cluster._http.request("DELETE", path, doing="delete a pod")
        uid = first["metadata"]["uid"]
        [second] = wait_until(
            lambda: [pod for pod in list_pods(cluster, reference, "Running") if pod["metadata"]["uid"] != uid]
        )
        (tmp_path / "go").touch()
        outcome = waiting.result(60)
    assert outcome.succeeded
    [last] = list_pods(cluster, reference)
    assert last["metadata"]["uid"] == second["metadata"]["uid"]
    assert outcome.usage.complete
    assert outcome.pod_seconds >= seconds_of(last) + 2
    assert outcome.gpu_seconds == outcome.pod_seconds <= 2 * ((parse_end(last) - now).total_seconds() + 3)


def parse_end(pod):
    [status] = pod["status"]["containerStatuses"]
    return parse(status["state"]["terminated"]["finishedAt"])


def test_two_waiters_have_the_same_usage_and_it_counts_once(cluster, other_cluster, unique):
    reference = submit(cluster, shell("sleep 2", resources_per_node={"gpu": 1}), make_run_key(unique))
    with ThreadPoolExecutor() as threads:
        one, other = threads.map(lambda client: wait(client, reference), (cluster, other_cluster))
    assert one.usage == other.usage
    jobs = [cluster.get_trainjob(reference.name, reference.namespace)]
    existing = read_job_usages(jobs, list_pods(cluster, reference), datetime.now(timezone.utc))
    exported = parse_job_usages([json.dumps(each.to_dict()) for each in (one, other)], "export")
    [group] = group_usages([*existing, *exported])
    assert (group.trainjobs, group.usage) == (1, one.usage)


def test_a_waiter_that_continues_after_a_killed_one_has_the_whole_usage(cluster, other_cluster, unique, tmp_path):
    script = f"until test -e {tmp_path}/go; do sleep 0.1; done"
    reference = submit(cluster, shell(script), make_run_key(unique))

    async def stop_waiting():
        waiting = asyncio.create_task(wait_async(cluster, reference))
        await asyncio.to_thread(wait_until, lambda: list_pods(cluster, reference, "Running"))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return waiting.cancelled()

    assert asyncio.run(stop_waiting())
    (tmp_path / "go").touch()
    usage = wait(other_cluster, reference).usage
    [pod] = list_pods(cluster, reference)
    assert (usage.pod_seconds, usage.complete) == (seconds_of(pod), True)


def test_a_failed_trainjob_counts_the_pods_that_were_deleted_with_it(cluster, unique):
    step = shell("sleep 1; exit 3", resources_per_node={"gpu": 1})
    reference = submit(cluster, step, make_run_key(unique))
    outcome = wait(cluster, reference)
    assert not outcome.succeeded
    assert outcome.gpu_seconds >= 1
