"""Deletion of TrainJobs and of the objects that they own."""

from __future__ import annotations

import pytest

from tests.conformance.histories import watch_states
from tests.conformance.runtimes import create_own_runtime, never_restarted_job, replicated_job
from tests.support.kubernetes_client import FINALIZER, path_of
from tests.support.trainjobs import conditions, counters, has_condition, is_finished, list_pods, shell, train_job

JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
RUN_UNTIL_SIGTERM = "trap 'echo terminated; exit 0' TERM; echo up; while :; do sleep 0.1; done"


def ready_pods(job):
    return counters(job).get("node", {}).get("ready")


def request_deletion(client, namespace, name="job", **options):
    return client.request("DELETE", path_of("TrainJob", namespace, name), options)


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_owned_objects_are_deleted(client, namespace, target, policy):
    """JobSet, Jobs, pods, Service, claim and runtime snapshot are deleted with the job, for every policy."""
    node, jobset = replicated_job("node", "sleep 60"), {}
    if target.trainer >= (2, 2):
        size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        jobset["volumeClaimPolicies"] = [{"templates": [{"metadata": {"name": "data"}, "spec": size}]}]
        container = node["template"]["spec"]["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    created = client.create(train_job(**create_own_runtime(client, namespace, node, **jobset)), namespace)
    client.wait_for("TrainJob", namespace, "job", ready_pods)
    (pod,) = list_pods(client, namespace)
    owned = [("JobSet", "job"), ("Job", "job-node-0"), ("Service", "job"), ("Pod", pod["metadata"]["name"])]
    owned += [("PersistentVolumeClaim", "data-job")] if target.trainer >= (2, 2) else []
    owned += [("ConfigMap", "job-runtime-snapshot")] if target.trainer >= (2, 3) else []
    assert [client.get(kind, namespace, name)["metadata"]["name"] for kind, name in owned]
    response = request_deletion(client, namespace, propagationPolicy=policy)
    assert response.code == 200
    if policy == "Background":
        assert response.body["kind"] == "Status"
        assert response.body["details"]["uid"] == created["metadata"]["uid"]
        assert client.find("TrainJob", namespace, "job") is None
    else:
        assert response.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    for kind, name in [("TrainJob", "job"), *owned]:
        client.wait_until_deleted(kind, namespace, name)


def test_pods_get_sigterm(client, namespace):
    """Pods get SIGTERM when their job is deleted, and a followed log has their last lines."""
    client.create(shell(RUN_UNTIL_SIGTERM), namespace)
    client.wait_for("TrainJob", namespace, "job", ready_pods)
    (pod,) = list_pods(client, namespace)
    lines = client.follow_log(namespace, pod["metadata"]["name"])
    assert next(lines) == "up\n"
    assert request_deletion(client, namespace, propagationPolicy="Background").code == 200
    assert "terminated\n" in list(lines)  # besides what the shell prints about its sleep


def test_the_name_is_in_use_until_everything_is_deleted(client, namespace):
    """With a foreground deletion, the name is in use until the JobSet is deleted: creating it again gets 409."""
    client.create(shell("true"), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    client.add_finalizer("JobSet", namespace, "job")
    assert request_deletion(client, namespace, propagationPolicy="Foreground").code == 200
    client.wait_for("JobSet", namespace, "job", lambda jobset: "deletionTimestamp" in jobset["metadata"])
    again = client.request("POST", path_of("TrainJob", namespace), shell("true"))
    assert (again.code, again.reason) == (409, "AlreadyExists")
    assert again.message == 'object is being deleted: trainjobs.trainer.kubeflow.org "job" already exists'
    client.remove_finalizers("JobSet", namespace, "job")
    client.wait_until_deleted("TrainJob", namespace, "job")


def test_foreground_deletion_starts_the_job_again(client, namespace):
    """A running job that is deleted in the foreground gets a new JobSet first: its pods start once more."""
    held = shell("sleep 60")
    held["metadata"]["finalizers"] = [FINALIZER]  # otherwise the job may be deleted before the new JobSet
    client.create(held, namespace)
    client.wait_for("TrainJob", namespace, "job", ready_pods)
    old = client.get("JobSet", namespace, "job")["metadata"]
    assert request_deletion(client, namespace, propagationPolicy="Foreground").code == 200
    client.wait_for("JobSet", namespace, "job", lambda found: found["metadata"]["uid"] != old["uid"])
    client.remove_finalizers("TrainJob", namespace, "job")
    client.wait_until_deleted("TrainJob", namespace, "job")
    client.wait_until_deleted("JobSet", namespace, "job")


def test_background_deletion_does_not_start_the_job_again(client, namespace):
    """A running job that is deleted in the background gets no new JobSet, once the Trainer has seen the deletion."""
    client.create(shell("sleep 60"), namespace)
    client.wait_for("TrainJob", namespace, "job", ready_pods)
    (pod,) = list_pods(client, namespace)
    # A Trainer that lags sees the JobSet's deletion first and creates it again; the garbage collector deletes that one.
    old = client.add_finalizer("JobSet", namespace, "job")["metadata"]
    assert request_deletion(client, namespace, propagationPolicy="Background").code == 200
    client.create(shell("true", name="read"), namespace)
    client.wait_for("JobSet", namespace, "read", bool)
    client.wait_for("JobSet", namespace, "job", lambda jobset: "deletionTimestamp" in jobset["metadata"])
    client.remove_finalizers("JobSet", namespace, "job")
    client.wait_until_deleted("JobSet", namespace, "job")
    client.wait_until_deleted("Pod", namespace, pod["metadata"]["name"])
    client.create(shell("true", name="last"), namespace)
    new = []
    for event in client.watch_events(path_of("JobSet", namespace), resourceVersion=old["resourceVersion"]):
        new += [event["object"]["metadata"]["name"]] if event["type"] == "ADDED" else []
        if "last" in new:
            break
    assert new == ["read", "last"]


def test_a_terminating_jobset_decides_about_a_new_job(client, namespace):
    """A new job with the name of a terminating JobSet gets the old JobSet's result: it is Complete without a run."""
    client.create(shell("true"), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    client.add_finalizer("JobSet", namespace, "job")
    assert request_deletion(client, namespace, propagationPolicy="Background").code == 200
    client.wait_for("JobSet", namespace, "job", lambda jobset: "deletionTimestamp" in jobset["metadata"])
    created = client.create(shell("exit 1"), namespace)
    states = watch_states(client, created)
    assert conditions(states[-1])[0][:3] == ("Complete", "True", "AllJobsCompleted")
    jobset = client.get("JobSet", namespace, "job")
    assert jobset["metadata"]["ownerReferences"][0]["uid"] != created["metadata"]["uid"]
    client.remove_finalizers("JobSet", namespace, "job")


def test_orphan_deletion(client, namespace):
    """A job that is deleted with Orphan leaves a JobSet without an owner, whose pods keep running."""
    client.create(shell("sleep 60"), namespace)
    client.wait_for("TrainJob", namespace, "job", ready_pods)
    assert request_deletion(client, namespace, propagationPolicy="Orphan").code == 200
    client.wait_until_deleted("TrainJob", namespace, "job")
    jobset = client.wait_for("JobSet", namespace, "job", lambda found: not found["metadata"].get("ownerReferences"))
    assert "deletionTimestamp" not in jobset["metadata"]
    (pod,) = list_pods(client, namespace)
    assert pod["status"]["phase"] == "Running"
    assert "deletionTimestamp" not in pod["metadata"]


def test_uid_precondition(client, namespace):
    """A deletion with another UID as precondition gets 409; with the job's own UID it succeeds."""
    uid = client.create(shell("true", suspend=True), namespace)["metadata"]["uid"]
    other = request_deletion(client, namespace, preconditions={"uid": "other"})
    assert (other.code, other.reason) == (409, "Conflict")
    assert other.message == (
        'Operation cannot be fulfilled on TrainJob.trainer.kubeflow.org "job": the UID in the precondition (other) '
        f"does not match the UID in record ({uid}). The object might have been deleted and then recreated"
    )
    assert request_deletion(client, namespace, preconditions={"uid": uid}).code == 200
    assert request_deletion(client, namespace).code == 404


def delete_jobset(client, namespace, name="job"):
    """Delete a job's JobSet, and return its UID.

    Its Jobs are deleted first, because up to JobSet 0.11.0 the next JobSet gets their result.
    """
    uid = client.get("JobSet", namespace, name)["metadata"]["uid"]
    client.delete("JobSet", namespace, name, propagationPolicy="Foreground", preconditions={"uid": uid})
    return uid


def test_a_running_job_gets_a_new_jobset(client, namespace):
    """If the JobSet of a running job is deleted, the job gets a new one and starts again."""
    client.create(shell("sleep 60"), namespace)
    client.wait_for("TrainJob", namespace, "job", ready_pods)
    (before,) = list_pods(client, namespace)
    uid = delete_jobset(client, namespace)
    client.wait_for("JobSet", namespace, "job", lambda found: found["metadata"]["uid"] != uid)
    client.wait_until_deleted("Pod", namespace, before["metadata"]["name"])
    client.wait_for("Pod", namespace, "", lambda pod: pod["status"]["phase"] == "Running")
    assert not conditions(client.get("TrainJob", namespace, "job"))


def test_a_failed_job_runs_again(client, namespace):
    """If the JobSet of a Failed job is deleted, the job runs again and fails again."""
    client.create(train_job(**create_own_runtime(client, namespace, never_restarted_job("node", "exit 3"))), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    uid = delete_jobset(client, namespace)
    jobset = client.wait_for("JobSet", namespace, "job", lambda found: found["metadata"]["uid"] != uid)
    client.wait_for(
        "Pod", namespace, "", lambda pod: pod["metadata"]["labels"].get(JOBSET_UID) == jobset["metadata"]["uid"]
    )
    client.wait_for("JobSet", namespace, "job", has_condition("Failed"))
    again = client.wait_for("TrainJob", namespace, "job", has_condition("Failed"))
    assert conditions(again)[0][:3] == ("Failed", "True", "FailedJobs")


@pytest.mark.since("2.2")
def test_a_complete_job_stays_complete(client, namespace):
    """If the JobSet of a Complete job is deleted, no pod runs again."""
    client.create(shell("true"), namespace)
    complete = client.wait_for("TrainJob", namespace, "job", is_finished)
    delete_jobset(client, namespace)
    # The condition shows that the controller has processed the job after that.
    client.wait_until_deleted("JobSet", namespace, "job")
    client.patch("TrainJob", namespace, "job", {"spec": {"suspend": True}})
    after = client.wait_for("TrainJob", namespace, "job", has_condition("Suspended"))
    assert conditions(after)[0] == conditions(complete)[0]
    assert counters(after) == {"node": {"succeeded": 1}}
    assert client.find("JobSet", namespace, "job") is None


@pytest.mark.before("2.2")
def test_a_complete_job_runs_again(client, namespace):
    """If the JobSet of a Complete job is deleted, the job stays Complete, but its pods run again."""
    client.create(shell("true"), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    uid = delete_jobset(client, namespace)
    jobset = client.wait_for("JobSet", namespace, "job", lambda found: found["metadata"]["uid"] != uid)
    client.wait_for(
        "Pod", namespace, "", lambda pod: pod["metadata"]["labels"].get(JOBSET_UID) == jobset["metadata"]["uid"]
    )
    assert conditions(client.get("TrainJob", namespace, "job"))[0][:2] == ("Complete", "True")
