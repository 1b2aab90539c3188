"""Cancelling through the engine: the training ends for good, and the same step can be asked for again at once."""

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
from trainjob.client import Cluster, Connection
from trainjob.errors import WaitTimeout
from trainjob.lifecycle import KillAction, Limits, Listener, apply_kill_action, cancel, set_suspended, submit, wait
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


def test_a_cancelled_training_does_not_start_again(client, namespace, cluster):
    """Cancelled by the engine, a running job is gone at once; its JobSet and pods follow, and what is made anew."""
    job = submit_script(cluster, namespace, "sleep 600")
    pod = wait_for_running_pod(client, namespace, job.name)
    jobsets = client.request("GET", path_of("JobSet", namespace)).body
    assert cancel(cluster, job)
    assert client.find("TrainJob", namespace, job.name) is None
    client.wait_until_deleted("Pod", namespace, pod["metadata"]["name"])
    client.wait_until_deleted("JobSet", namespace, job.name)
    client.create(shell("true", name="marker", suspend=True), namespace)  # its JobSet ends what the watch has to tell
    # A Trainer that reads of the JobSet's end before the job's makes it anew, for a moment: 2 of 240 here, under load.
    there = {jobset["metadata"]["uid"]: jobset["metadata"]["name"] for jobset in jobsets["items"]}
    for event in client.watch_events(path_of("JobSet", namespace), resourceVersion=jobsets["metadata"]["resourceVersion"]):
        meta = event["object"]["metadata"]
        there[meta["uid"]] = meta["name"]
        if event["type"] == "DELETED":
            del there[meta["uid"]]
        if [*there.values()] == ["marker"]:
            break
    assert [*there.values()] == ["marker"]
    assert wait_until(lambda: not list_pods(client, namespace, job.name))


def test_the_same_step_can_be_asked_for_again_at_once(client, namespace, cluster):
    """A step that is cancelled and asked for again at once runs anew, with its old name, and takes over no old end."""
    first = submit_script(cluster, namespace, "echo ran")
    assert wait(cluster, first).succeeded
    assert cancel(cluster, first)
    lines = []
    second = submit_script(cluster, namespace, "echo ran")
    assert second.name == first.name
    assert second.uid != first.uid
    assert wait(cluster, second, listener=Listener(on_log=lines.append)).succeeded
    assert [line.text for line in lines] == ["ran"]


@pytest.mark.since("2.1")
def test_a_job_without_its_runtime_can_be_cancelled(client, namespace, cluster):
    """A job whose runtime somebody deleted can be cancelled all the same."""
    spec = client.get("ClusterTrainingRuntime", None, "torch-distributed")
    create_runtime(client, namespace, spec["spec"])
    request = TrainJob(
        trainer=CustomTrainerContainer(image=IMAGE, command=("sleep", "600")),
        runtime={"name": OWN_RUNTIME["runtime"], "kind": OWN_RUNTIME["kind"]},
    )
    job = submit(cluster, request, RunKey("test", "cancel", "orphan", namespace), namespace=namespace)
    pod = wait_for_running_pod(client, namespace, job.name)
    client.delete("TrainingRuntime", namespace, OWN_RUNTIME["runtime"])
    assert cancel(cluster, job)
    client.wait_until_deleted("TrainJob", namespace, job.name)
    client.wait_until_deleted("Pod", namespace, pod["metadata"]["name"])


@pytest.mark.parametrize("kind", ["Pod", "JobSet"])
def test_the_next_attempt_waits_for_what_is_left_of_the_old_one(client, namespace, cluster, kind, evidence):
    """While a pod or the JobSet of a cancelled job still terminates, the step asked for again waits, then runs anew."""
    first = submit_script(cluster, namespace, "sleep 600")
    pod = wait_for_running_pod(client, namespace, first.name)["metadata"]["name"]
    name = pod if kind == "Pod" else first.name
    client.add_finalizer(kind, namespace, name)
    assert cancel(cluster, first)
    client.wait_for(kind, namespace, name, lambda found: "deletionTimestamp" in found["metadata"])
    there_at_creation = []

    def before_create(*_):
        there_at_creation.append(client.find(kind, namespace, name))

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(submit_script, cluster, namespace, "sleep 600", before_create=before_create)
        with pytest.raises(WaitTimeout, match="still being deleted"):
            submit_script(cluster, namespace, "sleep 600", patience=0.5)
        assert client.find("TrainJob", namespace, first.name) is None
        client.remove_finalizers(kind, namespace, name)
        second = asked.result(300)
    assert (second.name, second.uid == first.uid, there_at_creation) == (first.name, False, [None])
    assert wait_for_running_pod(client, namespace, second.name)
    at_creation = "gone" if there_at_creation == [None] else "still there"
    result = f"{at_creation} when the next attempt was created"
    evidence("faults", fault=f"a {kind} that still terminates when the next attempt starts", runs=1, result=result)


def test_a_job_that_somebody_else_is_deleting(client, namespace, cluster):
    """One that is on its way is no job to adopt, cancelling it again is no error, and the next attempt has its own."""
    first = submit_script(cluster, namespace, "sleep 600")
    client.add_finalizer("TrainJob", namespace, first.name)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(wait, cluster, first)
        client.delete("TrainJob", namespace, first.name, propagationPolicy="Background")
        assert waiting.result(300).phase is Phase.DELETED
        assert cancel(cluster, first)  # it is there, and still goes
        assert apply_kill_action(cluster, first, "suspend").startswith("it was left as it is")
        asked = pool.submit(submit_script, cluster, namespace, "sleep 600")
        with pytest.raises(WaitTimeout, match="still being deleted"):
            submit_script(cluster, namespace, "sleep 600", patience=0.5)
        client.remove_finalizers("TrainJob", namespace, first.name)
        second = asked.result(300)
    assert second.uid != first.uid
    assert cancel(cluster, first) is False
    assert client.find("TrainJob", namespace, second.name)


