"""Tests of the detection of a cluster's dialect: current, old, upgraded, or without a published document.

A proxy in front of the laptop cluster (Trainer 2.3) sends other responses for some paths and forwards all other
requests.
"""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
import urllib3

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from trainjob import BuiltinTrainer, CustomTrainerContainer, TorchTuneConfig, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import AdmissionRefused, InvalidSpec, NotFound, ServerUnavailable
from trainjob.lifecycle import RunKey, cancel, submit
from trainjob.manifest import Dialect, build_trainjob, detect_dialect, job_name, labels, spec_hash

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
DOCUMENT = f"/openapi/v3{TRAINER}"
JOBS = f"{TRAINER}/namespaces/default/trainjobs"
KIND = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "60"]), workspace="w")


def openapi_document(*fields):
    """Return an OpenAPI document in which a TrainJob's spec has these fields."""
    spec = {"properties": {name: {} for name in fields}}
    schemas = {"TrainJob": {"x-kubernetes-group-version-kind": [KIND], "properties": {"spec": spec}}, "Other": {}}
    return 200, json.dumps({"components": {"schemas": schemas}}).encode()


V2_1 = openapi_document("runtimeRef", "trainer", "podTemplateOverrides")
UNKNOWN = (400, b'{"kind": "Status", "message": "strict decoding error: unknown field \\"spec.runtimePatches\\""}')
FORBIDDEN, NO_PAGE, UNAVAILABLE = (403, b""), (404, b"404 page not found\n"), (503, b"")


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        yield server


@pytest.fixture
def open_cluster(proxy, laptop, tmp_path):
    """Yield a function that opens clusters through the proxy, as the administrator."""
    opened = []

    def opener(retry_seconds=0.0):
        opened.append(Cluster(Connection(kubeconfig_text=proxy.kubeconfig_text), retry_seconds=retry_seconds))
        return opened[-1]

    yield opener
    for cluster in opened:
        cluster.close()


@pytest.fixture
def key(unique, cluster):
    """Yield a run key, and delete its TrainJobs at the end."""
    run_key = RunKey("test", "dialect", unique, "run-1")
    yield run_key
    for job in list_trainjobs(cluster, run_key):
        cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])


def list_trainjobs(cluster, run_key):
    return cluster.list_trainjobs("default", f"{labels.RUN_KEY}={run_key.digest}")


# -- reading ------------------------------------------------------------------------------------------------------


def test_the_laptop_cluster_has_the_newest_dialect(cluster):
    fields = cluster.trainjob_spec_fields()
    assert {"runtimeRef", "trainer", "runtimePatches", "activeDeadlineSeconds"} <= fields
    assert detect_dialect(fields) is Dialect.V2_2


