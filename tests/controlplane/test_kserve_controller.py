"""Tests of the controller that does KServe's work in other tests, with the real API server."""

from __future__ import annotations

import itertools
import json
import urllib.request
from urllib.error import HTTPError

import pytest

from control_plane import ControlPlane
from leftovers import open_client
from tests.support.kserve_controller import KServeController
from tests.support.kubernetes_client import Client

OLD, NEW, NEWEST = "s3://models/tuned/1", "s3://models/tuned/2", "s3://models/tuned/3"
BASE = "hf://org/base"
ISVC, LLM = "InferenceService", "LLMInferenceService"
NAMESPACES = itertools.count()


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """Yield a control plane with KServe, or skip the tests with the reason."""
    if reason := ControlPlane.unavailable_reason(kserve=True):
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("kserve") / "state", kserve=True) as running:
        yield running


@pytest.fixture(scope="module")
def client(plane):
    with open_client(plane) as opened:
        yield opened


@pytest.fixture
def cluster(plane, client):
    """Yield a cluster with one namespace and the controller, whose services a test changes."""
    namespace = f"kserve-{next(NAMESPACES)}"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with KServeController(plane.kubeconfig, namespace) as controller:
        yield Cluster(client, namespace, controller)


class Cluster:
    """A namespace with one service of each kind, all of the name `tuned`."""

    def __init__(self, client: Client, namespace: str, controller: KServeController) -> None:
        self.client, self.namespace, self.controller = client, namespace, controller

    def create(self, uri=OLD, *, raw=False, **predictor):
        """Create an InferenceService."""
        annotations = {"serving.kserve.io/deploymentMode": "RawDeployment"} if raw else {}
        model = {"modelFormat": {"name": "huggingface"}, "storageUri": uri}
        return self.client.create(
            {
                "apiVersion": "serving.kserve.io/v1beta1",
                "kind": ISVC,
                "metadata": {"name": "tuned", "annotations": annotations},
                "spec": {"predictor": {"model": model, **predictor}},
            },
            self.namespace,
        )

    def create_llm(self, uri=BASE, adapters=()):
        """Create an LLMInferenceService with a route."""
        model = {"uri": uri, "name": "base", "lora": {"adapters": [{"name": n, "uri": u} for n, u in adapters]}}
        return self.client.create(
            {
                "apiVersion": "serving.kserve.io/v1alpha1",
                "kind": LLM,
                "metadata": {"name": "tuned"},
                "spec": {"model": model, "router": {"route": {}, "gateway": {}}},
            },
            self.namespace,
        )

    def patch(self, kind=ISVC, **fields):
        """Change the model, or the percentage of the canary, and return the service."""
        if kind == LLM:
            return self.client.patch(kind, self.namespace, "tuned", {"spec": {"model": fields}})
        change = {"model": {"storageUri": fields.pop("uri")}} if "uri" in fields else {}
        return self.client.patch(kind, self.namespace, "tuned", {"spec": {"predictor": {**change, **fields}}})

    def wait(self, condition, kind=ISVC):
        """Wait until the condition is true for the status, and return the status."""
        return self.client.wait_for(
            kind, self.namespace, "tuned", lambda item: condition(item.get("status", {})), seconds=30
        )["status"]

    def get(self, kind=ISVC, suffix=""):
        return self.client.get(kind, self.namespace, f"tuned{suffix}")

    def status(self, kind=ISVC):
        return self.get(kind)["status"]


def conditions(status):
    return {item["type"]: item["status"] for item in status.get("conditions", [])}


def is_ready(status):
    return conditions(status).get("Ready") == "True"


def serves(revision):
    """Return a condition: the InferenceService is ready, and this is its newest revision."""

    def condition(status):
        part = status.get("components", {}).get("predictor", {})
        return is_ready(status) and part["latestReadyRevision"] == part["latestCreatedRevision"] == revision

    return condition


def is_up_to_date(status):
    return is_ready(status) and status["modelStatus"]["transitionStatus"] == "UpToDate"


