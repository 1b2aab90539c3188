"""Conversion of a v1 job's run policy.

It covers restarts, deadline, suspension, clean-up and the place in a queue.

Sources: training-operator 1.9 pkg/apis/kubeflow.org/v1/common_types.go (RunPolicy, SchedulingPolicy, RestartPolicy) and
pkg/controller.v1/common; Trainer 2.3 pkg/apis/trainer/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainjob.manifest import Dialect
from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import EMPTY_VALUES, Path

_EXIT_CODES = (
    "ExitCode becomes a podFailurePolicy with the same codes for all containers; do not start the program with "
    "torchrun, which exits with 1 for every exit code"
)
_PERMANENT_EXIT_CODES = list(range(1, 128))
_GANG_FIELDS = ("minAvailable", "minResources", "queue", "scheduleTimeoutSeconds")
_CONTROLLERS = {
    "kubeflow.org/training-operator": "trainer.kubeflow.org/trainjob-controller",
    "kubeflow.org/mpi-operator": "trainer.kubeflow.org/trainjob-controller",
    "kueue.x-k8s.io/multikueue": "kueue.x-k8s.io/multikueue",
}


def convert_run_policy(draft: Draft, path: Path, policy: Any) -> None:
    """Convert a run policy into the draft, without `backoffLimit`.

    `convert_restarts` converts `backoffLimit`.
    """
    if not isinstance(policy, Mapping):
        return
    for field, value in policy.items():
        where = (*path, field)
        if value not in EMPTY_VALUES and field in _FIELDS:
            _FIELDS[field](draft, where, value)


def convert_restarts(draft: Draft, paths: Sequence[Path], policy: Any, limit_path: Path, limit: Any) -> None:
    """Convert a restart policy and its limit into the draft.

    Args:
        draft: the draft.
        paths: paths of the policy, for each kind of replicas that the TrainJob's nodes come from.
        policy: the restart policy, or the default of the kind.
        limit_path: path of `backoffLimit`.
        limit: the `backoffLimit`; None if it is not set.
    """
    limit = limit if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0 else None
    if policy == "OnFailure":
        for path in paths:
            draft.fields.mark_converted(path, "spec.runtimeRef", "JobSet uses OnFailure if a runtime does not set it")
        _limit(draft, limit_path, limit)
    elif policy == "ExitCode":
        _exit_codes(draft, paths)
        _limit(draft, limit_path, limit)
    elif policy == "Never":
        draft.fields.mark_dropped(limit_path, "with restartPolicy Never the first failure ends the job")
        for path in paths:
            draft.add_part(path, ("pod", "spec", "restartPolicy"), "Never", patchable=False)
            draft.add_part(path, ("job", "backoffLimit"), 0, patchable=False)
    elif policy == "Always":
        for path in paths:
            reason = "the pods of a Job can't be restarted after success; use OnFailure or ExitCode"
            draft.fields.mark_refused(path, reason)
        draft.fields.mark_dropped(limit_path, "it belongs to restartPolicy")


def _limit(draft: Draft, path: Path, limit: int | None) -> None:
    if limit is not None:
        draft.add_part(path, ("job", "backoffLimit"), limit, patchable=False)
        return
    draft.add_finding(
        "restarts",
        "The job has no backoffLimit.",
        "Without it, the Training Operator restarts failing pods forever. A Job ends after six failures.",
        "Nothing: the limit is six. For another limit, set runPolicy.backoffLimit; this needs a generated runtime.",
    )


def _exit_codes(draft: Draft, paths: Sequence[Path]) -> None:
    """Convert the restart policy ExitCode to a podFailurePolicy.

    Exit codes from 1 to 127 end the job. Higher ones count as failures towards the Job's `backoffLimit`.
    """
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": _PERMANENT_EXIT_CODES}}
    for number, path in enumerate(paths):
        draft.add_part(path, ("pod", "spec", "restartPolicy"), "Never", patchable=False, reason=_EXIT_CODES)
        if number == 0:
            draft.add_part(path, ("job", "podFailurePolicy", "rules"), [rule], patchable=False)


def _deadline(draft: Draft, path: Path, seconds: Any) -> None:
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 1:
        draft.fields.mark_refused(path, "it must be a whole number of seconds, at least 1")
    elif draft.dialect is Dialect.V2_2:
        reason = "counted from creation, or from the end of a suspension; then pods, logs and own PVCs are deleted"
        draft.fields.mark_converted(path, "spec.activeDeadlineSeconds", reason)
        draft.spec["activeDeadlineSeconds"] = seconds
    else:
        place = ("job", "activeDeadlineSeconds")
        draft.add_part(path, place, seconds, patchable=False, role=draft.shape.trainer)


def _suspend(draft: Draft, path: Path, suspend: Any) -> None:
    if isinstance(suspend, bool):
        draft.fields.mark_converted(path, "spec.suspend")
        draft.spec["suspend"] = suspend


def _managed_by(draft: Draft, path: Path, controller: Any) -> None:
    if isinstance(controller, str) and controller in _CONTROLLERS:
        draft.fields.mark_converted(path, "spec.managedBy")
        draft.spec["managedBy"] = _CONTROLLERS[controller]


def _ttl(draft: Draft, path: Path, seconds: Any) -> None:
    draft.fields.mark_dropped(
        path, "a TrainJob has no TTL, and the TTL of a JobSet would run the job again (Trainer 2.1 to 2.3)"
    )
    draft.add_finding(
        "clean-up",
        f"The job has a TTL of {seconds} s after its end.",
        "A TrainJob exists until a user or a program deletes it.",
        "Nothing. Let the program that creates the jobs delete them.",
    )


def _clean_pods(draft: Draft, path: Path, policy: Any) -> None:
    end = "the launcher is" if "launcher" in draft.shape.roles else "all nodes are"
    reasons = {
        "Running": "the same for a TrainJob: at its end running pods are deleted, and finished pods are retained",
        "None": f"running pods are always deleted at the end of a TrainJob, which is complete when {end}",
        "All": "finished pods and their logs are retained until the TrainJob is deleted",
    }
    if isinstance(policy, str) and policy in reasons:
        draft.fields.mark_dropped(path, reasons[policy])


def _scheduling(draft: Draft, path: Path, policy: Any) -> None:
    if not isinstance(policy, Mapping):
        return
    if isinstance(policy.get("priorityClass"), str):
        for role in draft.shape.roles:
            place = ("pod", "spec", "priorityClassName")
            where = (*path, "priorityClass")
            draft.add_part(where, place, policy["priorityClass"], patchable=False, default=True, role=role)
    if gang := [field for field in _GANG_FIELDS if policy.get(field) not in EMPTY_VALUES]:
        for field in gang:
            draft.fields.mark_dropped((*path, field), "a TrainJob has no such field; see the finding gang")
        draft.add_finding(
            "gang",
            f"The job is scheduled as a gang: its schedulingPolicy has {', '.join(gang)}.",
            "The pods of a TrainJob are a gang only if its runtime has a podGroupPolicy, for Volcano or coscheduling. "
            "Kueue admits all pods of a TrainJob together without one.",
            "Nothing. Put the podGroupPolicy into the TrainJob's runtime, or the TrainJob into a queue of Kueue.",
        )


_FIELDS: Mapping[str, Callable[[Draft, Path, Any], None]] = {
    "activeDeadlineSeconds": _deadline,
    "cleanPodPolicy": _clean_pods,
    "managedBy": _managed_by,
    "schedulingPolicy": _scheduling,
    "suspend": _suspend,
    "ttlSecondsAfterFinished": _ttl,
}