def test_concurrent_threads_read_the_document_once(proxy, open_cluster):
    shared, found = open_cluster(), []
    threads = [threading.Thread(target=lambda: found.append(shared.trainjob_spec_fields())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert proxy.request_counts[f"GET {DOCUMENT}"] == 1
    shared.trainjob_spec_fields(fresh=True)
    assert proxy.request_counts[f"GET {DOCUMENT}"] == 2


def test_a_submission_that_may_assume_the_dialect_does_not_read_the_document(proxy, open_cluster, key):
    first = submit(open_cluster(), JOB, key)
    assert submit(open_cluster(), JOB, key).uid == first.uid
    assert proxy.request_counts[f"GET {DOCUMENT}"] == 0


def test_every_service_account_may_read_the_document_but_no_anonymous_user(laptop, cluster, unique):
    account = "/api/v1/namespaces/default/serviceaccounts"
    cluster._http.request("POST", account, doing="make an account", body={"metadata": {"name": unique}})
    created = cluster._http.request("POST", f"{account}/{unique}/token", doing="get a token", body={"spec": {}})

    def status(**headers):
        with urllib3.PoolManager(ca_certs=str(laptop.ca_file)) as pool:
            return pool.request("GET", laptop.server + DOCUMENT, headers=headers, retries=False).status

    assert status(Authorization=f"Bearer {created['status']['token']}") == 200
    assert status() == 403


@pytest.mark.parametrize(
    "withheld", [FORBIDDEN, NO_PAGE, (200, b"<html>log in</html>"), (200, b"{}"), (406, b"")], ids=str
)
def test_without_the_document_the_newest_dialect_is_assumed(proxy, open_cluster, key, withheld):
    """Strict field validation refuses a wrong assumption, so no field is lost without an error."""
    proxy.responses[DOCUMENT] = withheld
    opened = open_cluster()
    assert submit(opened, JOB, key).attempt == 1
    assert "runtimePatches" in list_trainjobs(opened, key)[0]["spec"]
    del proxy.responses[DOCUMENT]
    assert opened.trainjob_spec_fields(), "a missing document is requested again"


def test_a_missing_trainer_is_an_error(proxy, open_cluster, key):
    proxy.responses = dict.fromkeys((DOCUMENT, TRAINER, JOBS), NO_PAGE)
    for request in (open_cluster().trainjob_spec_fields, lambda: submit(open_cluster(), JOB, key)):
        with pytest.raises(NotFound, match=r"Trainer is not installed on http://127\.0\.0\.1.*v1alpha1") as raised:
            request()
        assert "install Kubeflow Trainer" in raised.value.hint
        assert not raised.value.retryable


def test_an_unavailable_server_is_requested_again(proxy, open_cluster):
    proxy.responses[DOCUMENT] = UNAVAILABLE
    with pytest.raises(ServerUnavailable):
        open_cluster().trainjob_spec_fields()
    retrying, found = open_cluster(retry_seconds=20.0), []
    reader = threading.Thread(target=lambda: found.append(retrying.trainjob_spec_fields()))
    before = proxy.request_counts[f"GET {DOCUMENT}"]
    reader.start()
    wait_until(lambda: proxy.request_counts[f"GET {DOCUMENT}"] >= before + 2)
    del proxy.responses[DOCUMENT]
    reader.join(60)
    assert "runtimePatches" in found[0]


# -- older clusters, and upgrades ---------------------------------------------------------------------------------


def test_an_older_cluster_gets_the_fields_of_its_dialect(proxy, open_cluster, key):
    """This server refuses these fields, which shows that they were sent."""
    proxy.responses[DOCUMENT] = V2_1
    opened = open_cluster()
    opened.trainjob_spec_fields()
    with pytest.raises(AdmissionRefused, match=r'unknown field "spec\.podTemplateOverrides"'):
        submit(opened, JOB, key)
    assert proxy.request_counts[f"GET {DOCUMENT}"] == 2, "it is read again once"
    assert proxy.request_counts[f"POST {JOBS}"] == 1


def test_a_wrong_assumption_is_corrected(proxy, open_cluster, key):
    proxy.responses |= {DOCUMENT: V2_1, f"POST {JOBS}": UNKNOWN}
    with pytest.raises(InvalidSpec, match=r"deadline cannot be .*activeDeadlineSeconds needs Trainer 2\.2"):
        submit(open_cluster(), JOB.model_copy(update={"deadline": timedelta(hours=2)}), key)
    assert proxy.request_counts[f"POST {JOBS}"] == 1


def test_a_running_process_detects_an_upgrade(proxy, open_cluster, key):
    proxy.responses[DOCUMENT] = V2_1
    opened = open_cluster()
    assert detect_dialect(opened.trainjob_spec_fields()) is Dialect.V2_1
    del proxy.responses[DOCUMENT]
    submit(opened, JOB, key)
    [job] = list_trainjobs(opened, key)
    assert job["spec"]["runtimePatches"][0]["manager"] == "trainjob.dev/workflow-step"
    assert proxy.request_counts[f"POST {JOBS}"] == 2
    assert detect_dialect(opened.trainjob_spec_fields()) is Dialect.V2_2


def test_a_field_that_an_older_dialect_lacks_is_refused_before_any_change(proxy, open_cluster, cluster, key):
    running = submit(cluster, JOB, key)
    proxy.responses[DOCUMENT] = V2_1
    limited = JOB.model_copy(update={"deadline": timedelta(hours=2)})
    with pytest.raises(
        InvalidSpec, match=r"deadline cannot be .*has API 2\.1.*activeDeadlineSeconds needs Trainer 2\.2"
    ):
        submit(open_cluster(), limited, key)
    assert not [request for request in proxy.request_counts if request.startswith(("POST", "DELETE"))]
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, key)] == [running.uid]


