"""A controller for tests that does KServe's work: it sets the status of services, and it answers their requests.

[kserve_status](kserve_status.py) has the rules. They are those of KServe 0.16, with sources.
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from urllib3.exceptions import HTTPError

from tests.support.kserve_status import (
    SOURCE_ANNOTATION,
    KnativeService,
    Load,
    Model,
    Object,
    Rollout,
    deployment_mode,
    llm_status,
    llm_template,
    model_name_of,
    model_of,
    predictor_template,
    raw_status,
    serverless_status,
    template_text,
    traffic_targets,
)
from tests.support.kubernetes_client import Client, Response, path_of
from tests.support.loopback_server import LoopbackServer

__all__ = ["LOAD_RESULTS", "KServeController", "ServedRequest"]

LOAD_RESULTS = ("ready", "fails", "download_fails", "hangs", "errors")
_KINDS = ("InferenceService", "LLMInferenceService")
_ISVC = "InferenceService"
_Key = tuple[str, str]
_Served = tuple[tuple[int, str, Model], ...]
"""Percentage, tag and model of each target of the traffic; the tag is empty if there is none."""


@dataclass(frozen=True)
class ServedRequest:
    """A request to the URL of a service.

    Attributes:
        path: path of the URL, without the prefix of an LLMInferenceService.
        model: name of the model in the request; empty if the request has none.
        uri: URI of the model that served the request; empty if none did.
        code: HTTP status of the response.
    """

    path: str
    model: str
    uri: str
    code: int


class KServeController:
    """Controller of InferenceServices and LLMInferenceServices in one namespace.

    It runs until its `with` block ends.

        with ControlPlane(tmp_path, kserve=True) as cluster, KServeController(cluster.kubeconfig) as kserve:
            kserve.set_load_result("s3://models/2", "fails")

    Everything that happens is decided by the test: no delay is part of it. For a service with the annotation
    `serving.kserve.io/deploymentMode: RawDeployment`, and for an LLMInferenceService, the controller creates a real
    Deployment and sets its status. Revisions of Knative exist only in the status of the InferenceService.

    Args:
        kubeconfig: file of a user who may change the services, their status, and Deployments.
        namespace: namespace of the services.
        default_mode: `Knative` or `Standard`, for InferenceServices without the annotation. The first is KServe's.
        adapters: whether a changed LoRA adapter changes the pods. The templates that KServe 0.16.0 ships ignore
            adapters: neither pkg/controller/v1alpha1/llmisvc nor config/llmisvcconfig names them. A template of the
            user can pass them to vLLM.
    """

    def __init__(
        self,
        kubeconfig: Path | str,
        namespace: str = "default",
        *,
        default_mode: str = "Knative",
        adapters: bool = True,
    ) -> None:
        self._kubeconfig, self._namespace = str(kubeconfig), namespace
        self._default_mode, self._adapters = default_mode, adapters
        self._changed = threading.Condition()  # protects the attributes up to the empty line
        self._load_results: dict[str, str] = {}
        self._held: set[str] = set()
        self._expired: set[str] = set()
        self._waiting: dict[_Key, list[Model]] = {}
        self._history: dict[_Key, list[dict[str, int]]] = {}
        self._rollouts: dict[_Key, list[str]] = {}
        self._requests: dict[_Key, list[ServedRequest]] = {}
        self._error: BaseException | None = None

        self._reconciling = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[_Key, bool] | None] = queue.SimpleQueue()
        self._services: dict[_Key, _Service] = {}
        self._seen: dict[_Key, str] = {}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, name="kserve-reconcile")]
        self._threads += [threading.Thread(target=self._watch, args=(kind,), name=f"kserve-{kind}") for kind in _KINDS]

    def __enter__(self) -> KServeController:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._queue.put(None)
        for thread in self._threads:
            thread.join()
        for service in self._services.values():
            service.close()
        if error is None and self._error is not None:
            raise self._error

    # -- what the test decides --------------------------------------------------------------------------------------

    def set_load_result(self, uri: str, result: str) -> None:
        """Decide how models of a URI load from now on.

        Args:
            uri: URI of a model or of an adapter.
            result: `ready`, which is the default; `errors`: it becomes ready, and answers requests with 500; `fails`:
                its server crashes; `download_fails`: its storage initializer crashes; `hangs`: it never becomes ready.
        """
        if result not in LOAD_RESULTS:
            raise ValueError(f"{result!r} is not a result of loading; allowed: {', '.join(LOAD_RESULTS)}")
        with self._changed:
            self._load_results[uri] = result
        self.resync()

    def hold(self, uri: str) -> None:
        """Let models of a URI load until `release`."""
        with self._changed:
            self._held.add(uri)

    def release(self, uri: str) -> None:
        """End the loading of the held models of a URI: they become ready, or fail."""
        with self._changed:
            self._held.discard(uri)
        self.resync()

    def expire(self, uri: str) -> None:
        """Let the progress deadline of models of a URI pass; with KServe this takes 10 minutes."""
        with self._changed:
            self._expired.add(uri)
        self.resync()

    def resync(self) -> None:
        """Reconcile all services, also if nothing has changed."""
        for key in list(self._services):
            self._queue.put((key, True))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the controller: changes of services are not observed until the end of the block."""
        with self._reconciling:
            yield

    # -- what the test sees -----------------------------------------------------------------------------------------

    def wait_until_loading(self, uri: str, seconds: float = 60) -> None:
        """Wait until pods load a model of a URI and the status says so; it must be held, or hang."""
        self._wait_for(
            lambda: any(uri in model.uris for models in self._waiting.values() for model in models),
            f"no service loads {uri}",
            seconds,
        )

    def wait_until_served(self, name: str, served: dict[str, int], kind: str = _ISVC, seconds: float = 60) -> None:
        """Wait until a service sends its traffic to these models; see `history`."""
        key = (kind, name)
        self._wait_for(
            lambda: self._history.get(key, [])[-1:] == [served], f"{kind} {name} does not serve {served}", seconds
        )

    def history(self, name: str, kind: str = _ISVC) -> list[dict[str, int]]:
        """Return the traffic of a service over time: percentage by model, oldest first.

        A model is its URI; the URIs of LoRA adapters follow after `+`.
        """
        with self._changed:
            return [dict(entry) for entry in self._history.get((kind, name), [])]

    def rollouts(self, name: str, kind: str = _ISVC) -> list[str]:
        """Return the model of each set of pods that was started, oldest first."""
        with self._changed:
            return list(self._rollouts.get((kind, name), []))

    def requests(self, name: str, kind: str = _ISVC) -> list[ServedRequest]:
        """Return the requests that a service has answered, oldest first."""
        with self._changed:
            return list(self._requests.get((kind, name), []))

    def _wait_for(self, condition: Callable[[], bool], message: str, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or condition(), seconds)
            if self._error is not None:
                raise AssertionError("the controller has failed") from self._error
            assert condition(), f"{message} within {seconds} s; traffic: {self._history}, loading: {self._waiting}"

    # -- reconciliation ---------------------------------------------------------------------------------------------

    def _watch(self, kind: str) -> None:
        """List and watch one kind; resume when the watch ends, and list again after an error."""
        client, path = Client.from_kubeconfig(self._kubeconfig), path_of(kind, self._namespace)
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list(client, kind, path)
                for event in client.watch_events(path, seconds=1, resourceVersion=version, allowWatchBookmarks=True):
                    if event["type"] == "ERROR":  # the version has expired
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._queue.put(((kind, event["object"]["metadata"]["name"]), False))
            except (AssertionError, HTTPError, OSError):  # the API server restarts
                version = ""
                self._stop.wait(0.2)
        client.close()

    def _list(self, client: Client, kind: str, path: str) -> str:
        response = client.request("GET", path)
        assert response.ok, response.message
        names = {item["metadata"]["name"] for item in response.body["items"]}
        for key in {(kind, name) for name in names} | {key for key in list(self._services) if key[0] == kind}:
            self._queue.put((key, False))
        return str(response.body["metadata"]["resourceVersion"])

    def _work(self) -> None:
        client = Client.from_kubeconfig(self._kubeconfig)
        while (entry := self._queue.get()) is not None:
            key, forced = entry
            try:
                with self._reconciling:
                    self._reconcile(client, key, forced)
            except (HTTPError, OSError):
                if not self._stop.wait(0.2):
                    self._queue.put((key, True))
            except BaseException as error:  # noqa: BLE001 - the test gets it
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                break
        client.close()

    def _reconcile(self, client: Client, key: _Key, forced: bool) -> None:
        """Do all steps of one service that are possible now, and write the status after each."""
        item = _find(client, key[0], self._namespace, key[1])
        service = self._services.get(key)
        if item is None or "deletionTimestamp" in item["metadata"] or (service and service.uid != _uid(item)):
            self._forget(key)
            service = None
            if item is None or "deletionTimestamp" in item["metadata"]:
                return
        # KServe reconciles after its own writes, too. They change nothing here, because `_write` repeats itself.
        seen = _fingerprint(item)
        if not forced and self._seen.get(key) == seen:
            return
        self._seen[key] = seen
        if service is None:
            service = self._services[key] = self._create_service(item)
        while item is not None:
            self._publish_traffic(key, service)  # in a cluster too, requests reach new pods before the status says so
            item = self._write(client, item, service)
            if item is None:  # the service has changed or is gone
                self._queue.put((key, True))
                return
            with self._changed:
                self._waiting[key] = service.waiting()
                self._changed.notify_all()
            if not service.step(client, item, self._load):
                return

    def _write(self, client: Client, item: Object, service: _Service) -> Object | None:
        """Write the status until it stays the same, and return the item; None after a conflict."""
        status: Object = {}
        for _ in range(10):
            if (status := service.status(item)) == item.get("status"):
                return item
            version = item["metadata"]["resourceVersion"]
            path = path_of(item["kind"], self._namespace, item["metadata"]["name"], "status")
            # JSON Patch replaces the whole status; a merge patch would keep fields that are gone.
            operations: list[Object] = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/status", "value": status},
            ]
            data = json.dumps(operations).encode()
            response = client.send_raw("PATCH", path, data, "application/json-patch+json")
            if response.code in (404, 409) or (response.code == 422 and "resourceVersion" in response.message):
                return None
            _raise_if_unavailable(response)
            assert response.ok, response.message
            item = response.body
        raise AssertionError(f"the API server does not store the status: {status} is {item.get('status')}")

    def _publish_traffic(self, key: _Key, service: _Service) -> None:
        """Make the traffic of a service known to the test and to its HTTP servers."""
        served = service.served()
        entry: dict[str, int] = {}
        for percent, _, model in served:
            if percent:
                entry[model.label] = entry.get(model.label, 0) + percent
        with self._changed:
            service.routes = served
            history = self._history.setdefault(key, [])
            if entry and (not history or history[-1] != entry):
                history.append(entry)
            self._rollouts[key] = [model.label for model in service.started]
            self._changed.notify_all()

    def _forget(self, key: _Key) -> None:
        if service := self._services.pop(key, None):
            service.close()
        self._seen.pop(key, None)
        with self._changed:
            self._waiting.pop(key, None)

    def _load(self, model: Model) -> tuple[str, bool]:
        """Return how the load of a model goes on now, and whether its deadline has passed."""
        with self._changed:
            expired = bool(self._expired.intersection(model.uris))
            results = {self._load_results.get(uri, "ready") for uri in model.uris}
            if self._held.intersection(model.uris) or "hangs" in results:
                return "waits", expired
        if "download_fails" in results:
            return "download_crashes", expired
        return ("crashes" if "fails" in results else "ready"), expired

    def _create_service(self, item: Object) -> _Service:
        key = (item["kind"], item["metadata"]["name"])
        arguments = (item, lambda service, tag: LoopbackServer(self._handler(key, service, tag)))
        if item["kind"] != _ISVC:
            return _LlmService(*arguments, adapters=self._adapters)
        if deployment_mode(item, self._default_mode) == "Knative":
            return _ServerlessService(*arguments)
        return _RawService(*arguments)

    # -- the servers of the models ----------------------------------------------------------------------------------

    def _handler(self, key: _Key, service: _Service, tag: str) -> type[BaseHTTPRequestHandler]:
        controller = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    self._answer(json.loads(body))
                except ValueError:
                    self._send(400, {"error": "the body is not JSON"})

            def _answer(self, body: Object) -> None:
                self._send(*controller._respond(key, service, tag, self.command, self.path, body))

            def _send(self, code: int, body: Object) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Log nothing."""

        return Handler

    def _respond(
        self, key: _Key, service: _Service, tag: str, method: str, path: str, body: Object
    ) -> tuple[int, Object]:
        """Return the response of the model server, and record the request."""
        with self._changed:
            model, results = service.choose(tag), dict(self._load_results)
        relative = path.removeprefix(service.prefix)
        name = str(body.get("model", ""))
        answer: Object
        if model is None:
            code, answer, uri = 503, {"error": "no healthy upstream"}, ""
        else:
            code, answer, uri = service.answer(model, method, relative, body)
            if code == 200 and results.get(uri) == "errors":
                code, answer = 500, {"error": {"message": "CUDA error: device-side assert triggered", "code": 500}}
        with self._changed:
            self._requests.setdefault(key, []).append(ServedRequest(relative, name, uri, code))
            self._changed.notify_all()
        return code, answer


class _Service:
    """State of one service: its pods, its traffic and its HTTP servers."""

    def __init__(self, item: Object, serve: Callable[[_Service, str], LoopbackServer]) -> None:
        self.uid, self.name, self.namespace = _uid(item), item["metadata"]["name"], item["metadata"]["namespace"]
        self.model_name = model_name_of(item) if item["kind"] != _ISVC else self.name
        self.prefix = ""
        self.routes: _Served = ()
        self.started: list[Model] = []
        self._serve, self._servers = serve, {"": serve(self, "")}
        self._numbers: dict[str, itertools.count[int]] = {}

    def close(self) -> None:
        for server in self._servers.values():
            server.stop()

    def url(self, tag: str = "") -> str:
        """Return the URL of the service, or of one tag of its traffic."""
        if tag not in self._servers:
            self._servers[tag] = self._serve(self, tag)
        return self._servers[tag].url + self.prefix

    def choose(self, tag: str) -> Model | None:
        """Return the model for the next request.

        The first requests, as many as its percentage, go to the latest model, and those to number 100 to the other.
        """
        if tag:
            return next((model for _, one, model in self.routes if one == tag), None)
        percentile = next(self._numbers.setdefault(tag, itertools.count())) % 100 if self.routes else 0
        for percent, _, model in self.routes:
            if percentile < percent:
                return model
            percentile -= percent
        return None

    def answer(self, model: Model, method: str, path: str, body: Object) -> tuple[int, Object, str]:
        """Return code and body as a model server of KServe, and the URI that served."""
        if method == "POST" and path == f"/v1/models/{self.model_name}:predict":
            instances = body.get("instances", [])
            return 200, {"predictions": [f"answer of {model.uri}" for _ in instances], "uri": model.uri}, model.uri
        if method == "GET" and path == "/v1/models":
            return 200, {"models": [self.model_name], "uri": model.uri}, model.uri
        if method == "GET" and path == f"/v1/models/{self.model_name}":
            return 200, {"name": self.model_name, "ready": True, "uri": model.uri}, model.uri
        return _openai(self.model_name, model, method, path.removeprefix("/openai"), body)

    def status(self, item: Object) -> Object:
        raise NotImplementedError

    def step(self, client: Client, item: Object, load: Load) -> bool:
        raise NotImplementedError

    def served(self) -> _Served:
        raise NotImplementedError

    def waiting(self) -> list[Model]:
        raise NotImplementedError


class _ServerlessService(_Service):
    """An InferenceService with Knative."""

    def __init__(self, item: Object, serve: Callable[[_Service, str], LoopbackServer]) -> None:
        super().__init__(item, serve)
        self._knative = KnativeService(f"{self.name}-predictor")

    def status(self, item: Object) -> Object:
        return serverless_status(item, self._knative, self.url())

    def step(self, client: Client, item: Object, load: Load) -> bool:
        predictor = {name: value for name, value in item["spec"]["predictor"].items() if name != "canaryTrafficPercent"}
        template = template_text({"template": predictor_template(item), "predictor": predictor})
        found = self._knative.step(template, traffic_targets(item, self.url), model_of(item), load)
        self.started = [revision.model for revision in self._knative.revisions]
        return found

    def served(self) -> _Served:
        return tuple(
            (target["percent"], target.get("tag", ""), self._knative.find(target["revisionName"]).model)
            for target in self._knative.traffic
        )

    def waiting(self) -> list[Model]:
        return self._knative.waiting


class _DeploymentService(_Service):
    """A service whose pods belong to one Deployment."""

    suffix = ""

    def __init__(self, item: Object, serve: Callable[[_Service, str], LoopbackServer]) -> None:
        super().__init__(item, serve)
        self._rollout = Rollout()
        self._written: Object = {}

    def model(self, item: Object) -> Model:
        return model_of(item)

    def template(self, item: Object) -> Object:
        raise NotImplementedError

    def replicas(self, item: Object) -> int:
        raise NotImplementedError

    def step(self, client: Client, item: Object, load: Load) -> bool:
        template, replicas = self.template(item), self.replicas(item)
        text = template_text(template)
        if (text, replicas) != (self._rollout.template, self._rollout.replicas):
            if text != self._rollout.template:
                self.started.append(self.model(item))
            deployment = self._apply(client, item, template, replicas)
            self._rollout.update(text, self.model(item), replicas, deployment["metadata"]["generation"])
            return True
        changed = self._rollout.step(load)
        status = self._rollout.to_status()
        if changed and status != self._written:
            client.patch("Deployment", self.namespace, self.name + self.suffix, {"status": status}, "status")
            self._written = status
        return changed

    def _apply(self, client: Client, item: Object, template: Object, replicas: int) -> Object:
        """Create or replace the Deployment, and return it."""
        name, labels = self.name + self.suffix, template["metadata"]["labels"]
        owner = {
            "apiVersion": item["apiVersion"],
            "kind": item["kind"],
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        annotations = {
            key: value for key, value in template["metadata"].get("annotations", {}).items() if key == SOURCE_ANNOTATION
        }
        metadata = {"name": name, "labels": labels, "annotations": annotations, "ownerReferences": [owner]}
        selector = {"app": labels["app"]} if "app" in labels else labels
        spec = {"replicas": replicas, "selector": {"matchLabels": selector}, "template": template}
        desired = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        old = client.find("Deployment", self.namespace, name)
        if old is None:
            return client.create(desired, self.namespace)
        response = client.request("PUT", path_of("Deployment", self.namespace, name), desired)
        assert response.ok, response.message
        found: Object = response.body
        return found

    def served(self) -> _Served:
        # With one replica both models serve for a moment, until the old pod has ended; this is left out.
        return ((100, "", self._rollout.serving),) if self._rollout.serving is not None else ()

    def waiting(self) -> list[Model]:
        return self._rollout.waiting


class _RawService(_DeploymentService):
    """An InferenceService in mode Standard, which is also called RawDeployment."""

    suffix = "-predictor"

    def status(self, item: Object) -> Object:
        return raw_status(item, self._rollout, self.url())

    def template(self, item: Object) -> Object:
        return predictor_template(item)

    def replicas(self, item: Object) -> int:
        return int(item["spec"]["predictor"].get("minReplicas", 1))


class _LlmService(_DeploymentService):
    """An LLMInferenceService on single nodes, without prefill."""

    suffix = "-kserve"

    def __init__(self, item: Object, serve: Callable[[_Service, str], LoopbackServer], *, adapters: bool) -> None:
        super().__init__(item, serve)
        self._adapters = adapters
        # config/llmisvcconfig/config-llm-router-route.yaml: path of the route; the gateway removes it.
        self.prefix = f"/{self.namespace}/{self.name}"

    def model(self, item: Object) -> Model:
        return model_of(item, adapters=self._adapters)

    def status(self, item: Object) -> Object:
        return llm_status(item, self._rollout, self.url())

    def template(self, item: Object) -> Object:
        return llm_template(item, self.model(item))

    def replicas(self, item: Object) -> int:
        return int(item["spec"].get("replicas", 1))

    def answer(self, model: Model, method: str, path: str, body: Object) -> tuple[int, Object, str]:
        return _openai(self.model_name, model, method, path, body)


def _openai(name: str, model: Model, method: str, path: str, body: Object) -> tuple[int, Object, str]:
    """Answer a request of OpenAI's API, as vLLM and KServe's huggingfaceserver do."""
    names = {name: model.uri, **dict(model.adapters)}
    if method == "GET" and path == "/v1/models":
        cards = [
            {"id": one, "object": "model", "root": uri, "parent": None if one == name else name, "uri": uri}
            for one, uri in names.items()
        ]
        return 200, {"object": "list", "data": cards, "uri": model.uri}, model.uri
    if method != "POST" or path not in ("/v1/completions", "/v1/chat/completions"):
        return 404, {"detail": "Not Found"}, ""
    requested = str(body.get("model", ""))
    if requested not in names:
        return 404, {"error": {"message": f"The model `{requested}` does not exist.", "type": "NotFoundError"}}, ""
    uri = names[requested]
    chat = path == "/v1/chat/completions"
    if ("messages" if chat else "prompt") not in body:
        return 400, {"error": {"message": "Field required", "type": "BadRequestError"}}, uri
    text = f"answer of {uri}"
    content: Object = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return (
        200,
        {
            "id": "cmpl-1",
            "object": "chat.completion" if chat else "text_completion",
            "created": 0,
            "model": requested,
            "choices": [{"index": 0, "finish_reason": "stop", **content}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            "uri": uri,
        },
        uri,
    )


def _find(client: Client, kind: str, namespace: str, name: str) -> Object | None:
    """Return an object, or None if it does not exist."""
    response = client.request("GET", path_of(kind, namespace, name))
    _raise_if_unavailable(response)
    if response.code == 404:
        return None
    assert response.ok, response.message
    found: Object = response.body
    return found


def _raise_if_unavailable(response: Response) -> None:
    """Raise an error after which the request is repeated, if the API server restarts."""
    if response.code >= 500 or response.code == 429:
        raise OSError(f"{response.code} {response.message}")


def _uid(item: Object) -> str:
    return str(item["metadata"]["uid"])


def _fingerprint(item: Object) -> str:
    """Return what a user has changed: specification, labels and annotations."""
    meta = item["metadata"]
    fields: Sequence[Any] = (meta["uid"], meta["generation"], meta.get("labels"), meta.get("annotations"))
    return json.dumps(fields, sort_keys=True)
