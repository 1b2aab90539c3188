"""Tests of the wait for a TrainJob that another caller created, on a laptop cluster."""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import kubernetes
import pytest
from kubernetes import config as configuration

from tests.support.polling import wait_until
from tests.support.recording_proxy import RecordingProxy
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.client.installed_trainer import TRAINER_API
from trainjob.errors import InvalidSpec, WaitTimeout
from trainjob.lifecycle import JobSelector, RunKey, cancel, check_external, submit, wait, wait_external
from trainjob.lifecycle.cancellation import mark_failed
from trainjob.manifest import job_name, labels
from trainjob.status import Phase, Verdict, derive_verdict
from trainjob.status.failure_rules import NO_RESERVATION

NAMESPACE = "default"


def make_run_key(unique, run="run-1"):
    return RunKey("test", "external", unique, run)


def submit_script(cluster, script, run_key, runtime="ClusterTrainingRuntime/torch-distributed"):
    kind, _, name = runtime.partition("/")
    trainer = CustomTrainerContainer(image="busybox", command=["sh", "-c", script])
    return submit(cluster, TrainJob(trainer=trainer, runtime={"kind": kind, "name": name}), run_key)


def apply_trainjob(cluster, name, script, runtime="ClusterTrainingRuntime/torch-distributed", **annotations):
    """Create a TrainJob as kubectl does, without our labels."""
    kind, _, runtime = runtime.partition("/")
    trainer = {"image": "busybox", "command": ["sh", "-c", script]}
    return cluster.create_trainjob(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"runtimeRef": {"kind": kind, "name": runtime}, "trainer": trainer},
        }
    )


def delete_trainjob(cluster, job):
    cluster.delete_trainjob(job["metadata"]["name"], NAMESPACE, job["metadata"]["uid"])


def wait_until_running(cluster, name):
    """Wait until the status of a TrainJob is Running; it lags behind the pods."""
    return wait_until(lambda: derive_verdict(cluster.get_trainjob(name, NAMESPACE)).phase is Phase.RUNNING)


