"""Promotions on a real API server with KServe's definitions, and a controller that sets the status as KServe does.

The controller decides nothing by time: a test says which model can be loaded.
"""

from __future__ import annotations

import itertools
import signal
from dataclasses import replace

import pytest
import yaml

from control_plane import ControlPlane
from tests.support.code_blocks import ALL_BLOCKS
from tests.support.crash_points import kill_parameters
from tests.support.kserve_controller import KServeController
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from tests.support.promotions import ALIAS_POINTS, PLAIN_POINTS, ROLLBACK_POINTS, SERVED, Promoter
from tests.support.registry_server import RegistryServer
from trainjob.programs.export.registration import Registration, RegistryEntry

A, B, C = (f"s3://models/tickets/{name}" for name in "abc")
ISVC, LLM = "InferenceService", "LLMInferenceService"
NAMESPACES = itertools.count()
FORMS = ("knative", "deployment", "llm")
_MODE = "serving.kserve.io/deploymentMode"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason(kserve=True):
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("kserve") / "state", kserve=True) as running:
        yield running


class Service:
    """The service `tickets` in one of its three forms, which serves the model A at first."""

    def __init__(self, promoter, controller, form):
        self.promoter, self.controller, self.form = promoter, controller, form
        self.kind = LLM if form == "llm" else ISVC
        mode = {"deployment": "RawDeployment", "knative": "Knative"}.get(form)
        annotations = {_MODE: mode, "serving.kserve.io/enable-tag-routing": "true"} if mode else {}
        if form == "llm":
            spec = {"model": {"uri": A, "name": "tickets"}, "router": {"route": {}, "gateway": {}}}
        else:
            spec = {"predictor": {"model": {"modelFormat": {"name": "huggingface"}, "storageUri": A}}}
        version = "serving.kserve.io/v1alpha1" if form == "llm" else "serving.kserve.io/v1beta1"
        meta = {"name": "tickets", "annotations": annotations}
        promoter.client.create(
            {"apiVersion": version, "kind": self.kind, "metadata": meta, "spec": spec}, promoter.namespace
        )
        controller.wait_until_served("tickets", {A: 100}, self.kind)

    @property
    def model(self):
        """The model in the service's spec."""
        spec = self.promoter.client.get(self.kind, self.promoter.namespace, "tickets")["spec"]
        return spec["model"]["uri"] if self.form == "llm" else spec["predictor"]["model"]["storageUri"]

    @property
    def served(self):
        """The share of the requests of each model."""
        return self.controller.history("tickets", self.kind)[-1]

    def promote(self, key, model, **more):
        return self.promoter.result("promote", key, model=model, **more)

    def try_to_promote(self, key, model, **more):
        return self.promoter.run("promote", key, model=model, **more)

    def states(self):
        return self.promoter.states(self.kind, "tickets")


@pytest.fixture
def create_service(plane, tmp_path):
    """Return a function that creates a service in a namespace of its own."""
    client = Client.from_kubeconfig(str(plane.kubeconfig))
    namespace = f"promotions-{next(NAMESPACES)}"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with KServeController(plane.kubeconfig, namespace) as controller:

        def create(form, **more):
            options = {"kind": LLM if form == "llm" else ISVC, "service": "tickets", "seconds": 60, **more}
            return Service(Promoter(client, namespace, tmp_path / "account", options).prepare(), controller, form)

        yield create
    client.close()


@pytest.fixture(params=FORMS)
def service(request, create_service):
    return create_service(request.param)


def test_a_better_model_is_served_and_undone(service):
    assert service.promote("monday", B)["before"] == A
    assert service.served == {B: 100}
    again = service.promote("monday", B)
    assert (again["promoted"], again["model"]) == (True, B)
    assert service.controller.rollouts("tickets", service.kind) == [A, B]  # never two promotions
    undone = service.promoter.result("rollback", "undo", run="run-of-monday")
    assert (undone["rolled_back"], undone["model"]) == (True, A)
    assert service.served == {A: 100}
    assert service.states() == [("monday", "rolled back")]


