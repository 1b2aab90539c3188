"""What the real Trainer leaves behind after the end of a TrainJob, and what a wait does about it."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from control_plane import ControlPlane
from tests.conformance.runtimes import create_own_runtime, never_restarted_job
from tests.support.diagnosed_jobs import own_runtime_job, shell_job
from tests.support.kubernetes_client import Client, path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import has_condition, list_pods
from trainjob import RunKey
from trainjob.lifecycle import KillAction, Limits, end_checks, submit, wait
from trainjob.status import Phase, derive_verdict

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason():
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("ends") / "state") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(plane):
    with contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))) as opened:
        yield opened


@pytest.fixture
def namespace(client, unique):
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}, "")
    return unique


@contextlib.contextmanager
def refused_deletions(client, namespace):
    """Let the API server refuse all deletions of JobSets, as during an outage of a webhook."""
    rule = {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["jobsets"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false"}],
    }
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": selector}
    group, paths = "admissionregistration.k8s.io/v1", []
    for kind, body in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", binding)):
        plural = "validatingadmissionpolicies" if kind.endswith("Policy") else "validatingadmissionpolicybindings"
        path = f"/apis/{group}/{plural}"
        item = {"apiVersion": group, "kind": kind, "metadata": {"name": namespace}, "spec": body}
        assert client.request("POST", path, item).code == 201
        paths.append(f"{path}/{namespace}")

    def is_refused():
        return client.request("DELETE", path_of("JobSet", namespace), dryRun="All").code == 422

    job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "probe"}}
    node = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}}
    client.create({**job, "spec": {"suspend": True, "replicatedJobs": [node]}}, namespace)
    wait_until(is_refused)
    yield
    for path in paths:
        assert client.request("DELETE", path).ok


@pytest.mark.parametrize("action", [KillAction.DELETE, KillAction.KEEP])
def test_pods_that_run_after_the_deadline(client, cluster, namespace, unique, monkeypatch, action):
    """Trainer 2.3 tries once to delete the JobSet. If that fails, the pods run, and the wait ends or reports them."""
    monkeypatch.setattr(end_checks, "ACTIVE_PODS_SECONDS", 2.0)
    with refused_deletions(client, namespace):
        job = shell_job("sleep 600", job={"deadline": 4})
        reference = submit(cluster, job, RunKey("e2e", "ends", "deadline", unique))
        outcome = wait(cluster, reference, limits=Limits(on_failure=action))
        assert (outcome.phase, outcome.reason) == (Phase.FAILED, "DeadlineExceeded")
        [warning] = outcome.warnings
        assert warning.startswith("1 pod (node-0) still ran 2 s after the end")
    if action is KillAction.KEEP:
        assert f"kubectl delete trainjob {reference.name} -n {namespace}" in warning
        assert [pod["status"]["phase"] for pod in list_pods(client, namespace, reference.name)] == ["Running"]
    else:
        assert warning.endswith("so the TrainJob was deleted")
        wait_until(lambda: not list_pods(client, namespace, reference.name), 60)


def test_a_deadline_that_works_has_no_warning(client, cluster, namespace, unique):
    reference = submit(cluster, shell_job("sleep 600", job={"deadline": 4}), RunKey("e2e", "ends", "plain", unique))
    outcome = wait(cluster, reference)
    assert (outcome.reason, outcome.warnings) == ("DeadlineExceeded", ())
    assert cluster.get_trainjob(reference.name, namespace) is not None


def test_a_failed_job_whose_jobset_has_a_ttl_does_not_run_again(client, cluster, namespace, unique):
    """Trainer 2.3 creates the JobSet again when its TTL has deleted it. The wait suspends the TrainJob before that."""
    create_own_runtime(client, namespace, never_restarted_job("node", "exit 3"), ttlSecondsAfterFinished=3)
    job = own_runtime_job("exit 3")
    reference = submit(cluster, job, RunKey("e2e", "ends", "ttl", unique))
    outcome = wait(cluster, reference)
    assert (outcome.phase, outcome.reason, outcome.exit_code) == (Phase.FAILED, "FailedJobs", 3)
    [warning] = outcome.warnings
    assert "ttlSecondsAfterFinished (3)" in warning and "suspended and marked as failed" in warning
    first = client.get("JobSet", namespace, reference.name)["metadata"]["uid"]

    def is_suspended_again(jobset):
        return jobset["metadata"]["uid"] != first and has_condition("Suspended")(jobset)

    client.wait_for("JobSet", namespace, reference.name, is_suspended_again)
    assert list_pods(client, namespace, reference.name) == []
    verdict = derive_verdict(client.get("TrainJob", namespace, reference.name))
    assert (verdict.phase, verdict.reason) == (Phase.FAILED, "FailedJobs")
    again = submit(cluster, job, RunKey("e2e", "ends", "ttl", unique))
    assert (again.attempt, again.adopted) == (2, False)


def test_many_ends_without_a_warning(client, cluster, namespace, unique):
    """The pods of failed ranks end a moment after their TrainJob; that is no reason for a warning."""
    create_own_runtime(client, namespace, never_restarted_job())
    scripts = ["exit 0", "test $JOB_COMPLETION_INDEX = 1 || sleep 600; exit 3"]

    def run(index):
        job = own_runtime_job(scripts[index % 2], num_nodes=2)
        return wait(cluster, submit(cluster, job, RunKey("e2e", "ends", f"plain-{index}", unique)))

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(run, range(12)))
    assert [outcome.succeeded for outcome in outcomes] == [True, False] * 6
    assert [outcome.warnings for outcome in outcomes] == [()] * 12
