"""TrainJobs in the queues of a real Kueue: reasons for waiting, admission, preemption, and unsupported requests."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from control_plane import ControlPlane
from tests.e2e.controlplane.queues import create_queue, create_shared_objects, kueue_object, workload_of
from tests.integration.cli.dev_session import DevProject, DevSession
from tests.support import shipped_manifests
from tests.support.accounts import is_allowed, kubeconfig_with_token
from tests.support.diagnosed_jobs import diagnosis_row, shell_job
from tests.support.kubernetes_client import Client, path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import conditions, has_condition, train_job
from trainjob import (
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    InvalidSpec,
    Queue,
    RunKey,
    TrainJob,
)
from trainjob.client import Cluster, Connection
from trainjob.errors import Conflict, NeverStarted, WaitTimeout
from trainjob.inspection.description import describe
from trainjob.lifecycle import Limits, Listener, cancel, plan_resubmission, set_suspended, submit, wait
from trainjob.retention import sweep
from trainjob.status import Phase, derive_verdict

pytestmark = pytest.mark.timeout(300)

BACKEND = "controlplane-2.3"
SECONDS = 120.0
CPUS_OF_TWO = {"resources_per_node": {"cpu": 2}}
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
CPUS = {"resourcesPerNode": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason(kueue=True):
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("kueue") / "state", kueue=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(plane):
    with contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))) as opened:
        create_shared_objects(opened)
        yield opened


@pytest.fixture
def namespace(client, unique):
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}, "")
    return unique


def queued_job(script, queue, **resources):
    """Return a job that requests one CPU and these resources."""
    return shell_job(script, job={"queue": queue}, resources_per_node={"cpu": 1, **resources})


def key(task, unique):
    return RunKey("e2e", "kueue", task, unique)


def reported_phases(waiter):
    return [line.partition(" ")[0] for line in waiter.reports]


# -- reasons for waiting -----------------------------------------------------------------------------------------------

# Case: job, reported reason, and the start of the advice if waiting alone cannot help.
WAITING_JOBS = {
    "no quota": (
        queued_job("true", "team"),
        "Pending: couldn't assign flavors to pod set node: insufficient unused",
        "",
    ),
    "more than there is": (queued_job("true", "team", cpu=3), "> maximum capacity (1)", "request at most what"),
    "no such resource": (
        queued_job("true", "team", gpu=1),
        "nvidia.com/gpu unavailable in ClusterQueue",
        "request at most what",
    ),
    "no such queue": (
        queued_job("true", "nope"),
        "Inadmissible: LocalQueue nope doesn't exist",
        "use an active LocalQueue",
    ),
    "stopped queue": (queued_job("true", "stopped"), "LocalQueue stopped is inactive", "use an active LocalQueue"),
    "stopped cluster queue": (queued_job("true", "held"), "-held is inactive", "use an active LocalQueue"),
    "no such priority": (
        queued_job("true", Queue(name="team", priority_class="nope")),
        "NoWorkload",
        "correct the prior",
    ),
    "a check": (queued_job("true", "checked"), "-budget Pending", ""),
}


def test_reasons_for_waiting(client, namespace, job_group, evidence, tmp_path):
    """A queued job is reported with Kueue's message, and with advice if waiting cannot help. Then it runs."""
    create_queue(client, namespace, "team")
    create_queue(client, namespace, "held", stopPolicy="Hold")
    create_queue(client, namespace, "stopped")
    client.patch("LocalQueue", namespace, "stopped", {"spec": {"stopPolicy": "Hold"}})
    check = create_admission_check(client, f"{namespace}-budget")
    create_queue(client, namespace, "checked", admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    first = job_group.submit("first", queued_job(f"until test -e {tmp_path}/go; do sleep 0.1; done", "team"))
    first.wait_for_report("Running")
    waiters = {name: job_group.submit(name.replace(" ", "-"), job) for name, (job, _, _) in WAITING_JOBS.items()}
    for name, (job, text, advice) in WAITING_JOBS.items():
        report = waiters[name].wait_for_report(text)
        assert f"Queued (WaitingForQuota: waiting for quota in queue {job.queue.name}; " in report
        assert advice in report
        evidence("diagnosis", **diagnosis_row(f"Kueue: {name}", BACKEND, report))
    (tmp_path / "go").touch()
    assert first.outcome.result(60).succeeded
    assert waiters["no quota"].outcome.result(60).succeeded
    client.create(kueue_object("LocalQueue", "nope", spec={"clusterQueue": f"{namespace}-team"}), namespace)
    assert waiters["no such queue"].outcome.result(60).succeeded
    client.patch("LocalQueue", namespace, "stopped", {"spec": {"stopPolicy": "None"}})
    assert waiters["stopped queue"].outcome.result(60).succeeded
    assert reported_phases(waiters["no quota"])[-1] == "Complete"
    evidence("features", row="Kueue", cell="control plane")


def test_an_admitted_job_that_is_not_resumed(client, namespace, cluster, job_group):
    """If the API server refuses Kueue's update, an admitted job stays suspended. The reason and advice are reported."""
    create_queue(client, namespace, "team")
    group, paths = "admissionregistration.k8s.io/v1", []
    rule = {"apiGroups": ["trainer.kubeflow.org"], "apiVersions": ["*"], "operations": ["UPDATE"]}
    policy = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["trainjobs"]}]},
        "validations": [{"expression": "object.spec.suspend == true"}],
    }
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": selector}
    for kind, plural, spec in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", policy),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", binding),
    ):
        item = {"apiVersion": group, "kind": kind, "metadata": {"name": namespace}, "spec": spec}
        assert client.request("POST", f"/apis/{group}/{plural}", item).code == 201
        paths.append(f"/apis/{group}/{plural}/{namespace}")
    client.create(train_job("true", name="probe", suspend=True), namespace)

    def is_refused():
        change = {"spec": {"suspend": False}}
        return client.request("PATCH", path_of("TrainJob", namespace, "probe"), change, dryRun="All").code == 422

    wait_until(is_refused)
    waiter = job_group.submit("stuck", queued_job("true", "team"))
    report = waiter.wait_for_report("Admitted: Kueue has admitted the TrainJob")
    assert "read the log of Kueue's controller" in report
    described = describe(cluster, cluster.get_trainjob(waiter.reference.name, namespace))
    assert "Admitted: Kueue has admitted the TrainJob" in described.summary.message
    assert "Trainer 2.2 or later" in described.hints[0]
    for path in paths:
        assert client.request("DELETE", path).ok
    assert waiter.outcome.result(120).succeeded