@pytest.mark.parametrize("action", KillAction)
def test_one_that_is_gone_is_no_error_and_its_names_next_owner_is_left_alone(client, namespace, cluster, action):
    """Whatever is to be done with a job that is gone is done to nobody: not to another job that has its name by now."""
    first = submit_script(cluster, namespace, "sleep 600")
    assert cancel(cluster, first)
    client.wait_until_deleted("JobSet", namespace, first.name)
    told = "it goes on" if action is KillAction.KEEP else "it was gone already"
    assert apply_kill_action(cluster, first, action) == told
    client.create(shell("sleep 600", name=first.name), namespace)
    other = client.get("TrainJob", namespace, first.name)["metadata"]["uid"]
    assert apply_kill_action(cluster, first, action) == told
    with contextlib.suppress(WaitTimeout):  # whichever it notices first
        limits = Limits(total=timedelta(0), on_timeout=action)
        assert wait(cluster, first, limits=limits).phase is Phase.DELETED
    left = client.get("TrainJob", namespace, first.name)
    assert (left["metadata"]["uid"], left["spec"].get("suspend", False)) == (other, False)


def test_one_that_is_suspended_when_it_is_given_up_goes_on_with_the_next_try(client, namespace, cluster, tmp_path):
    """Suspended instead of deleted, a job loses its pods and stays; asked for again, it goes on when they are over."""
    end = tmp_path / "end"
    script = f"trap 'while [ ! -e {end} ]; do sleep 0.1; done; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    first = submit_script(cluster, namespace, script)
    pod = wait_for_running_pod(client, namespace, first.name)["metadata"]
    assert next(client.follow_log(namespace, pod["name"])) == "up\n"
    assert apply_kill_action(cluster, first, "suspend") == "it was suspended"
    assert apply_kill_action(cluster, first, "suspend").startswith("it was left as it is")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(submit_script, cluster, namespace, script)
        with pytest.raises(WaitTimeout, match="still being deleted"):
            submit_script(cluster, namespace, script, patience=0.5)
        assert cluster.get_trainjob(first.name, namespace)["spec"]["suspend"] is True
        end.touch()
        second = asked.result(300)
    assert (second.uid, second.adopted) == (first.uid, True)
    assert wait_for_running_pod(client, namespace, first.name)["metadata"]["uid"] != pod["uid"]
    # The kill of the first try is late: the job is the second one's by now.
    assert apply_kill_action(cluster, first, "suspend").startswith("it was left as it is")
    assert not client.get("TrainJob", namespace, first.name)["spec"].get("suspend")
    assert apply_kill_action(cluster, second, "suspend") == "it was suspended"


def test_what_a_person_has_suspended_stays_suspended(client, namespace, cluster):
    """A job that a person has suspended is taken over by a retry as it is: only that person lets it go on."""
    first = submit_script(cluster, namespace, "sleep 600")
    assert set_suspended(cluster, first.name, namespace, suspended=True)
    assert submit_script(cluster, namespace, "sleep 600").uid == first.uid
    assert client.get("TrainJob", namespace, first.name)["spec"]["suspend"] is True


def test_a_queue_decides_when_its_job_runs(client, namespace, cluster):
    """A job in a Kueue queue is not suspended when it is given up: the queue would undo that; it goes on."""
    first = submit_script(cluster, namespace, "sleep 600")
    client.patch("TrainJob", namespace, first.name, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpu"}}})
    assert "goes on: TrainJob" in apply_kill_action(cluster, first, "suspend")
    with pytest.raises(WaitTimeout, match=r"could not be suspended and goes on.*queue gpu"):
        wait(cluster, first, limits=Limits(total=timedelta(0), on_timeout=KillAction.SUSPEND))
    assert not client.get("TrainJob", namespace, first.name)["spec"].get("suspend")


def test_one_that_has_ended_is_not_suspended(client, namespace, cluster):
    """A job that ended before it was given up stays as it ended."""
    first = submit_script(cluster, namespace, "true")
    assert wait(cluster, first).succeeded
    assert apply_kill_action(cluster, first, "suspend").startswith("it was left as it is")
    assert not client.get("TrainJob", namespace, first.name)["spec"].get("suspend")
    assert apply_kill_action(cluster, replace(first, uid="other"), "delete") == "it was gone already"
    assert wait_until(lambda: client.find("TrainJob", namespace, first.name))


@pytest.mark.parametrize("action", KillAction)
def test_a_failing_one_is_kept_for_a_look_and_the_next_try_has_its_own(client, namespace, cluster, action):
    """One that failed in place stays when that is wished, marked as failed; a retry starts anew, and two never work."""
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
    there = {job["metadata"]["uid"] for job in cluster.list_trainjobs(namespace)}
    assert there == ({second.uid} if action is KillAction.KEEP else {first.uid, second.uid})
    swept = sweep(cluster, namespace=namespace, finished_for=timedelta(0))
    assert [one.reference.uid for one in swept] == ([first.uid] if action is KillAction.SUSPEND else [])