async def wait_with_steps(cluster, selector, *steps, **limits):
    """Wait for the selected TrainJob while running steps, and return the result and the lines.

    Each step may block. It runs as soon as a line about the step before it was reported.
    """
    lines, reported = [], asyncio.Event()

    def report(line):
        lines.append(line)
        reported.set()

    waiting = asyncio.create_task(wait_external(cluster, selector, report=report, **limits))
    await asyncio.sleep(0)  # let it add its event handler
    for step in steps:
        reported.clear()
        await asyncio.to_thread(step)
        next_line = asyncio.create_task(reported.wait())
        await asyncio.wait({waiting, next_line}, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        next_line.cancel()
    return await asyncio.wait_for(waiting, 120), lines


def test_a_job_that_another_caller_creates_later_is_waited_for_by_name(cluster, unique):
    selector = JobSelector(NAMESPACE, unique)
    lines = []
    assert check_external(cluster, selector, lines.append) is None
    assert lines == [f"there is no TrainJob {NAMESPACE}/{unique} yet"]
    ended, lines = asyncio.run(wait_with_steps(cluster, selector, lambda: apply_trainjob(cluster, unique, "echo fine")))
    assert ended.outcome.succeeded
    assert (ended.reference.name, ended.reference.attempt) == (unique, 1)
    assert all(line.startswith(f"TrainJob {NAMESPACE}/{unique}: ") for line in lines)
    assert check_external(cluster, selector) == ended


@pytest.fixture(scope="module")
def create_never_restarting_runtime(cluster):
    """Create a runtime that keeps failed pods, which stock runtimes restart and then delete."""
    name = "r" + uuid.uuid4().hex[:8]
    container = {"name": "node", "image": "busybox", "command": ["true"]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    role = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    node = {"name": "node", "template": {"metadata": role, "spec": {"backoffLimit": 0, "template": pod}}}
    template = {"spec": {"replicatedJobs": [node]}}
    kind, meta = "TrainingRuntime", {"name": name, "namespace": NAMESPACE}
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": meta}
    body["spec"] = {"mlPolicy": {"numNodes": 1}, "template": template}
    cluster._http.request("POST", f"{TRAINER_API}/namespaces/{NAMESPACE}/trainingruntimes", doing="create", body=body)
    return f"{kind}/{name}"


def test_the_outcome_of_a_failed_job_has_its_evidence(cluster, unique, create_never_restarting_runtime):
    apply_trainjob(cluster, unique, "echo 'ValueError: row 7' >&2; exit 3", create_never_restarting_runtime)
    ended, _ = asyncio.run(wait_with_steps(cluster, JobSelector(NAMESPACE, unique)))
    assert ended.outcome.phase is Phase.FAILED
    assert (ended.outcome.step, ended.outcome.rank, ended.outcome.exit_code) == ("node", 0, 3)
    assert ended.outcome.log_tail == ("ValueError: row 7",)


def test_a_job_that_is_deleted_during_the_wait_is_not_successful(cluster, unique):
    job = apply_trainjob(cluster, unique, "sleep 600")
    wait_until_running(cluster, unique)
    lines = []
    assert check_external(cluster, JobSelector(NAMESPACE, unique), lines.append) is None
    assert "Running" in lines[0]
    steps = (lambda: None, lambda: delete_trainjob(cluster, job))
    ended, _ = asyncio.run(wait_with_steps(cluster, JobSelector(NAMESPACE, unique), *steps))
    assert ended.outcome.phase is Phase.DELETED
    assert ended.reference.uid == job["metadata"]["uid"]


def test_the_newest_of_several_attempts_is_selected(cluster, unique, tmp_path, create_never_restarting_runtime):
    go = tmp_path / "go"
    first = submit_script(cluster, "exit 1", make_run_key(unique), create_never_restarting_runtime)
    assert not wait(cluster, first).succeeded
    selector = JobSelector(NAMESPACE, run_key=make_run_key(unique))
    failed = check_external(cluster, selector)
    assert failed.outcome.phase is Phase.FAILED
    second = submit_script(
        cluster, f"while [ ! -e {go} ]; do sleep 0.1; done", make_run_key(unique), create_never_restarting_runtime
    )
    assert check_external(cluster, selector) is None
    ended, _ = asyncio.run(wait_with_steps(cluster, selector, lambda: None, go.touch))
    assert (ended.reference.uid, ended.reference.attempt) == (second.uid, 2)
    assert ended.outcome.succeeded
    assert check_external(cluster, JobSelector(NAMESPACE, run_key=make_run_key(unique, "another run"))) is None


def test_an_attempt_that_its_waiter_has_marked_as_failed_is_left_to_that_waiter(cluster, unique):
    reference = submit_script(cluster, "sleep 600", make_run_key(unique))
    wait_until_running(cluster, reference.name)
    mark_failed(cluster, reference, Verdict(Phase.FAILED, "RestartLimitExceeded", "container node failed 1 time"))
    ended = check_external(cluster, JobSelector(NAMESPACE, run_key=make_run_key(unique)))
    assert (ended.outcome.phase, ended.outcome.reason) == (Phase.FAILED, "RestartLimitExceeded")
    left = cluster.get_trainjob(reference.name, NAMESPACE)
    assert "deletionTimestamp" not in left["metadata"]
    cancel(cluster, reference)


def test_an_attempt_without_a_reservation_does_not_end_the_wait(cluster, unique):
    """Another one with fewer nodes follows."""
    selector, key = JobSelector(NAMESPACE, run_key=make_run_key(unique)), make_run_key(unique)
    first = submit_script(cluster, "sleep 600", key)
    wait_until_running(cluster, first.name)
    mark_failed(cluster, first, Verdict(Phase.FAILED, NO_RESERVATION, "no reservation for 4 nodes within 1 s"))
    lines = []
    assert check_external(cluster, selector, lines.append) is None
    assert "no reservation for 4 nodes" in lines[0]

    def submit_next():
        cancel(cluster, first)
        submit_script(cluster, "true", key)

    ended, _ = asyncio.run(wait_with_steps(cluster, selector, submit_next))
    assert ended.outcome.succeeded


def test_the_deletion_of_an_older_attempt_does_not_end_the_wait(cluster, unique, tmp_path):
    go, selector = tmp_path / "go", JobSelector(NAMESPACE, run_key=make_run_key(unique))
    first = submit_script(cluster, "sleep 600", make_run_key(unique))
    name = job_name(unique, make_run_key(unique).digest, 2)
    second = cluster.get_trainjob(first.name, NAMESPACE)
    meta = second["metadata"]
    second["metadata"] = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {**meta["labels"], labels.ATTEMPT: "2"},
        "annotations": {labels.RUN_KEY: make_run_key(unique).canonical},
    }
    second["spec"]["trainer"]["command"] = ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"]
    second = cluster.create_trainjob({name: second[name] for name in ("apiVersion", "kind", "metadata", "spec")})
    wait_until_running(cluster, name)
    steps = (lambda: cluster.delete_trainjob(first.name, NAMESPACE, first.uid), go.touch)
    ended, _ = asyncio.run(wait_with_steps(cluster, selector, *steps))
    assert (ended.reference.uid, ended.reference.attempt) == (second["metadata"]["uid"], 2)
    assert ended.outcome.succeeded


def test_a_model_counts_as_exported_when_an_external_wait_sees_the_end_of_its_export(cluster, unique):
    """The waiter that created the export may have died; without the annotation, the model's claim is kept for ever."""
    source = apply_trainjob(cluster, unique, "sleep 600")
    marks = {labels.EXPORTS: unique, labels.MODEL: "s3://models/m"}
    apply_trainjob(cluster, f"{unique}-export", "true", **marks)
    ended, _ = asyncio.run(wait_with_steps(cluster, JobSelector(NAMESPACE, f"{unique}-export")))
    assert ended.outcome.succeeded
    assert labels.get_annotation(cluster.get_trainjob(unique, NAMESPACE), labels.EXPORTED) == "s3://models/m"
    delete_trainjob(cluster, source)


def test_a_timeout_does_not_end_the_job(cluster, unique):
    job = apply_trainjob(cluster, unique, "sleep 600")
    wait_until_running(cluster, unique)
    limit, seen = {"timeout": timedelta(seconds=2)}, threading.Event()
    with cluster.trainjob_informer(NAMESPACE, "").add_event_handler(unique, lambda _: seen.set()):
        assert seen.wait(60)  # so the two seconds do not include the list
        with pytest.raises(WaitTimeout, match=f"{unique}: Running.*the wait for it timed out"):
            asyncio.run(wait_with_steps(cluster, JobSelector(NAMESPACE, unique), lambda: None, **limit))
    assert check_external(cluster, JobSelector(NAMESPACE, unique)) is None
    delete_trainjob(cluster, job)


def test_a_finished_job_is_returned_even_with_a_timeout_of_zero(cluster, unique):
    apply_trainjob(cluster, unique, "true")
    wait_until(lambda: check_external(cluster, JobSelector(NAMESPACE, unique)))
    ended, _ = asyncio.run(wait_with_steps(cluster, JobSelector(NAMESPACE, unique), timeout=timedelta(0)))
    assert ended.outcome.succeeded


def test_many_waits_share_one_list_and_one_watch(laptop, cluster, unique):
    with RecordingProxy(laptop.kubeconfig.read_text()) as proxy:
        client = Cluster(Connection(kubeconfig_text=proxy.kubeconfig))

        async def wait_for_all():
            selectors = [JobSelector(NAMESPACE, f"{unique}-{n}") for n in range(30)]
            waiting = [asyncio.create_task(wait_external(client, selector)) for selector in selectors]
            await asyncio.to_thread(lambda: wait_until(lambda: proxy.count_watches("trainjobs")))
            for selector in selectors[:3]:
                await asyncio.to_thread(apply_trainjob, cluster, selector.name, "true")
            ended = await asyncio.wait_for(asyncio.gather(*waiting[:3]), 60)
            waiting[3].cancel()  # the others continue to wait
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.gather(*waiting[4:]), 0.1)
            return ended

        try:
            ended = asyncio.run(wait_for_all())
            assert [each.outcome.succeeded for each in ended] == [True] * 3
            assert (proxy.count_lists("trainjobs"), proxy.count_watches("trainjobs")) == (1, 1), proxy.requests
            # no event handler is left, also after cancellations
            assert not client.trainjob_informer(NAMESPACE, "")._cache
        finally:
            client.close()


