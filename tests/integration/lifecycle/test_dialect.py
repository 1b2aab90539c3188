"""Which dialect a cluster speaks: read once, on the wire, and what happens when it is old, silent or just upgraded.

A proxy stands in front of the laptop cluster (Trainer 2.3) that gives other answers for some paths and forwards all
else through.
"""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import urllib3
import yaml

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from trainjob import BuiltinTrainer, CustomTrainerContainer, TorchTuneConfig, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import AdmissionRefused, InvalidSpec, NotFound, ServerUnavailable
from trainjob.lifecycle import RunKey, cancel, submit
from trainjob.manifest import Dialect, build_trainjob, detect_dialect, labels, spec_hash

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
    with ApiServerProxy(laptop.server) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def open_cluster(proxy, laptop, tmp_path):
    """Opens clusters through the proxy, with the administrator's credentials."""
    content = yaml.safe_load(Path(laptop.kubeconfig).read_text())
    content["clusters"][0]["cluster"] = {"server": proxy.url}
    opened = []

    def opener(patience=0.0):
        opened.append(Cluster(Connection(kubeconfig_json=json.dumps(content)), retry_seconds=patience))
        return opened[-1]

    yield opener
    for cluster in opened:
        cluster.close()


@pytest.fixture
def key(unique, cluster):
    """A run key whose jobs go at the end."""
    made = RunKey("test", "dialect", unique, "run-1")
    yield made
    for job in list_trainjobs(cluster, made):
        cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])


def list_trainjobs(cluster, run_key):
    return cluster.list_trainjobs("default", f"{labels.RUN_KEY}={run_key.digest}")


# -- reading ------------------------------------------------------------------------------------------------------


def test_the_laptop_cluster_speaks_the_newest(cluster):
    fields = cluster.trainjob_spec_fields()
    assert {"runtimeRef", "trainer", "runtimePatches", "activeDeadlineSeconds"} <= fields
    assert detect_dialect(fields) is Dialect.V2_2


def test_it_is_read_once_whoever_asks(proxy, open_cluster):
    shared, found = open_cluster(), []
    threads = [threading.Thread(target=lambda: found.append(shared.trainjob_spec_fields())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert proxy.requests[f"GET {DOCUMENT}"] == 1
    shared.trainjob_spec_fields(fresh=True)
    assert proxy.requests[f"GET {DOCUMENT}"] == 2


def test_who_may_guess_and_who_adopts_do_not_ask(proxy, open_cluster, key):
    first = submit(open_cluster(), JOB, key)
    assert submit(open_cluster(), JOB, key).uid == first.uid
    assert proxy.requests[f"GET {DOCUMENT}"] == 0


def test_every_account_may_read_it_and_nobody_else(laptop, cluster, unique):
    account = "/api/v1/namespaces/default/serviceaccounts"
    cluster._http.request("POST", account, doing="make an account", body={"metadata": {"name": unique}})
    asked = cluster._http.request("POST", f"{account}/{unique}/token", doing="get a token", body={"spec": {}})

    def status(**headers):
        return urllib3.request("GET", laptop.server + DOCUMENT, headers=headers, retries=False).status

    assert status(Authorization=f"Bearer {asked['status']['token']}") == 200
    assert status() == 403


@pytest.mark.parametrize(
    "withheld", [FORBIDDEN, NO_PAGE, (200, b"<html>log in</html>"), (200, b"{}"), (406, b"")], ids=str
)
def test_a_cluster_that_does_not_tell_is_taken_for_the_newest(proxy, open_cluster, key, withheld):
    """Strict field validation refuses a wrong guess, so that nothing gets lost silently."""
    proxy.answers[DOCUMENT] = withheld
    opened = open_cluster()
    assert submit(opened, JOB, key).attempt == 1
    assert "runtimePatches" in list_trainjobs(opened, key)[0]["spec"]
    del proxy.answers[DOCUMENT]
    assert opened.trainjob_spec_fields(), "what is not told is asked for again"


def test_trainer_is_not_installed(proxy, open_cluster, key):
    proxy.answers = dict.fromkeys((DOCUMENT, TRAINER, JOBS), NO_PAGE)
    for ask in (open_cluster().trainjob_spec_fields, lambda: submit(open_cluster(), JOB, key)):
        with pytest.raises(NotFound, match=r"Trainer is not installed on http://127\.0\.0\.1.*v1alpha1") as raised:
            ask()
        assert "install Kubeflow Trainer" in raised.value.hint
        assert not raised.value.retryable


def test_a_server_in_trouble_is_asked_again(proxy, open_cluster):
    proxy.answers[DOCUMENT] = UNAVAILABLE
    with pytest.raises(ServerUnavailable):
        open_cluster().trainjob_spec_fields()
    patient, found = open_cluster(patience=20.0), []
    asking = threading.Thread(target=lambda: found.append(patient.trainjob_spec_fields()))
    before = proxy.requests[f"GET {DOCUMENT}"]
    asking.start()
    wait_until(lambda: proxy.requests[f"GET {DOCUMENT}"] >= before + 2)
    del proxy.answers[DOCUMENT]
    asking.join(60)
    assert "runtimePatches" in found[0]


# -- older clusters, and upgrades ---------------------------------------------------------------------------------


def test_an_older_cluster_is_sent_its_own_fields(proxy, open_cluster, key):
    """This server refuses them, which shows that they were sent, and that no other were."""
    proxy.answers[DOCUMENT] = V2_1
    opened = open_cluster()
    opened.trainjob_spec_fields()
    with pytest.raises(AdmissionRefused, match=r'unknown field "spec\.podTemplateOverrides"'):
        submit(opened, JOB, key)
    assert proxy.requests[f"GET {DOCUMENT}"] == 2, "it is read anew once"
    assert proxy.requests[f"POST {JOBS}"] == 1


def test_a_wrong_guess_is_put_right(proxy, open_cluster, key):
    proxy.answers |= {DOCUMENT: V2_1, f"POST {JOBS}": UNKNOWN}
    with pytest.raises(InvalidSpec, match=r"deadline: .*activeDeadlineSeconds needs Trainer 2\.2"):
        submit(open_cluster(), JOB.model_copy(update={"deadline": timedelta(hours=2)}), key)
    assert proxy.requests[f"POST {JOBS}"] == 1


def test_an_upgrade_under_a_long_lived_process(proxy, open_cluster, key):
    proxy.answers[DOCUMENT] = V2_1
    opened = open_cluster()
    assert detect_dialect(opened.trainjob_spec_fields()) is Dialect.V2_1
    del proxy.answers[DOCUMENT]
    submit(opened, JOB, key)
    [job] = list_trainjobs(opened, key)
    assert job["spec"]["runtimePatches"][0]["manager"] == "trainjob.dev/workflow-step"
    assert proxy.requests[f"POST {JOBS}"] == 2
    assert detect_dialect(opened.trainjob_spec_fields()) is Dialect.V2_2


def test_what_an_older_one_cannot_say_is_refused_before_anything_is_sent(proxy, open_cluster, cluster, key):
    running = submit(cluster, JOB, key)
    proxy.answers[DOCUMENT] = V2_1
    limited = JOB.model_copy(update={"deadline": timedelta(hours=2)})
    with pytest.raises(InvalidSpec, match=r"deadline: .*has API 2\.1.*activeDeadlineSeconds needs Trainer 2\.2"):
        submit(open_cluster(), limited, key)
    assert not [asked for asked in proxy.requests if asked.startswith(("POST", "DELETE"))]
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, key)] == [running.uid]