def create_admission_check(client, name):
    """Create an admission check that its controller never decides, and return its name.

    The controller is the test.
    """
    client.create(kueue_object("AdmissionCheck", name, spec={"controllerName": "example.org/test"}))
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "the controller is active"}
    client.patch(
        "AdmissionCheck",
        None,
        name,
        {"status": {"conditions": [{**active, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}},
        "status",
    )
    return name


def test_a_limit_on_the_queued_time(client, namespace, cluster, unique):
    """A limit on the queued time raises an error with Kueue's reason, and leaves nothing in the queue."""
    create_queue(client, namespace, "team", cpus=0)
    reference = submit(cluster, queued_job("true", "team"), key("limited", unique))
    with pytest.raises(WaitTimeout, match=r"Workload \S+: Pending: couldn't assign.*queued time.*deleted") as raised:
        wait(cluster, reference, limits=Limits(queued=timedelta(seconds=2)))
    assert "waiting for other jobs does not help" in raised.value.hint
    assert cluster.get_trainjob(reference.name, namespace) is None
    wait_until(lambda: workload_of(client, namespace, reference.uid) is None)


def test_an_account_without_permission_to_list_workloads(plane, client, namespace, cluster, unique):
    """Without the permission to list Workloads, the reason for waiting is not reported."""
    create_queue(client, namespace, "team", cpus=0)
    reference = submit(cluster, queued_job("true", "team"), key("seen", unique))
    token = shipped_manifests.create_restricted_token(client, namespace, "kfp")
    rules = client.get("Role", namespace, "trainjob-steps")["rules"]
    connection = Connection(kubeconfig_text=kubeconfig_with_token(str(plane.kubeconfig), token, namespace))

    def set_rules(rules_of_the_role, *, can_list):
        client.patch("Role", namespace, "trainjob-steps", {"rules": rules_of_the_role})
        with contextlib.closing(client.with_token(token)) as robot:
            wait_until(lambda: is_allowed(robot, namespace, "list", "kueue.x-k8s.io", "workloads") == can_list)

    set_rules([rule for rule in rules if rule["apiGroups"] != ["kueue.x-k8s.io"]], can_list=False)
    with contextlib.closing(Cluster(connection, retry_seconds=5.0)) as robot:
        assert robot.diagnostics.get_workload(reference.uid, namespace) is None
        verdicts = []
        with pytest.raises(WaitTimeout, match=r"waiting for quota in queue team\): the limit"):
            limits = Limits(queued=timedelta(seconds=1))
            wait(robot, reference, limits=limits, listener=Listener(on_phase=verdicts.append))
    set_rules(rules, can_list=True)
    reference = submit(cluster, queued_job("true", "team"), key("seen-again", unique))
    with contextlib.closing(Cluster(connection, retry_seconds=5.0)) as robot:
        wait_until(lambda: robot.diagnostics.get_workload(reference.uid, namespace))


# -- admission and preemption ------------------------------------------------------------------------------------------


def test_a_preempted_training_runs_again(client, namespace, cluster, job_group, tmp_path):
    """A preempted job is reported with the reason, waits again, and stays the same TrainJob to its end."""
    create_queue(client, namespace, "team")
    again, release = tmp_path / "again", tmp_path / "release"
    nightly = job_group.submit(
        "nightly", queued_job(f"test -e {again} || exec sleep 600", Queue(name="team", priority_class="nightly"))
    )
    nightly.wait_for_report("Running")
    script = f"until test -e {release}; do sleep 0.1; done"
    urgent = job_group.submit("urgent", queued_job(script, Queue(name="team", priority_class="urgent")))
    report = nightly.wait_for_report("Preempted: Preempted to accommodate a workload")
    assert report.startswith("Queued (WaitingForQuota: waiting for quota in queue team; Workload ")
    urgent.wait_for_report("Running")
    again.touch()
    release.touch()
    assert urgent.outcome.result(60).succeeded
    assert nightly.outcome.result(60).succeeded
    seen = reported_phases(nightly)
    assert seen.index("Running") < seen.index("Queued", seen.index("Running")) < seen.index("Complete")
    jobs = [job["metadata"] for job in cluster.list_trainjobs(namespace)]
    assert {job["uid"] for job in jobs} == {nightly.reference.uid, urgent.reference.uid}


def test_a_preempted_training_continues_with_fewer_nodes(client, namespace, cluster, job_group, unique, tmp_path):
    """The quota that the other job leaves is enough for half of the nodes."""
    create_queue(client, namespace, "team", cpus=4)
    release, references, planned = tmp_path / "release", [], None
    trainer = CustomTrainerContainer(
        image="busybox",
        command=["sh", "-c", f"echo $PET_NNODES; until test -e {release}; do sleep 0.1; done"],
        num_nodes=(1, 4),
        shrink_after=timedelta(seconds=2),
        resources_per_node={"cpu": 1},
    )
    job = TrainJob(trainer=trainer, queue=Queue(name="team", priority_class="nightly"))
    started, lines, urgent = threading.Event(), [], None

    def on_log(line):
        lines.append(str(line))
        started.set()

    with ThreadPoolExecutor(1) as pool:
        while True:
            references.append(submit(cluster, job, key("nightly", unique), earlier=planned))
            waiting = pool.submit(wait, cluster, references[-1], listener=Listener(on_log=on_log))
            if urgent is None:
                assert started.wait(120)
                script = f"until test -e {release}; do sleep 0.1; done"
                urgent_queue = Queue(name="team", priority_class="urgent")
                urgent = job_group.submit("urgent", shell_job(script, job={"queue": urgent_queue}, **CPUS_OF_TWO))
                urgent.wait_for_report("Running")
            elif len(references) == 2:
                runs = {"condition": lambda found: derive_verdict(found).phase is Phase.RUNNING, "seconds": 120}
                client.wait_for("TrainJob", namespace, references[-1].name, **runs)
                release.touch()
            outcome = waiting.result(200)
            planned = plan_resubmission(references[-1], outcome, 0)
            if planned is None:
                break
            assert "no reservation for 4 nodes within" in planned.notice
    assert outcome.succeeded
    assert urgent.outcome.result(60).succeeded
    assert [(each.num_nodes, each.fewer_nodes) for each in references] == [(4, 2), (2, 1)]
    assert {f"[node-{rank}] {size}" for size in (4, 2) for rank in range(size)} <= set(lines)
    jobs = {job["metadata"]["uid"] for job in cluster.list_trainjobs(namespace)}
    assert jobs == {references[1].uid, urgent.reference.uid}


def test_the_life_of_a_queued_job(client, namespace, cluster, unique):
    """A queued job is adopted while it waits and while it runs. It cannot be suspended, and it can be swept."""
    held = create_queue(client, namespace, "team", stopPolicy="Hold")
    job = queued_job("sleep 600", "team")
    first = submit(cluster, job, key("train", unique))
    assert derive_verdict(cluster.get_trainjob(first.name, namespace)).phase is Phase.QUEUED
    assert submit(cluster, job, key("train", unique)).uid == first.uid
    with pytest.raises(Conflict, match="Kueue queue team, and Kueue decides"):
        set_suspended(cluster, first.name, namespace, suspended=False)
    client.patch("ClusterQueue", None, held, {"spec": {"stopPolicy": "None"}})
    runs = {"condition": lambda job: derive_verdict(job).phase is Phase.RUNNING, "seconds": 90}
    running = client.wait_for("TrainJob", namespace, first.name, **runs)
    adopted = submit(cluster, job, key("train", unique))
    assert (adopted.uid, adopted.adopted) == (first.uid, True)
    with pytest.raises(Conflict, match="Kueue queue team, and Kueue decides"):
        set_suspended(cluster, first.name, namespace, suspended=True)
    assert "could not be suspended and continues to run" in cancel(cluster, adopted, "suspend").text
    now = client.get("TrainJob", namespace, first.name)
    assert now["spec"] == running["spec"]
    assert workload_of(client, namespace, first.uid)
    second = submit(cluster, queued_job("true", "team"), key("waits", unique))
    swept = sweep(cluster, namespace=namespace, active_for=timedelta(0), has_ended=lambda _: True)
    assert {(one.reference.uid, one.action) for one in swept} == {(first.uid, "deleted"), (second.uid, "deleted")}
    wait_until(lambda: not client.list("Workload", namespace))


def test_cancelled_quota_is_free_at_once(client, namespace, cluster, job_group, unique):
    create_queue(client, namespace, "team")
    first = job_group.submit("first", queued_job("sleep 600", "team"))
    first.wait_for_report("Running")
    second = job_group.submit("second", queued_job("true", "team"))
    second.wait_for_report("waiting for quota in queue team")
    assert not cancel(cluster, first.reference).had_finished
    assert second.outcome.result(60).succeeded


def test_every_step_gets_its_queue_and_priority(client, namespace, cluster, unique):
    create_queue(client, namespace, "team", stopPolicy="Hold")
    workspace = {"workspace": "claim", "queue": Queue(name="team", priority_class="urgent")}
    steps = {
        "dataset": InitializeDataset(storage_uri="hf://acme/tickets", **workspace),
        "model": InitializeModel(storage_uri="hf://acme/model", **workspace),
        "tune": FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, **workspace),
        "export": ExportModel(destination="s3://bucket/path", **workspace),
        "function": TrainJob(trainer=CustomTrainer(func=learn, num_nodes=2), **workspace),
    }
    for name, step in steps.items():
        reference = submit(cluster, step, key(name, unique))
        workload = wait_until(lambda uid=reference.uid: workload_of(client, namespace, uid))
        assert workload["spec"]["queueName"] == "team"
        assert workload["spec"]["priority"] == 1000
        assert not cancel(cluster, reference).had_finished


def learn():
    return 1


# -- requests that do not work with a queue ----------------------------------------------------------------------------


def test_suspension_of_a_queued_job_is_refused():
    for action in ({"on_kill": "suspend"}, {"on_failure": "suspend"}):
        with pytest.raises(InvalidSpec, match="Kueue would resume a TrainJob of the queue team"):
            TrainJob(queue="team", **action)


def test_a_stock_torchtune_runtime_never_starts_in_a_queue(client, namespace):
    """After the admission its JobSet stays suspended, because JobSet rejects the change. So a queue is refused."""
    with pytest.raises(InvalidSpec, match="it would wait forever; use a workspace"):
        FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, dataset="hf://acme/tickets", queue="team")
    create_queue(client, namespace, "team", cpus=8)
    job = train_job(runtime="torchtune-llama3.2-1b", trainer=CPUS)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    client.create(job, namespace)
    client.wait_for("TrainJob", namespace, "job", lambda job: not job["spec"]["suspend"])
    client.wait_for("Event", namespace, "", lambda event: event["reason"] == "Started")
    client.wait_for("Event", namespace, "", lambda event: "volumeClaimPolicies" in event.get("message", ""))
    assert client.get("JobSet", namespace, "job")["spec"]["suspend"] is True
    assert client.list("Pod", namespace) == []