@pytest.mark.parametrize("result", ["fails", "hangs", "errors", "download_fails"])
def test_a_model_that_cannot_be_served_is_rolled_back(service, result):
    service.controller.set_load_result(B, result)
    code, output = service.try_to_promote("monday", B, seconds=3)
    assert code == 1, output
    assert f"{B} was not promoted" in output
    assert output.rstrip().endswith(f"-> {A} is served")
    assert service.model == A
    assert service.states() == [("monday", "rolled back")]
    # The old model, or a new copy of it, answers all requests, and the next model can be promoted.
    assert service.served == {A: 100}
    assert service.promote("tuesday", C)["before"] == A
    assert service.served == {C: 100}


def test_a_model_that_loads_for_a_long_time_is_waited_for(service):
    service.controller.hold(B)
    promoting = service.promoter.start("promote", "monday", model=B)
    service.controller.wait_until_loading(B)
    service.controller.release(B)
    output, _ = promoting.communicate()
    assert promoting.returncode == 0, output
    assert "promote: waiting for " in output
    assert service.served == {B: 100}


def test_a_status_of_the_model_before_is_not_taken_for_the_new_one(service):
    """KServe acts later: till then, the whole status is that of the old model, and is Ready."""
    with service.controller.paused():
        promoting = service.promoter.start("promote", "monday", model=B)
        wait_until(lambda: service.model == B)
        waiting = "a new revision" if service.form == "knative" else "new pods in its Deployment"
        line = next(line for line in promoting.stdout if "waiting for" in line)
        assert line == f"promote: waiting for {waiting}\n"
        assert service.states() == [("monday", "rolling out")]
    output, _ = promoting.communicate()
    assert promoting.returncode == 0, output
    assert service.served == {B: 100}


def test_the_same_model_again_changes_nothing(service):
    assert service.promote("monday", A)["promoted"] is True
    assert service.controller.rollouts("tickets", service.kind) == [A]


@pytest.mark.parametrize("point", kill_parameters(PLAIN_POINTS, quick=[SERVED]))
def test_a_killed_promotion_is_completed_or_undone(service, point):
    code, output = service.try_to_promote("monday", B, killed_at=point)
    assert code == -signal.SIGKILL, output
    assert service.promote("monday", B)["promoted"] is True
    assert service.served == {B: 100}
    assert service.controller.rollouts("tickets", service.kind) == [A, B]  # never two promotions
    code, output = service.try_to_promote("tuesday", C, killed_at=point)
    assert code == -signal.SIGKILL, output
    service.promoter.result("rollback", "undo", run="run-of-tuesday")
    assert service.model == B
    service.controller.wait_until_served("tickets", {B: 100}, service.kind)


@pytest.mark.parametrize("point", kill_parameters(ROLLBACK_POINTS, quick=[ROLLBACK_POINTS[1]]))
def test_a_killed_rollback_is_completed(service, point):
    service.promote("monday", B)
    code, output = service.promoter.run("rollback", "undo", run="run-of-monday", killed_at=point)
    assert code == -signal.SIGKILL, output
    assert service.promoter.result("rollback", "undo", run="run-of-monday")["model"] == A
    assert service.served == {A: 100}


@pytest.mark.parametrize("point", kill_parameters(ALIAS_POINTS, quick=[ALIAS_POINTS[1]]))
def test_the_alias_is_never_that_of_another_model(create_service, point):
    with RegistryServer() as registry:
        for uri, letter in ((A, "a"), (B, "b")):
            Registration(RegistryEntry(registry.url, "tickets", uri), letter * 64).create({})
        service = create_service("knative", registry={"server": registry.url, "model": "tickets"})

        def alias():
            [model] = registry.objects["registered_model"]
            return model.get("customProperties", {}).get("champion", {}).get("string_value", "")

        service.promote("sunday", A)
        code, output = service.try_to_promote("monday", B, killed_at=point)
        assert code == -signal.SIGKILL, output
        service.promote("monday", B)
        assert (service.served, alias()) == ({B: 100}, "b" * 12)
        service.promoter.result("rollback", "undo", run="run-of-monday")
        assert (service.served, alias()) == ({A: 100}, "a" * 12)


def test_a_canary_gets_its_share_and_then_all(create_service):
    service = create_service("knative")
    service.promote("monday", B, canary_percent=10)
    assert service.served == {A: 90, B: 10}
    service.promote("tuesday", B)
    assert service.served == {B: 100}
    assert service.controller.rollouts("tickets") == [A, B]
    # The smoke request went to the new model, although it had one of ten requests.
    assert {request.uri for request in service.controller.requests("tickets")} == {B}