def test_after_an_upgrade_it_can_be_said(proxy, open_cluster, key):
    proxy.answers[DOCUMENT] = V2_1
    opened = open_cluster()
    opened.trainjob_spec_fields()
    del proxy.answers[DOCUMENT]
    submit(opened, JOB.model_copy(update={"deadline": timedelta(hours=2)}), key)
    assert list_trainjobs(opened, key)[0]["spec"]["activeDeadlineSeconds"] == 7200


@pytest.mark.parametrize("dialect", [Dialect.V2_0, Dialect.V2_1])
def test_an_attempt_from_before_an_upgrade_is_adopted(cluster, key, dialect):
    """As a new Trainer shows a TrainJob of an old one: without the fields that it does not know any more."""
    marks = {labels.RUN_KEY: key.canonical, labels.SPEC_HASH: spec_hash(JOB)}
    mine = labels.run_labels(key.to_dict(), key.digest, 1)
    old = build_trainjob(JOB, name=key.task, namespace="default", labels=mine, annotations=marks, dialect=dialect)
    for field in ("podSpecOverrides", "podTemplateOverrides"):
        old["spec"].pop(field, None)
    created = cluster.create_trainjob(old)
    reference = submit(cluster, JOB, key)
    assert (reference.uid, reference.adopted) == (created["metadata"]["uid"], True)
    assert cancel(cluster, reference)


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
REFUSED = (422, json.dumps({"kind": "Status", "message": "far enough"}).encode())


def test_a_claim_that_pods_would_wait_for_is_asked_for(proxy, open_cluster, key):
    proxy.answers |= {DOCUMENT: V2_1, f"POST {JOBS}": REFUSED}
    with pytest.raises(NotFound, match=r"no PersistentVolumeClaim torchtune-llama3\.2-1b .*Trainer 2\.1") as raised:
        submit(open_cluster(), BUILTIN, key)
    assert "create the claim" in raised.value.hint
    assert proxy.requests[f"POST {JOBS}"] == 0


@pytest.mark.parametrize("claim", [FORBIDDEN, EXISTING_CLAIM], ids=["who may not look", "it is there"])
def test_with_the_claim_or_without_the_right_to_look_it_goes_on(proxy, open_cluster, key, claim):
    proxy.answers |= {DOCUMENT: V2_1, f"POST {JOBS}": REFUSED, CLAIM: claim}
    with pytest.raises(AdmissionRefused, match="far enough"):
        submit(open_cluster(), BUILTIN, key)


def test_newer_ones_need_none(proxy, open_cluster, key):
    proxy.answers[f"POST {JOBS}"] = REFUSED
    with pytest.raises(AdmissionRefused, match="far enough"):
        submit(open_cluster(), BUILTIN, key)
    assert proxy.requests[f"GET {CLAIM}"] == 0
