"""The podFailurePolicy and successPolicy of a Job, applied to its pods; pure functions.

Source: Kubernetes 1.36 `pkg/controller/job/{pod_failure_policy,success_policy}.go`. Not implemented: the action
FailIndex, which needs a backoffLimitPerIndex.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trainjob_local.controllers.job_pods import parse_indexes
from trainjob_local.objects import Json

__all__ = ["find_fail_job_message", "find_success_message", "is_ignored"]


def find_fail_job_message(job: Json, failed: Iterable[Json]) -> str:
    """Return the message of the FailJob rule that a failed pod matches; empty if none does.

    Only the first rule that a pod matches counts.
    """
    for pod in failed:
        for index, rule, what in _matching_rules(job, pod):
            if rule["action"] == "FailJob":
                return f"{what} matching FailJob rule at index {index}"
            break
    return ""


def is_ignored(job: Json, pod: Json) -> bool:
    """Return whether a failed pod does not count towards the backoffLimit.

    A failed pod does not count if the first rule that it matches has the action Ignore.
    """
    return next((rule["action"] == "Ignore" for _, rule, _ in _matching_rules(job, pod)), False)


def find_success_message(job: Json, completed_indexes: Collection[int]) -> str:
    """Return the message of the first successPolicy rule that the completed indexes meet.

    The message is empty if no rule is met.
    """
    for index, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or []):
        wanted = rule.get("succeededIndexes")
        counting = set(completed_indexes) & parse_indexes(wanted) if wanted else set(completed_indexes)
        needed = rule.get("succeededCount", len(parse_indexes(wanted)) if wanted else None)
        if needed is not None and completed_indexes and len(counting) >= int(needed):
            return f"Matched rules at index {index}"
    return ""


def _matching_rules(job: Json, pod: Json) -> Iterable[tuple[int, Json, str]]:
    """Yield the rules that a failed pod matches, each with its index and the reason as text."""
    status = pod.get("status") or {}
    place = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    for index, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or []):
        if codes := rule.get("onExitCodes"):
            if found := _find_exit_code(codes, statuses):
                name, code = found
                yield index, rule, f"Container {name} for pod {place} failed with exit code {code}"
        elif kind := _find_condition_type(rule.get("onPodConditions") or [], status.get("conditions") or []):
            yield index, rule, f"Pod {place} has condition {kind}"


def _find_exit_code(codes: Json, statuses: Iterable[Json]) -> tuple[str, int] | None:
    for one in statuses:
        code = ((one.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        here = code and codes.get("containerName") in (None, one["name"])
        if here and (code in codes["values"]) is (codes["operator"] == "In"):
            return one["name"], code
    return None


def _find_condition_type(patterns: Sequence[Json], conditions: Iterable[Json]) -> str:
    wanted = [(one["type"], one.get("status", "True")) for one in patterns]
    return next((str(one["type"]) for one in conditions if (one["type"], one["status"]) in wanted), "")