def test_after_an_upgrade_the_new_field_is_sent(proxy, open_cluster, key):
    proxy.responses[DOCUMENT] = V2_1
    opened = open_cluster()
    opened.trainjob_spec_fields()
    del proxy.responses[DOCUMENT]
    submit(opened, JOB.model_copy(update={"deadline": timedelta(hours=2)}), key)
    assert list_trainjobs(opened, key)[0]["spec"]["activeDeadlineSeconds"] == 7200


@pytest.mark.parametrize("dialect", [Dialect.V2_0, Dialect.V2_1])
def test_an_attempt_from_before_an_upgrade_is_adopted(cluster, key, dialect):
    """A new Trainer returns a TrainJob of an old Trainer without the fields that it no longer has."""
    annotations = {labels.RUN_KEY: key.canonical, labels.SPEC_HASH: spec_hash(JOB)}
    run_labels = labels.run_labels(key.to_dict(), key.digest, 1)
    name = job_name(key.task, key.digest, 1)
    old = build_trainjob(
        JOB, name=name, namespace="default", labels=run_labels, annotations=annotations, dialect=dialect
    )
    for field in ("podSpecOverrides", "podTemplateOverrides"):
        old["spec"].pop(field, None)
    created = cluster.create_trainjob(old)
    reference = submit(cluster, JOB, key)
    assert (reference.uid, reference.adopted) == (created["metadata"]["uid"], True)
    assert not cancel(cluster, reference).had_finished


# -- the claim of the older TorchTune runtimes --------------------------------------------------------------------

BUILTIN = TrainJob(
    trainer=BuiltinTrainer(config=TorchTuneConfig(resources_per_node={"gpu": 1})), runtime="torchtune-llama3.2-1b"
)
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/torchtune-llama3.2-1b"
CLAIM_METADATA = {
    "name": "torchtune-llama3.2-1b",
    "namespace": "default",
    "uid": "u",
    "resourceVersion": "1",
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
EXISTING_CLAIM = (200, json.dumps({"metadata": CLAIM_METADATA}).encode())
REFUSED = (422, json.dumps({"kind": "Status", "message": "refused by the test"}).encode())


def test_a_missing_claim_that_the_runtime_needs_is_an_error(proxy, open_cluster, key):
    proxy.responses |= {DOCUMENT: V2_1, f"POST {JOBS}": REFUSED}
    with pytest.raises(NotFound, match=r"no PersistentVolumeClaim torchtune-llama3\.2-1b .*Trainer 2\.1") as raised:
        submit(open_cluster(), BUILTIN, key)
    assert "create the PersistentVolumeClaim" in raised.value.hint
    assert proxy.request_counts[f"POST {JOBS}"] == 0


@pytest.mark.parametrize("claim", [FORBIDDEN, EXISTING_CLAIM], ids=["no permission", "exists"])
def test_with_the_claim_or_without_the_permission_to_get_it_the_job_is_sent(proxy, open_cluster, key, claim):
    proxy.responses |= {DOCUMENT: V2_1, f"POST {JOBS}": REFUSED, CLAIM: claim}
    with pytest.raises(AdmissionRefused, match="refused by the test"):
        submit(open_cluster(), BUILTIN, key)


def test_newer_trainers_need_no_claim(proxy, open_cluster, key):
    proxy.responses[f"POST {JOBS}"] = REFUSED
    with pytest.raises(AdmissionRefused, match="refused by the test"):
        submit(open_cluster(), BUILTIN, key)
    assert proxy.request_counts[f"GET {CLAIM}"] == 0