@pytest.fixture
def recorded(laptop):
    """Yield a proxy that records requests, and a client that sends them through it."""
    with (
        RecordingProxy(laptop.kubeconfig.read_text()) as proxy,
        closing(Cluster(Connection(kubeconfig_text=proxy.kubeconfig))) as client,
    ):
        yield proxy, client


def log_requests(proxy):
    return [request for request in proxy.requests if "/log?" in request]


LOGGED = "{'loss': '0.5', 'epoch': '1.0', 'step': 7, 'max_steps': 9, 'num_train_epochs': 2}"


def test_of_a_complete_job_only_the_last_lines_are_read_for_its_progress(laptop, cluster, recorded, unique):
    """A sensor read 69 MB through the triggerer's connection for one complete TrainJob."""
    proxy, client = recorded
    selector = JobSelector(NAMESPACE, unique)
    apply_trainjob(cluster, unique, f'seq 20000; echo "{LOGGED}"; seq 50')
    ended, _ = asyncio.run(wait_with_steps(client, selector))
    assert (ended.outcome.succeeded, ended.outcome.log_tail) == (True, ())
    assert (ended.outcome.progress.step, ended.outcome.progress.total, ended.outcome.progress.loss) == (7, 9, 0.5)
    [request] = log_requests(proxy)
    assert "tailLines=100" in request and "follow" not in request


