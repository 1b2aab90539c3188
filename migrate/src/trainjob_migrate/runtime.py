"""The last step of a conversion: the TrainJob and, if needed, a generated TrainingRuntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.spec.manifest import API_VERSION
from trainjob_migrate.draft import Draft, Part

_MANAGER = "trainjob.dev/migrate"
_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
_FRAMEWORK = "trainer.kubeflow.org/framework"
_ALWAYS_THERE = ("system-cluster-critical", "system-node-critical")

_Tree = dict[str, Any]


def finished(draft: Draft) -> tuple[_Tree, _Tree | None]:
    """Build the TrainJob and, if the stock runtime is not enough, a TrainingRuntime.

    The TrainingRuntime is to be applied first. It holds everything that is not in `spec.trainer`, so that users find
    these settings in one place.
    """
    _refuse_unreadable_priorities(draft)
    for part in _without_outdone(draft):
        if draft.needs_runtime:
            draft.ledger.moved(part.path, f"TrainingRuntime {_target(part)}", part.reason)
        else:
            draft.ledger.converted(part.path, f"spec.runtimePatches {_target(part)}", part.reason)
    if not draft.needs_runtime:
        return draft.train_job(None, _patches(draft)), None
    draft.find(
        "runtime",
        f"The job needs a TrainingRuntime of its own, {draft.name}.",
        f"Some of its fields can't stand in a TrainJob, nor be patched into the pods of {draft.shape.runtime}."
        if draft.shape.runtime
        else "The Trainer has no runtime that such a job could run on.",
        "It is made beside the TrainJob and is to be applied first; jobs that are alike can share one. Nothing deletes "
        "it with the TrainJob.",
    )
    return draft.train_job(draft.name, {}), _runtime(draft)


def _without_outdone(draft: Draft) -> list[Part]:
    """Claim and remove the default parts for whose place another part exists."""
    taken = {(part.role, part.place) for part in draft.parts if not part.default}
    for part in draft.parts:
        if part.default and (part.role, part.place) in taken:
            draft.ledger.dropped(part.path, f"the pod's own {part.place[-1]} counts")
    draft.parts = [part for part in draft.parts if not part.default or (part.role, part.place) not in taken]
    return draft.parts


def _refuse_unreadable_priorities(draft: Draft) -> None:
    """Refuse the PriorityClass of a Volcano gang.

    The Trainer's webhook looks up the PriorityClass, but its role does not allow it to read PriorityClasses. So the
    webhook answers with HTTP status 500.

    Source: Trainer 2.3 pkg/runtime/framework/plugins/volcano/volcano.go and manifests/base/rbac.
    """
    if not any(part.place == ("runtime", "podGroupPolicy", "volcano") for part in draft.parts):
        return
    for part in draft.parts:
        if part.place[-1] == "priorityClassName" and part.value not in _ALWAYS_THERE:
            reason = (
                "with a queue of Volcano's the Trainer looks the PriorityClass up, may not read it (2.1 to 2.3), and "
                "refuses every such TrainJob: remove one of the two"
            )
            draft.ledger.refused(part.path, reason)


def _target(part: Part) -> str:
    start = f"{part.role}." if part.role != "node" else ""
    where = ".".join(part.place)
    return where if part.place[0] in ("jobset", "runtime") else f"{start}{where}"


def _patches(draft: Draft) -> _Tree:
    """Build the `runtimePatches` of the pods in the form of Trainer 2.2.

    Source: pkg/apis/trainer/v1alpha1/trainjob_types.go, RuntimePatch.
    """
    trees = {role: _tree(draft, role) for role in draft.shape.roles}
    jobs = [
        {"name": role, "template": {"spec": {"template": pod}}}
        for role, tree in trees.items()
        if (pod := _pod(tree, draft.shape.roles[role]))
    ]
    jobset = _shared(draft, "jobset")
    template = {**jobset, **({"spec": {"replicatedJobs": jobs}} if jobs else {})}
    return (
        {"runtimePatches": [{"manager": _MANAGER, "trainingRuntimeSpec": {"template": template}}]} if template else {}
    )


def _runtime(draft: Draft) -> _Tree:
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
        waits = {"dependsOn": draft.shape.waits[role]} if role in draft.shape.waits else {}
        jobs.append({"name": role, **waits, "template": job})
    metadata = {
        "name": draft.name,
        **({"namespace": draft.namespace} if draft.namespace else {}),
        "labels": {_FRAMEWORK: draft.shape.framework},
    }
    template = {**_shared(draft, "jobset"), "spec": {**draft.shape.jobset, "replicatedJobs": jobs}}
    spec = {"mlPolicy": dict(draft.shape.policy), **_shared(draft, "runtime"), "template": template}
    return {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def _pod(tree: Mapping[str, Any], container: str) -> _Tree:
    """Return the pod template with the training container first."""
    pod: _Tree = {**tree.get("pod", {})}
    if "container" in tree or "containers" in pod.get("spec", {}):
        first = {"name": container, **tree.get("container", {})}
        pod["spec"] = {**pod.get("spec", {}), "containers": [first, *pod.get("spec", {}).get("containers", [])]}
    return pod


def _tree(draft: Draft, role: str) -> _Tree:
    parts = [part for part in draft.parts if part.role == role and part.place[0] not in ("jobset", "runtime")]
    return _put_together(parts)


def _shared(draft: Draft, top: str) -> _Tree:
    tree: _Tree = _put_together([part for part in draft.parts if part.place[0] == top]).get(top, {})
    return tree


def _put_together(parts: list[Part]) -> _Tree:
    tree: _Tree = {}
    for part in parts:
        *above, last = part.place
        inner = tree
        for step in above:
            inner = inner.setdefault(step, {})
        inner[last] = _joined(inner.get(last), part.value)
    return tree


def _joined(there: Any, value: Any) -> Any:
    if isinstance(there, list) and isinstance(value, list):
        return [*there, *value]
    return {**there, **value} if isinstance(there, dict) and isinstance(value, Mapping) else value