def send(url, body=None):
    """Send a request, and return the code and the body of the response."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


def states(status):
    found = status["modelStatus"]
    return found["transitionStatus"], found["states"]["activeModelState"], found["states"]["targetModelState"]


# -- Knative -------------------------------------------------------------------------------------------------------


def test_a_new_revision_serves_when_it_is_ready(cluster):
    """While a revision loads, Ready is Unknown and the revision before serves."""
    cluster.controller.hold(NEW)
    cluster.create()
    first = cluster.wait(serves("tuned-predictor-00001"))
    assert first["deploymentMode"] == "Knative"
    assert first["url"] == first["address"]["url"] == first["components"]["predictor"]["url"]
    assert states(cluster.wait(is_up_to_date)) == ("UpToDate", "Loaded", "Loaded")

    cluster.patch(uri=NEW)
    cluster.controller.wait_until_loading(NEW)
    status = cluster.status()
    assert conditions(status) == {
        "IngressReady": "True",
        "LatestDeploymentReady": "Unknown",
        "PredictorConfigurationReady": "Unknown",
        "PredictorReady": "Unknown",
        "PredictorRouteReady": "True",
        "Ready": "Unknown",
        "RoutesReady": "True",
        "Stopped": "False",
    }
    assert states(status) == ("InProgress", "Loaded", "Loading")
    part = status["components"]["predictor"]
    assert (part["latestCreatedRevision"], part["latestReadyRevision"]) == (
        "tuned-predictor-00002",
        "tuned-predictor-00001",
    )
    assert part["traffic"] == [{"latestRevision": True, "percent": 100, "revisionName": "tuned-predictor-00001"}]
    assert send(f"{status['url']}/v1/models/tuned:predict", {"instances": [1]})[1]["uri"] == OLD

    cluster.controller.release(NEW)
    part = cluster.wait(serves("tuned-predictor-00002"))["components"]["predictor"]
    assert part["latestRolledoutRevision"] == "tuned-predictor-00002"
    assert part["previousRolledoutRevision"] == "tuned-predictor-00001"
    assert cluster.controller.history("tuned") == [{OLD: 100}, {NEW: 100}]
    assert send(f"{status['url']}/v1/models/tuned:predict", {"instances": [1]})[1]["uri"] == NEW


def test_the_status_of_the_old_revision_stays_until_the_controller_sees_the_change(cluster):
    """After a change Ready is True for the old model, with the old observedGeneration."""
    cluster.create()
    before = cluster.wait(is_up_to_date)
    with cluster.controller.paused():
        assert cluster.patch(uri=NEW)["status"] == before
        assert before["observedGeneration"] == 1
    assert cluster.wait(serves("tuned-predictor-00002"))["observedGeneration"] == 2


def test_the_traffic_moves_after_the_revision_is_ready(cluster):
    """The new revision is the latest ready one before it has the traffic."""
    cluster.create()
    version = cluster.wait(is_up_to_date) and cluster.get()["metadata"]["resourceVersion"]
    cluster.patch(uri=NEW)
    seen = []
    path = f"/apis/serving.kserve.io/v1beta1/namespaces/{cluster.namespace}/inferenceservices"
    for event in cluster.client.watch_events(path, seconds=30, resourceVersion=version):
        status = event["object"]["status"]
        part = status["components"]["predictor"]
        revisions = [part[name][-1] for name in ("latestCreatedRevision", "latestReadyRevision")]
        entry = (*revisions, part["traffic"][0]["revisionName"][-1], conditions(status)["Ready"])
        if not seen or seen[-1] != entry:
            seen.append(entry)
        if entry == ("2", "2", "2", "True"):
            break
    assert seen == [
        ("1", "1", "1", "True"),
        ("1", "1", "1", "Unknown"),
        ("2", "1", "1", "Unknown"),
        ("2", "2", "1", "Unknown"),
        ("2", "2", "2", "True"),
    ]


def test_a_canary_gets_its_percentage_and_becomes_the_revision_of_all(cluster):
    """A canary gets its part of the traffic; without a percentage it gets all, without another revision."""
    cluster.create()
    url = cluster.wait(is_up_to_date)["url"]
    cluster.patch(uri=NEW, canaryTrafficPercent=10)
    status = cluster.wait(serves("tuned-predictor-00002"))
    latest, previous = status["components"]["predictor"]["traffic"]
    assert latest == {"latestRevision": True, "percent": 10, "revisionName": "tuned-predictor-00002"}
    assert (previous["percent"], previous["tag"], previous["revisionName"]) == (90, "prev", "tuned-predictor-00001")
    assert status["components"]["predictor"]["latestRolledoutRevision"] == "tuned-predictor-00001"
    body = {"model": "tuned", "messages": [{"role": "user", "content": "Hello"}]}
    uris = [send(f"{url}/openai/v1/chat/completions", body)[1]["uri"] for _ in range(100)]
    assert uris == [NEW] * 10 + [OLD] * 90
    assert send(f"{previous['url']}/openai/v1/chat/completions", body)[1]["uri"] == OLD

    cluster.patch(canaryTrafficPercent=None)
    cluster.controller.wait_until_served("tuned", {NEW: 100})
    part = cluster.wait(serves("tuned-predictor-00002"))["components"]["predictor"]
    assert part["latestRolledoutRevision"] == "tuned-predictor-00002"
    assert cluster.controller.history("tuned") == [{OLD: 100}, {NEW: 10, OLD: 90}, {NEW: 100}]
    assert cluster.controller.rollouts("tuned") == [OLD, NEW]


def test_a_percentage_of_zero_brings_the_revision_before_back(cluster):
    """With canaryTrafficPercent 0, a revision that is rolled out loses all of its traffic."""
    cluster.create()
    cluster.wait(is_up_to_date)
    cluster.patch(uri=NEW)
    cluster.wait(serves("tuned-predictor-00002"))
    cluster.patch(canaryTrafficPercent=0)
    cluster.controller.wait_until_served("tuned", {OLD: 100})
    assert cluster.controller.rollouts("tuned") == [OLD, NEW]


def test_a_failed_revision_gets_no_traffic(cluster):
    """A revision that crashes makes Ready False; the revision before serves, also after a rollback."""
    cluster.controller.set_load_result(NEW, "fails")
    cluster.create()
    cluster.wait(is_up_to_date)
    cluster.patch(uri=NEW, canaryTrafficPercent=10)
    status = cluster.wait(lambda status: conditions(status).get("Ready") == "False")
    ready = next(item for item in status["conditions"] if item["type"] == "Ready")
    assert ready["reason"] == "RevisionFailed"
    assert ready["message"].startswith('Revision "tuned-predictor-00002" failed with message: Container failed with: ')
    assert conditions(status)["RoutesReady"] == "True"
    assert states(status) == ("BlockedByFailedLoad", "Loaded", "FailedToLoad")
    assert status["modelStatus"]["lastFailureInfo"]["reason"] == "ModelLoadFailed"

    cluster.patch(uri=OLD, canaryTrafficPercent=None)
    status = cluster.wait(serves("tuned-predictor-00003"))
    assert states(status) == ("UpToDate", "Loaded", "Loaded")
    assert "lastFailureInfo" in status["modelStatus"]  # KServe does not remove it
    assert cluster.controller.history("tuned") == [{OLD: 100}]


def test_a_hanging_revision_fails_at_its_deadline(cluster):
    """A revision that never becomes ready, or that cannot download, is Unknown until its progress deadline."""
    cluster.create()
    cluster.wait(is_up_to_date)
    for uri, result in ((NEW, "hangs"), (NEWEST, "download_fails")):
        cluster.controller.set_load_result(uri, result)
        cluster.patch(uri=uri)
        status = cluster.wait(lambda status: states(status)[2] == "Loading" and not is_ready(status))
        assert conditions(status)["Ready"] == "Unknown"
        cluster.controller.expire(uri)
        status = cluster.wait(lambda status: conditions(status)["Ready"] == "False")
        assert states(status) == ("BlockedByFailedLoad", "Loaded", "FailedToLoad")
    assert cluster.controller.history("tuned") == [{OLD: 100}]


def test_an_abandoned_revision_can_still_get_the_traffic(cluster):
    """A revision that becomes ready while a newer one loads gets the traffic, as with Knative."""
    cluster.controller.hold(NEW)
    cluster.create()
    cluster.wait(is_up_to_date)
    cluster.patch(uri=NEW)
    cluster.controller.wait_until_loading(NEW)
    cluster.controller.hold(OLD)
    cluster.patch(uri=OLD)
    cluster.controller.wait_until_loading(OLD)
    cluster.controller.release(NEW)
    cluster.controller.wait_until_served("tuned", {NEW: 100})
    cluster.controller.release(OLD)
    cluster.controller.wait_until_served("tuned", {OLD: 100})
    cluster.wait(serves("tuned-predictor-00003"))


def test_a_new_annotation_is_a_new_revision(cluster):
    """Annotations are part of the pod template, so one on the service makes the model load again."""
    cluster.create()
    cluster.wait(is_up_to_date)
    cluster.client.patch(ISVC, cluster.namespace, "tuned", {"metadata": {"annotations": {"example.org/run": "1"}}})
    status = cluster.wait(serves("tuned-predictor-00002"))
    assert cluster.get()["metadata"]["generation"] == 1
    assert status["observedGeneration"] == 2  # of the Knative Service
    assert cluster.controller.rollouts("tuned") == [OLD, OLD]


# -- RawDeployment -------------------------------------------------------------------------------------------------


def test_a_deployment_serves_the_old_model_until_the_new_one_is_ready(cluster):
    """While new pods load, Ready is False, but the old model serves."""
    cluster.controller.hold(NEW)
    cluster.create(raw=True)
    first = cluster.wait(is_up_to_date)
    assert first["deploymentMode"] == "Standard"
    assert list(first["components"]["predictor"]) == ["url"]
    cluster.patch(uri=NEW)
    cluster.controller.wait_until_loading(NEW)
    status = cluster.status()
    assert conditions(status) == {
        "IngressReady": "False",
        "PredictorReady": "Unknown",
        "Ready": "False",
        "Stopped": "False",
    }
    assert states(status) == ("InProgress", "Loaded", "Loading")
    assert status["observedGeneration"] == 2
    deployment = cluster.get("Deployment", "-predictor")["status"]
    assert [item["status"] for item in deployment["conditions"]] == ["True", "True"]
    assert (deployment["updatedReplicas"], deployment["availableReplicas"], deployment["replicas"]) == (1, 1, 2)
    assert send(f"{status['url']}/v1/models/tuned:predict", {"instances": [1]})[1]["uri"] == OLD

    cluster.controller.release(NEW)
    status = cluster.wait(is_up_to_date)
    assert cluster.controller.history("tuned") == [{OLD: 100}, {NEW: 100}]
    assert send(f"{status['url']}/v1/models/tuned:predict", {"instances": [1]})[1]["uri"] == NEW


def test_a_deployment_is_ready_for_the_old_model_until_the_change_is_seen(cluster):
    """After a change the whole status is that of the old model, except for the generation of the service."""
    cluster.create(raw=True)
    before = cluster.wait(is_up_to_date)
    with cluster.controller.paused():
        changed = cluster.patch(uri=NEW)
        assert changed["status"] == before
        assert changed["metadata"]["generation"] == 2
    cluster.controller.wait_until_served("tuned", {NEW: 100})


def test_the_generation_of_a_deployment_is_not_that_of_the_service(cluster):
    """A change that does not concern the pods raises only the generation of the service."""
    cluster.create(raw=True)
    cluster.wait(is_up_to_date)
    assert cluster.patch(canaryTrafficPercent=10)["metadata"]["generation"] == 2
    cluster.patch(uri=NEW)
    cluster.controller.wait_until_served("tuned", {NEW: 100})
    assert cluster.wait(is_up_to_date)["observedGeneration"] == 2
    assert cluster.get()["metadata"]["generation"] == 3


def test_kserve_does_not_see_that_the_pods_of_a_deployment_crash(cluster):
    """A crash does not change the Deployment, so the status stays InProgress until the progress deadline."""
    cluster.controller.set_load_result(NEW, "fails")
    cluster.create(raw=True)
    cluster.wait(is_up_to_date)
    cluster.patch(uri=NEW)
    status = cluster.wait(lambda status: states(status)[2] == "Loading")
    assert conditions(status)["PredictorReady"] == "Unknown"
    cluster.controller.expire(NEW)
    status = cluster.wait(lambda status: conditions(status)["PredictorReady"] == "False")
    assert states(status) == ("BlockedByFailedLoad", "Loaded", "FailedToLoad")
    cluster.patch(uri=OLD)
    cluster.wait(is_up_to_date)
    assert cluster.controller.history("tuned") == [{OLD: 100}]


def test_a_model_that_answers_with_errors_is_ready(cluster):
    """A model with the result `errors` becomes ready, and answers with 500; the next one answers again."""
    cluster.controller.set_load_result(NEW, "errors")
    cluster.create(raw=True)
    cluster.wait(is_up_to_date)
    cluster.patch(uri=NEW)
    cluster.controller.wait_until_served("tuned", {NEW: 100})
    url = cluster.wait(is_up_to_date)["url"]
    body = {"model": "tuned", "prompt": "Hello"}
    assert send(f"{url}/openai/v1/completions", body)[0] == 500
    cluster.patch(uri=OLD)
    cluster.controller.wait_until_served("tuned", {OLD: 100})
    assert send(f"{url}/openai/v1/completions", body)[1]["choices"][0]["text"] == f"answer of {OLD}"
    assert [(request.uri, request.code) for request in cluster.controller.requests("tuned")] == [(NEW, 500), (OLD, 200)]


# -- LLMInferenceService -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", ["fails", "hangs"])
def test_an_llm_service_stays_ready_with_the_old_model(cluster, result):
    """Ready is True and observedGeneration is new, while the new model never becomes ready."""
    cluster.create_llm()
    cluster.wait(is_ready, LLM)
    cluster.controller.set_load_result("hf://org/other", result)
    cluster.patch(LLM, uri="hf://org/other")
    status = cluster.wait(lambda status: status.get("observedGeneration") == 2, LLM)
    assert set(conditions(status).values()) == {"True"}
    assert cluster.controller.history("tuned", LLM) == [{BASE: 100}]
    assert status["url"].endswith(f"/{cluster.namespace}/tuned")
    body = {"model": "base", "prompt": "Hello"}
    assert send(f"{status['url']}/v1/completions", body)[1]["uri"] == BASE
    deployment = cluster.client.wait_for(
        "Deployment",
        cluster.namespace,
        "tuned-kserve",
        lambda item: item["status"]["observedGeneration"] == item["metadata"]["generation"] == 2,
    )
    assert deployment["status"]["unavailableReplicas"] == 1
    assert deployment["spec"]["template"]["spec"]["initContainers"][0]["args"][0] == "hf://org/other"


def test_an_llm_service_serves_its_adapters(cluster):
    """A new adapter is a new rollout, and requests can name it when it is ready."""
    cluster.create_llm()
    url = cluster.wait(is_ready, LLM)["url"]
    assert [card["id"] for card in send(f"{url}/v1/models")[1]["data"]] == ["base"]
    body = {"model": "tuned", "messages": [{"role": "user", "content": "Hello"}]}
    assert send(f"{url}/v1/chat/completions", body)[0] == 404
    cluster.patch(LLM, lora={"adapters": [{"name": "tuned", "uri": NEW}]})
    cluster.controller.wait_until_served("tuned", {f"{BASE}+{NEW}": 100}, LLM)
    assert [card["id"] for card in send(f"{url}/v1/models")[1]["data"]] == ["base", "tuned"]
    assert send(f"{url}/v1/chat/completions", body)[1]["uri"] == NEW


def test_an_llm_service_ignores_adapters_as_the_shipped_templates_do(plane, client, cluster):
    """A new adapter changes nothing but observedGeneration if the controller has `adapters=False`."""
    namespace = f"{cluster.namespace}-ignored"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with KServeController(plane.kubeconfig, namespace, adapters=False) as controller:
        other = Cluster(client, namespace, controller)
        other.create_llm()
        other.wait(is_ready, LLM)
        other.patch(LLM, lora={"adapters": [{"name": "tuned", "uri": NEW}]})
        status = other.wait(lambda status: status.get("observedGeneration") == 2, LLM)
        assert is_ready(status)
        assert controller.rollouts("tuned", LLM) == [BASE]


def test_a_deleted_service_is_a_new_one_when_it_is_created_again(cluster):
    """A service with the name of a deleted one starts with its first revision."""
    cluster.create()
    cluster.wait(is_up_to_date)
    cluster.patch(uri=NEW)
    cluster.wait(serves("tuned-predictor-00002"))
    cluster.client.delete(ISVC, cluster.namespace, "tuned")
    cluster.client.wait_until_deleted(ISVC, cluster.namespace, "tuned")
    cluster.create()
    cluster.wait(serves("tuned-predictor-00001"))
