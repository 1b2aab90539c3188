"""Defaults and checks of the API server and the JobSet webhooks.

They apply to Pods, Jobs, claims, Services, Events and JobSets.
Source: Kubernetes 1.36 `pkg/apis/{core,batch}/v1/defaults.go`, `plugin/pkg/admission/{serviceaccount,storage}`,
JobSet 0.12 `pkg/webhooks/{jobset,pod}_webhook.go`. The projected token volume of every pod is not implemented.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from trainjob.errors import ClusterError
from trainjob_local.apiserver import Operation, Reader, Registry, Stage, StatusError
from trainjob_local.controllers import jobset_rules
from trainjob_local.controllers.jobset_children import LABEL_PREFIX
from trainjob_local.controllers.resource_requirements import canonical_requirements
from trainjob_local.controllers.volumes import PROTECTION_FINALIZER, STORAGE_CLASS
from trainjob_local.objects import Json

__all__ = ["register_defaults"]

_POD = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_POD_ONLY = {"enableServiceLinks": True, "priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
_SERVICE = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
}
_EVENT: Json = {"firstTimestamp": None, "lastTimestamp": None, "eventTime": None, "source": {}}
_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for state in ("not-ready", "unreachable")
]
_JOB = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}


def register_defaults(registry: Registry) -> None:
    """Register these rules with a registry."""
    for resource, rule in (
        ("pods", _default_pod),
        ("jobs", _default_job),
        ("persistentvolumeclaims", _default_claim),
        ("services", _default_service),
        ("events", _default_event),
        ("jobsets", _default_jobset),
    ):
        registry.add_admission(resource, rule)
    registry.add_admission("pods", _check_service_account, stage=Stage.VALIDATING)
    registry.add_admission("jobsets", _check_jobset, stage=Stage.VALIDATING)


def _default_pod(operation: Operation, new: Json, _old: Json | None, _reader: Reader) -> Json:
    if operation is not Operation.CREATE:
        return new
    spec = {**_POD_ONLY, **_default_pod_spec(new.get("spec") or {}, "Pod")}
    account = spec.get("serviceAccountName") or "default"
    spec |= {"serviceAccountName": account, "serviceAccount": account}
    spec["tolerations"] = [*(spec.get("tolerations") or []), *_TOLERATIONS]
    for container in _containers(spec):
        _default_requests(container)
    metadata = new["metadata"]
    if f"{LABEL_PREFIX}jobset-name" in (metadata.get("annotations") or {}):  # the JobSet webhook for pods
        labels = {**(metadata.get("labels") or {}), f"{LABEL_PREFIX}priority": str(spec["priority"])}
        metadata = {**metadata, "labels": labels}
    return {**new, "metadata": metadata, "spec": spec}


def _default_pod_spec(requested: Json, kind: str) -> Json:
    """Return a pod spec, of a pod or a template, with defaults.

    Args:
        requested: the pod spec of the request; it is not changed.
        kind: kind of the object, for the error message about a wrong quantity.
    """
    spec = {**deepcopy(_POD), **deepcopy(requested)}
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in _containers(spec):
        for key, value in _CONTAINER.items():
            container.setdefault(key, value)
        container["resources"] = _canonical_resources(container.get("resources") or {}, kind)
        image = str(container.get("image", ""))
        latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        for variable in container.get("env") or []:
            if field := (variable.get("valueFrom") or {}).get("fieldRef"):
                field.setdefault("apiVersion", "v1")
    return spec


def _canonical_resources(resources: Json, kind: str) -> Json:
    try:
        return canonical_requirements(resources)
    except ValueError as error:
        wrong = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise StatusError(
            400, "BadRequest", f'{kind} in version "v1" cannot be handled as a {kind}: {wrong}'
        ) from error


def _containers(spec: Json) -> Iterator[Json]:
    yield from spec.get("initContainers") or []
    yield from spec.get("containers") or []


def _default_requests(container: Json) -> None:
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _default_job(operation: Operation, new: Json, _old: Json | None, _reader: Reader) -> Json:
    spec = {**_JOB, **(new.get("spec") or {})}
    if operation is not Operation.CREATE or "template" not in spec:
        return new
    if "parallelism" not in spec and "completions" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    template = spec["template"]
    spec["template"] = {**template, "spec": _default_template_pod_spec(template.get("spec") or {})}
    return {**new, "spec": spec}


def _default_template_pod_spec(requested: Json) -> Json:
    spec = _default_pod_spec(requested, "Job")
    if "restartPolicy" not in requested:
        del spec["restartPolicy"]  # no default: a Job must specify it
    return spec


def _default_claim(operation: Operation, new: Json, _old: Json | None, _reader: Reader) -> Json:
    if operation is not Operation.CREATE:
        return new
    metadata = new["metadata"]
    finalizers = [
        *(one for one in metadata.get("finalizers") or [] if one != PROTECTION_FINALIZER),
        PROTECTION_FINALIZER,
    ]
    spec = {"storageClassName": STORAGE_CLASS, "volumeMode": "Filesystem", **(new.get("spec") or {})}
    if spec.get("resources"):
        spec["resources"] = _canonical_resources(spec["resources"], "PersistentVolumeClaim")
    return {**new, "metadata": {**metadata, "finalizers": finalizers}, "spec": spec}


def _default_service(operation: Operation, new: Json, _old: Json | None, _reader: Reader) -> Json:
    return {**new, "spec": {**_SERVICE, **(new.get("spec") or {})}} if operation is Operation.CREATE else new


def _default_event(_operation: Operation, new: Json, _old: Json | None, _reader: Reader) -> Json:
    """Return the event with all structs and times; Go writes them even if empty or null."""
    return {**_EVENT, **new}


def _default_jobset(operation: Operation, new: Json, _old: Json | None, _reader: Reader) -> Json:
    """Return a new JobSet with defaults; return a changed one as it is.

    The webhook applies to creates only. So a JobSet of a runtime that omits a default cannot be applied a second time.
    """
    return jobset_rules.with_defaults(new) if operation is Operation.CREATE else new


def _check_service_account(operation: Operation, new: Json, _old: Json | None, reader: Reader) -> Json:
    if operation is Operation.CREATE:
        meta, account = new["metadata"], new["spec"]["serviceAccountName"]
        try:
            reader.get("serviceaccounts", account, meta["namespace"])
        except ClusterError as error:
            why = (
                f'error looking up service account {meta["namespace"]}/{account}: serviceaccount "{account}" not found'
            )
            name = meta.get("generateName") or meta["name"]  # kube-apiserver checks before it generates the name
            raise StatusError(403, "Forbidden", f'pods "{name}" is forbidden: {why}') from error
    return new


def _check_jobset(operation: Operation, new: Json, old: Json | None, reader: Reader) -> Json:
    if operation is Operation.DELETE:
        return new
    meta = new["metadata"]
    named = f'JobSet.jobset.x-k8s.io "{meta["name"]}" is invalid: '
    if old is not None and new["spec"].get("volumeClaimPolicies") != old["spec"].get("volumeClaimPolicies"):
        raise StatusError(422, "Invalid", f"{named}spec.volumeClaimPolicies: Invalid value: Value is immutable")
    if problem := jobset_rules.schema_problem(new):
        raise StatusError(422, "Invalid", named + problem)

    def claim(name: str) -> Json | None:
        try:
            return reader.get("persistentvolumeclaims", name, meta["namespace"])
        except ClusterError:
            return None

    problems = jobset_rules.webhook_problems(new, claim) if old is None else []
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise StatusError(403, "Forbidden", f'admission webhook "vjobset.kb.io" denied the request: {named}{text}')
    return new