def test_a_custom_runtime_with_immutable_claim_policies_never_starts_in_a_queue(client, namespace, job_group):
    """JobSet refuses to resume such a TrainJob. The wait finds this in its events, ends it and raises NeverStarted.

    The request alone does not show the problem.
    """
    spec = client.get("ClusterTrainingRuntime", None, "torchtune-llama3.2-1b")["spec"]
    [node] = [one for one in spec["template"]["spec"]["replicatedJobs"] if one["name"] == "node"]
    del node["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]  # GPUs
    kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime"}
    labels = {"trainer.kubeflow.org/framework": "torchtune"}
    client.create({**kind, "metadata": {"name": "mine-llama3.2-1b", "labels": labels}, "spec": spec}, namespace)
    create_queue(client, namespace, "team", cpus=8)
    mine = {"name": "mine-llama3.2-1b", "kind": "TrainingRuntime"}
    waiter = job_group.submit("mine", shell_job(job={"runtime": mine, "queue": "team"}, resources_per_node={"cpu": 1}))
    error = waiter.job_error(90)
    assert isinstance(error, NeverStarted)
    assert "spec.volumeClaimPolicies: Invalid value: Value is immutable" in str(error)
    assert "claim policy without a retentionPolicy" in error.hint


# -- MultiKueue --------------------------------------------------------------------------------------------------------


def test_a_job_that_another_cluster_runs(client, namespace, cluster, job_group, unique):
    """A job for MultiKueue has no JobSet here and is not reported as hanging. Its mirrored status counts."""
    elsewhere = shell_job(job={"managed_by": MULTIKUEUE})
    reference = submit(cluster, elsewhere, key("silent", unique))
    with pytest.raises(WaitTimeout, match=r"Pending \(ManagedElsewhere: MultiKueue runs the TrainJob.*deleted"):
        wait(cluster, reference, limits=Limits(starting=timedelta(seconds=2)))
    waiter = job_group.submit("mirrored", elsewhere)
    waiter.wait_for_report("ManagedElsewhere")
    name = waiter.reference.name
    assert client.find("JobSet", namespace, name) is None
    status = {"jobsStatus": [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]}
    client.patch("TrainJob", namespace, name, {"status": status}, "status")
    waiter.wait_for_report("Running")
    done = {"type": "Complete", "status": "True", "reason": "AllJobsCompleted", "message": "jobset completed"}
    mirrored = {"status": {"conditions": [{**done, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    client.patch("TrainJob", namespace, name, mirrored, "status")
    assert waiter.outcome.result(60).succeeded
    assert [one[0] for one in conditions(client.get("TrainJob", namespace, name))] == ["Complete"]


def test_an_unknown_manager():
    with pytest.raises(InvalidSpec, match=r"managed_by cannot be 'kueue': .*'kueue\.x-k8s\.io/multikueue'"):
        TrainJob(managed_by="kueue")


def test_dev_runs_a_changed_project_again_in_the_quota_of_its_queue(plane, client, namespace, tmp_path):
    """The pods stay admitted between the runs, so no other TrainJob gets their quota."""
    create_queue(client, namespace, "dev", cpus=1)
    given = {"command": ["python3", "train.py"], "queue": "dev", "resources_per_node": {"cpu": 1}}
    project = DevProject(tmp_path, **given)
    command = [sys.executable, "-m", "trainjob", "--kubeconfig", str(plane.kubeconfig), "dev", str(project.file)]
    with subprocess.Popen(
        [*command, "-n", namespace], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        session = DevSession(process)
        session.wait_for("RUN a ")
        [job] = client.list("TrainJob", namespace)
        [pod] = client.list("Pod", namespace)
        for name in ("b", "c"):
            project.write("pkg/model.py", f"NAME = '{name}'")
            session.wait_for(f"RUN {name} ")
        assert [each["metadata"]["uid"] for each in client.list("Pod", namespace)] == [pod["metadata"]["uid"]]
        assert has_condition("Admitted")(workload_of(client, namespace, job["metadata"]["uid"]))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    client.wait_until_deleted("TrainJob", namespace, job["metadata"]["name"])