def test_a_canary_is_undone_at_once_and_with_its_completion(create_service):
    service = create_service("knative")
    service.promote("canary", B, canary_percent=10, run="monday")
    service.controller.hold(A)  # the copy of the old model takes its time
    undoing = service.promoter.start("rollback", "undo", run="monday")
    service.controller.wait_until_served("tickets", {A: 100})
    service.controller.release(A)
    output, _ = undoing.communicate()
    assert undoing.returncode == 0, output
    assert (
        service.promoter.client.get(ISVC, service.promoter.namespace, "tickets")["spec"]["predictor"].get(
            "canaryTrafficPercent"
        )
        is None
    )
    for key, more in (("canary", {"canary_percent": 10}), ("all", {})):
        service.promote(key, C, run="tuesday", **more)
    assert service.served == {C: 100}
    assert service.promoter.result("rollback", "undo-both", run="tuesday")["model"] == A
    assert service.served == {A: 100}


def test_a_canary_without_knative_is_refused_before_anything_changes(create_service):
    service = create_service("deployment")
    code, output = service.try_to_promote("monday", B, canary_percent=10)
    assert code == 1
    assert "InferenceService tickets has no Knative, so KServe ignores a canary percentage" in output
    assert service.model == A


def test_an_adapter_is_added_and_removed(create_service):
    service = create_service("llm", adapter="billing")

    def adapters():
        found = service.promoter.client.get(LLM, service.promoter.namespace, "tickets")
        return found["spec"]["model"].get("lora")

    assert service.promote("monday", B)["before"] == ""
    assert adapters() == {"adapters": [{"name": "billing", "uri": B}]}
    service.promote("tuesday", C)
    assert adapters() == {"adapters": [{"name": "billing", "uri": C}]}
    service.promoter.result("rollback", "undo", run="run-of-tuesday")
    assert adapters() == {"adapters": [{"name": "billing", "uri": B}]}
    assert service.promoter.result("rollback", "undo-first", run="run-of-monday")["model"] == ""
    assert not adapters()["adapters"]
    assert service.model == A


def test_a_model_that_a_person_has_chosen_stays(service):
    service.promote("monday", B)
    spec = {"model": {"uri": C}} if service.form == "llm" else {"predictor": {"model": {"storageUri": C}}}
    service.promoter.client.patch(service.kind, service.promoter.namespace, "tickets", {"spec": spec})
    undone = service.promoter.result("rollback", "undo", run="run-of-monday")
    assert (undone["rolled_back"], undone["reason"]) == (False, "somebody else has replaced the model")
    assert service.model == C


def test_the_service_of_the_page(create_service):
    [block] = [block for block in ALL_BLOCKS if block.title == "service.yaml"]
    service = create_service("knative")
    namespace, controller = service.promoter.namespace, service.controller
    service.promoter.client.delete(ISVC, namespace, "tickets")
    created = service.promoter.client.create(yaml.safe_load(block.text), namespace)
    first = created["spec"]["predictor"]["model"]["storageUri"]
    controller.wait_until_served("tickets", {first: 100})
    assert service.promote("monday", B)["before"] == first
    [request] = controller.requests("tickets")
    assert (request.path, request.uri) == ("/v1/models/tickets", B)


def test_a_service_that_does_not_exist(create_service):
    service = create_service("knative")
    other = replace(service.promoter, options={**service.promoter.options, "service": "other"})
    code, output = other.run("promote", "monday", model=B)
    assert code == 1
    assert "there is no InferenceService other\n  -> create it with its first model" in output


def test_two_tries_at_once_are_one_promotion(service):
    tries = [service.promoter.start("promote", "monday", model=B) for _ in range(3)]
    for each in tries:
        output, _ = each.communicate()
        assert each.returncode == 0, output
    assert service.controller.rollouts("tickets", service.kind) == [A, B]
    assert service.states() == [("monday", "promoted")]


def test_a_rollback_ends_a_promotion_that_is_under_way(service):
    service.controller.hold(B)
    promoting = service.promoter.start("promote", "monday", model=B)
    service.controller.wait_until_loading(B)
    assert service.promoter.result("rollback", "undo", run="run-of-monday")["model"] == A
    output, _ = promoting.communicate()
    assert '"promoted": false' in output
    assert service.model == A
    assert service.states() == [("monday", "rolled back")]
    service.controller.release(B)
    service.controller.wait_until_served("tickets", {A: 100}, service.kind)
