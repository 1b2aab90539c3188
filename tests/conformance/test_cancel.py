"""Cancellation by the project's engine: the training ends, and the same step can be submitted again at once."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.conformance.runtimes import OWN_RUNTIME, create_runtime
from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, list_pods, shell
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection, LogNotice
from trainjob.errors import WaitTimeout
from trainjob.lifecycle import KillAction, Limits, Listener, cancel, set_suspended, submit, wait
from trainjob.retention import sweep
from trainjob.status import Phase, derive_verdict

pytestmark = pytest.mark.since("2.0")


@pytest.fixture
def cluster(target):
    with contextlib.closing(Cluster(Connection(kubeconfig=target.kubeconfig))) as cluster:
        yield cluster


def submit_script(cluster, namespace, script, **more):
    request = TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=("sh", "-c", script)))
    return submit(cluster, request, RunKey("test", "cancel", "step", namespace), namespace=namespace, **more)


def wait_for_running_pod(client, namespace, name):
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    return client.wait_for(
        "Pod", namespace, "", lambda pod: pod["status"].get("phase") == "Running", labelSelector=selector
    )


def test_a_cancelled_job_does_not_start_again(client, namespace, cluster):
    """A running job that is cancelled is deleted at once. Its JobSet, its pods and a recreated JobSet follow."""
    job = submit_script(cluster, namespace, "sleep 600")
    pod = wait_for_running_pod(client, namespace, job.name)
    jobsets = client.request("GET", path_of("JobSet", namespace)).body
    assert not cancel(cluster, job).had_finished
    assert client.find("TrainJob", namespace, job.name) is None
    client.wait_until_deleted("Pod", namespace, pod["metadata"]["name"])
    client.wait_until_deleted("JobSet", namespace, job.name)
    client.create(shell("true", name="marker", suspend=True), namespace)  # the watch below ends with its JobSet
    # A Trainer that processes the JobSet's deletion before the job's creates the JobSet again, for a moment. That was
    # seen in 2 of 240 runs under load.
    existing = {jobset["metadata"]["uid"]: jobset["metadata"]["name"] for jobset in jobsets["items"]}
    version = jobsets["metadata"]["resourceVersion"]
    for event in client.watch_events(path_of("JobSet", namespace), resourceVersion=version):
        meta = event["object"]["metadata"]
        existing[meta["uid"]] = meta["name"]
        if event["type"] == "DELETED":
            del existing[meta["uid"]]
        if [*existing.values()] == ["marker"]:
            break
    assert [*existing.values()] == ["marker"]
    assert wait_until(lambda: not list_pods(client, namespace, job.name))


def test_a_deleted_step_can_be_submitted_again_at_once(client, namespace, cluster):
    """A step submitted again right after its deletion gets a new TrainJob with the same name."""
    first = submit_script(cluster, namespace, "echo ran")
    assert wait(cluster, first).succeeded
    assert cluster.delete_trainjob(first.name, namespace, first.uid)
    lines = []
    second = submit_script(cluster, namespace, "echo ran")
    assert second.name == first.name
    assert second.uid != first.uid
    assert wait(cluster, second, listener=Listener(on_log=lines.append)).succeeded
    assert [line.text for line in lines if not isinstance(line, LogNotice)] == ["ran"]


@pytest.mark.since("2.1")
def test_a_job_without_its_runtime_can_be_cancelled(client, namespace, cluster):
    """A job whose runtime was deleted can be cancelled."""
    spec = client.get("ClusterTrainingRuntime", None, "torch-distributed")
    create_runtime(client, namespace, spec["spec"])
    request = TrainJob(
        trainer=CustomTrainerContainer(image=IMAGE, command=("sleep", "600")),
        runtime={"name": OWN_RUNTIME["runtime"], "kind": OWN_RUNTIME["kind"]},
    )
    job = submit(cluster, request, RunKey("test", "cancel", "orphan", namespace), namespace=namespace)
    pod = wait_for_running_pod(client, namespace, job.name)
    client.delete("TrainingRuntime", namespace, OWN_RUNTIME["runtime"])
    assert not cancel(cluster, job).had_finished
    client.wait_until_deleted("TrainJob", namespace, job.name)
    client.wait_until_deleted("Pod", namespace, pod["metadata"]["name"])


@pytest.mark.parametrize("kind", ["Pod", "JobSet"])
def test_the_next_attempt_waits_for_terminating_objects(client, namespace, cluster, kind, evidence):
    """While a pod or the JobSet of a cancelled job terminates, a new submission waits, and then creates a new job."""
    first = submit_script(cluster, namespace, "sleep 600")
    pod = wait_for_running_pod(client, namespace, first.name)["metadata"]["name"]
    name = pod if kind == "Pod" else first.name
    client.add_finalizer(kind, namespace, name)
    assert not cancel(cluster, first).had_finished
    client.wait_for(kind, namespace, name, lambda found: "deletionTimestamp" in found["metadata"])
    seen_at_creation = []

    def before_create(*_):
        seen_at_creation.append(client.find(kind, namespace, name))

    with ThreadPoolExecutor(1) as pool:
        submission = pool.submit(submit_script, cluster, namespace, "sleep 600", before_create=before_create)
        with pytest.raises(WaitTimeout, match="still being deleted"):
            submit_script(cluster, namespace, "sleep 600", timeout=0.5)
        assert client.find("TrainJob", namespace, first.name) is None
        client.remove_finalizers(kind, namespace, name)
        second = submission.result(300)
    assert (second.name, second.uid == first.uid, seen_at_creation) == (first.name, False, [None])
    assert wait_for_running_pod(client, namespace, second.name)
    at_creation = "gone" if seen_at_creation == [None] else "still there"
    result = f"{at_creation} when the next attempt was created"
    evidence("faults", fault=f"a {kind} that still terminates when the next attempt starts", runs=1, result=result)


def test_a_terminating_job_is_not_adopted(client, namespace, cluster):
    """A terminating job is not adopted, and cancelling it again is not an error. The next attempt is a new job."""
    first = submit_script(cluster, namespace, "sleep 600")
    client.add_finalizer("TrainJob", namespace, first.name)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(wait, cluster, first)
        client.delete("TrainJob", namespace, first.name, propagationPolicy="Background")
        assert waiting.result(300).phase is Phase.DELETED
        for action in KillAction:  # it exists and still terminates
            assert cancel(cluster, first, action).text == "it was being deleted"
        submission = pool.submit(submit_script, cluster, namespace, "sleep 600")
        with pytest.raises(WaitTimeout, match="still being deleted"):
            submit_script(cluster, namespace, "sleep 600", timeout=0.5)
        client.remove_finalizers("TrainJob", namespace, first.name)
        second = submission.result(300)
    assert second.uid != first.uid
    assert cancel(cluster, first).had_finished
    assert client.find("TrainJob", namespace, second.name)


@pytest.mark.parametrize("action", KillAction)
def test_actions_on_a_deleted_job_do_not_affect_a_namesake(client, namespace, cluster, action):
    """An action on a deleted job changes nothing, even if another job has the same name by now."""
    first = submit_script(cluster, namespace, "sleep 600")
    assert not cancel(cluster, first).had_finished
    client.wait_until_deleted("JobSet", namespace, first.name)
    expected = "it did not exist any more"
    assert cancel(cluster, first, action).text == expected
    client.create(shell("sleep 600", name=first.name), namespace)
    other = client.get("TrainJob", namespace, first.name)["metadata"]["uid"]
    assert cancel(cluster, first, action).text == expected
    limits = Limits(total=timedelta(0), on_timeout=action)
    assert wait(cluster, first, limits=limits).phase is Phase.DELETED
    left = client.get("TrainJob", namespace, first.name)
    assert (left["metadata"]["uid"], left["spec"].get("suspend", False)) == (other, False)


def test_a_job_suspended_by_its_kill_action_resumes_with_the_next_try(client, namespace, cluster, tmp_path):
    """A job suspended by its kill action keeps its TrainJob. A new submission resumes it when its pods are gone."""
    end = tmp_path / "end"
    script = f"trap 'while [ ! -e {end} ]; do sleep 0.1; done; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    first = submit_script(cluster, namespace, script)
    pod = wait_for_running_pod(client, namespace, first.name)["metadata"]
    assert next(client.follow_log(namespace, pod["name"])) == "up\n"
    assert cancel(cluster, first, "suspend").text == "it was suspended"
    assert cancel(cluster, first, "suspend").text.startswith("it was not changed")
    with ThreadPoolExecutor(1) as pool:
        submission = pool.submit(submit_script, cluster, namespace, script)
        with pytest.raises(WaitTimeout, match="still being deleted"):
            submit_script(cluster, namespace, script, timeout=0.5)
        assert cluster.get_trainjob(first.name, namespace)["spec"]["suspend"] is True
        end.touch()
        second = submission.result(300)
    assert (second.uid, second.adopted) == (first.uid, True)
    assert wait_for_running_pod(client, namespace, first.name)["metadata"]["uid"] != pod["uid"]
    # This kill action of the first try comes late: the second try has adopted the job.
    assert cancel(cluster, first, "suspend").text.startswith("it was not changed")
    assert not client.get("TrainJob", namespace, first.name)["spec"].get("suspend")
    assert cancel(cluster, second, "suspend").text == "it was suspended"


def test_a_job_suspended_by_a_user_stays_suspended(client, namespace, cluster):
    """A job that a user suspended is adopted by a retry and stays suspended until the user resumes it."""
    first = submit_script(cluster, namespace, "sleep 600")
    assert set_suspended(cluster, first.name, namespace, suspended=True)
    assert submit_script(cluster, namespace, "sleep 600").uid == first.uid
    assert client.get("TrainJob", namespace, first.name)["spec"]["suspend"] is True


def test_a_queued_job_is_not_suspended(client, namespace, cluster):
    """A job in a Kueue queue keeps running when its kill action is `suspend`, because Kueue would resume it."""
    first = submit_script(cluster, namespace, "sleep 600")
    client.patch("TrainJob", namespace, first.name, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpu"}}})
    assert "continues to run: TrainJob" in cancel(cluster, first, "suspend").text
    with pytest.raises(WaitTimeout, match=r"could not be suspended and continues to run.*queue gpu"):
        wait(cluster, first, limits=Limits(total=timedelta(0), on_timeout=KillAction.SUSPEND))
    assert not client.get("TrainJob", namespace, first.name)["spec"].get("suspend")


def test_a_finished_job_is_not_changed(client, namespace, cluster):
    """A finished job is not changed by a kill action."""
    first = submit_script(cluster, namespace, "true")
    assert wait(cluster, first).succeeded
    for action in KillAction:
        assert cancel(cluster, first, action).text == "it is Complete and was retained"
    assert not client.get("TrainJob", namespace, first.name)["spec"].get("suspend")
    assert cancel(cluster, replace(first, uid="other"), "delete").text == "it did not exist any more"
    assert wait_until(lambda: client.find("TrainJob", namespace, first.name))


@pytest.mark.parametrize("action", KillAction)
def test_a_failed_job_can_be_retained_and_the_next_try_creates_another(client, namespace, cluster, action):
    """With `on_failure` keep or suspend, a failed job is retained and marked as failed. A retry creates another job."""
    first = submit_script(cluster, namespace, "exit 3")
    limits = Limits(on_failure=action)
    outcome = wait(cluster, first, limits=limits)
    assert (outcome.phase, outcome.exit_code) == (Phase.FAILED, 3)
    left = cluster.get_trainjob(first.name, namespace)
    if action is KillAction.DELETE:
        assert left is None
        return
    assert derive_verdict(left).phase is Phase.FAILED
    assert derive_verdict(left).reason == "RestartLimitExceeded"
    assert left["spec"].get("suspend", False) == (action is KillAction.SUSPEND)
    assert wait(cluster, first, limits=limits).phase is Phase.FAILED
    if action is KillAction.SUSPEND:
        wait_until(lambda: not list_pods(client, namespace, first.name))
    second = submit_script(cluster, namespace, "exit 3")
    assert (second.uid == first.uid, second.adopted) == (False, False)
    remaining = {job["metadata"]["uid"] for job in cluster.list_trainjobs(namespace)}
    assert remaining == ({second.uid} if action is KillAction.KEEP else {first.uid, second.uid})
    swept = sweep(cluster, namespace=namespace, finished_for=timedelta(0))
    assert [one.reference.uid for one in swept] == ([first.uid] if action is KillAction.SUSPEND else [])
