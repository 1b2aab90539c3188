"""The last step of a conversion: the TrainJob and, if needed, a generated TrainingRuntime."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from trainjob.spec.trainer_versions import API_VERSION
from trainjob_migrate.draft import Draft, Part
from trainjob_migrate.hosts import add_name_variable

_MANAGER = "trainjob.dev/migrate"
_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
_FRAMEWORK = "trainer.kubeflow.org/framework"
_QUANTITY_MAPS = ("limits", "requests", "overhead")
_QUANTITIES = ("sizeLimit", "divisor")

_Object = dict[str, Any]


def build_objects(draft: Draft) -> tuple[_Object, _Object | None]:
    """Build the TrainJob and, if the stock runtime is not enough, a TrainingRuntime.

    The TrainingRuntime is to be applied first. It holds everything that is not in `spec.trainer`, so that users find
    these settings in one place.
    """
    for part in _remove_overridden_parts(draft):
        if draft.needs_runtime:
            draft.fields.mark_moved(part.path, f"TrainingRuntime {_target(part)}", part.reason)
        else:
            draft.fields.mark_converted(part.path, f"spec.runtimePatches {_target(part)}", part.reason)
    if not draft.needs_runtime:
        return _write_quantities(_build_trainjob(draft, None, _patches(draft))), None
    draft.add_finding(
        "runtime",
        f"The job needs a TrainingRuntime of its own, {draft.name}.",
        f"Some of its fields are neither part of a TrainJob nor patches that {draft.shape.runtime} accepts."
        if draft.shape.runtime
        else "The Trainer has no stock runtime for such a job.",
        "Apply the TrainingRuntime before the TrainJob. Similar jobs can share a runtime. Deleting the TrainJob does "
        "not delete it.",
    )
    return _write_quantities(_build_trainjob(draft, draft.name, {})), _write_quantities(_runtime(draft))


def _write_quantities(value: Any) -> Any:
    """Return a part of an object with its quantities as text.

    A field of the CRDs that is an integer or a string refuses a number with a fraction, such as `cpu: 0.5`.
    """
    if isinstance(value, list):
        return [_write_quantities(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    written = {}
    for key, inner in value.items():
        if key in _QUANTITY_MAPS and isinstance(inner, Mapping):
            written[key] = {name: _to_text(amount) for name, amount in inner.items()}
        else:
            written[key] = _to_text(inner) if key in _QUANTITIES else _write_quantities(inner)
    return written


def _to_text(amount: Any) -> Any:
    is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
    return format(Decimal(str(amount)).normalize(), "f") if is_number else amount


def _build_trainjob(draft: Draft, runtime_name: str | None, patches: Mapping[str, Any]) -> _Object:
    job = draft.build_trainjob(runtime_name, patches)
    job["spec"]["trainer"] = add_name_variable(job["spec"]["trainer"])
    return job


def _remove_overridden_parts(draft: Draft) -> list[Part]:
    """Record and remove the default parts for whose target another part exists."""
    taken = {(part.role, part.target) for part in draft.parts if not part.default}
    for part in draft.parts:
        if part.default and (part.role, part.target) in taken:
            draft.fields.mark_dropped(part.path, f"the {part.target[-1]} of the pod takes precedence")
    draft.parts = [part for part in draft.parts if not part.default or (part.role, part.target) not in taken]
    return draft.parts


def _target(part: Part) -> str:
    return f"{f'{part.role}.' if part.role != 'node' else ''}{'.'.join(part.target)}"


def _patches(draft: Draft) -> _Object:
    """Build the `runtimePatches` of the pods in the form of Trainer 2.2.

    Source: pkg/apis/trainer/v1alpha1/trainjob_types.go, RuntimePatch.
    """
    trees = {role: _tree(draft, role) for role in draft.shape.roles}
    jobs = [
        {"name": role, "template": {"spec": {"template": pod}}}
        for role, tree in trees.items()
        if (pod := _pod(tree, draft.shape.roles[role]))
    ]
    template = {"spec": {"replicatedJobs": jobs}}
    return {"runtimePatches": [{"manager": _MANAGER, "trainingRuntimeSpec": {"template": template}}]} if jobs else {}


def _runtime(draft: Draft) -> _Object:
    """Build the TrainingRuntime from the parts.

    It is similar to those in Trainer 2.3 manifests/base/runtimes.
    """
    jobs = []
    for role, container in draft.shape.roles.items():
        tree = _tree(draft, role)
        labels = {_ANCESTOR: "trainer"} if role == draft.shape.trainer else {}
        pod = _pod(tree, container) or {}
        pod.setdefault("spec", {}).setdefault("containers", [{"name": container}])
        job = {**({"metadata": {"labels": labels}} if labels else {}), "spec": {**tree.get("job", {}), "template": pod}}
        waits = {"dependsOn": draft.shape.depends_on[role]} if role in draft.shape.depends_on else {}
        jobs.append({"name": role, **waits, "template": job})
    metadata = {
        "name": draft.name,
        **({"namespace": draft.namespace} if draft.namespace else {}),
        "labels": {_FRAMEWORK: draft.shape.framework},
    }
    template = {"spec": {**draft.shape.jobset, "replicatedJobs": jobs}}
    spec = {"mlPolicy": dict(draft.shape.policy), "template": template}
    return {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def _pod(tree: Mapping[str, Any], container: str) -> _Object:
    """Return the pod template with the training container first."""
    pod: _Object = {**tree.get("pod", {})}
    if "container" in tree or "containers" in pod.get("spec", {}):
        first = {"name": container, **tree.get("container", {})}
        pod["spec"] = {**pod.get("spec", {}), "containers": [first, *pod.get("spec", {}).get("containers", [])]}
    for field in pod.get("spec", {}).keys() & {"containers", "initContainers"}:
        pod["spec"][field] = [add_name_variable(each) for each in pod["spec"][field]]
    return pod


def _tree(draft: Draft, role: str) -> _Object:
    tree: _Object = {}
    for part in draft.parts:
        if part.role != role:
            continue
        *above, last = part.target
        inner = tree
        for step in above:
            inner = inner.setdefault(step, {})
        inner[last] = _merge_values(inner.get(last), part.value)
    return tree


def _merge_values(existing: Any, value: Any) -> Any:
    if isinstance(existing, list) and isinstance(value, list):
        return [*existing, *value]
    return {**existing, **value} if isinstance(existing, dict) and isinstance(value, Mapping) else value