def test_of_a_complete_job_that_reports_to_the_trainer_no_log_is_read(laptop, cluster, recorded, unique):
    proxy, client = recorded
    apply_trainjob(cluster, unique, f'echo "{LOGGED}"')
    wait_until(lambda: derive_verdict(cluster.get_trainjob(unique, NAMESPACE)).phase is Phase.COMPLETE, 60)
    metrics = [{"name": name, "value": value} for name, value in (("current_step", "8"), ("total_steps", "9"))]
    with configuration.new_client_from_config(str(laptop.kubeconfig)) as api:
        kubernetes.client.CustomObjectsApi(api).patch_namespaced_custom_object_status(
            *("trainer.kubeflow.org", "v1alpha1", NAMESPACE, "trainjobs", unique),
            {"status": {"trainerStatus": {"metrics": metrics, "lastUpdatedTime": "2026-01-01T00:00:00Z"}}},
        )
    ended, _ = asyncio.run(wait_with_steps(client, JobSelector(NAMESPACE, unique)))
    assert (ended.outcome.progress.step, log_requests(proxy)) == (8, [])


def test_of_a_failed_job_only_the_last_lines_are_read(cluster, recorded, unique, create_never_restarting_runtime):
    proxy, client = recorded
    apply_trainjob(cluster, unique, "seq 20000; echo 'ValueError: row 7' >&2; exit 3", create_never_restarting_runtime)
    ended, _ = asyncio.run(wait_with_steps(client, JobSelector(NAMESPACE, unique)))
    assert (ended.outcome.log_tail[-1], len(ended.outcome.log_tail)) == ("ValueError: row 7", 20)
    [request] = log_requests(proxy)
    assert "tailLines=20" in request and "follow" not in request


def test_the_event_loops_own_threads_are_not_needed(cluster, unique):
    """Airflow's triggerer writes log lines and XComs on them."""
    apply_trainjob(cluster, unique, "true")
    release = threading.Event()

    async def wait_with_busy_threads():
        with ThreadPoolExecutor(1) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            busy = asyncio.create_task(asyncio.to_thread(release.wait))
            try:
                return await asyncio.wait_for(wait_external(cluster, JobSelector(NAMESPACE, unique)), 60)
            finally:
                release.set()
                await busy

    assert asyncio.run(wait_with_busy_threads()).outcome.succeeded


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["name, run_key", "both omitted"]),
        ({"name": "a", "run_key": make_run_key("x")}, ["name, run_key", "both"]),
        ({"name": "None"}, ["name", "'None'", "lower-case"]),
        ({"name": "a/status"}, ["name", "'a/status'"]),
        ({"name": "a", "namespace": "my team"}, ["namespace", "'my team'"]),
        ({"name": "a" * 254}, ["name"]),
    ],
)
def test_an_invalid_name_is_refused(arguments, words):
    with pytest.raises(InvalidSpec) as raised:
        JobSelector(**{"namespace": NAMESPACE, **arguments})
    assert all(word in str(raised.value) for word in words)


def test_a_selector_by_run_key_matches_the_label():
    key = make_run_key("x")
    selector = JobSelector(NAMESPACE, run_key=key)
    name = job_name("a", key.digest, 1)
    own, other = ({"metadata": {"name": name, "labels": {labels.RUN_KEY: digest}}} for digest in (key.digest, "0"))
    assert selector.matches(own)
    assert not selector.matches(other)
    assert not selector.matches({"metadata": {"name": "a"}})
    assert str(selector) == "of test external.x in run run-1 in namespace default"
