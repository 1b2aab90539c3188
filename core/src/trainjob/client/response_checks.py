"""Checks that the body of a successful response is what was requested.

A proxy, or an API server that is shutting down, may return 200 with an empty body, an empty object or another object.
The HTTP client checks each body with one of these functions before any other code reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ResponseCheck = Callable[[Any], str]
"""Function that takes a body's JSON value and returns the problem with it, or an empty string."""

# Kubernetes 1.36 sets these on every stored object.
_ALWAYS_SET = ("name", "uid", "resourceVersion", "creationTimestamp")


def check_json_object(body: Any) -> str:
    """Return the problem with a body that may be any JSON object, or an empty string."""
    return "" if isinstance(body, dict) else f"it is a JSON {type(body).__name__}, not an object"


def check_object(body: Any) -> str:
    """Return the problem with an API object of any kind, or an empty string."""
    return _check_object(body, _ALWAYS_SET)


def check_dry_run(body: Any) -> str:
    """Return the problem with an object that was created by a dry run, or an empty string.

    It is not stored, so it has no resourceVersion.
    """
    return _check_object(body, ("name",))


def _check_object(body: Any, required: tuple[str, ...]) -> str:
    if problem := check_json_object(body):
        return problem
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return "it has no metadata"
    if missing := [field for field in required if not _is_text(metadata.get(field))]:
        return f"it has no metadata.{missing[0]}"
    wrong = [field for field in ("labels", "annotations") if not _is_text_map(metadata.get(field))]
    if wrong:
        return f"its metadata.{wrong[0]} is not a map of strings"
    wrong = [field for field in ("spec", "status") if not isinstance(body.get(field) or {}, dict)]
    return f"its {wrong[0]} is not an object" if wrong else ""


def check_namespaced_object(body: Any) -> str:
    """Return the problem with an API object of a namespaced kind, or an empty string."""
    problem = check_object(body)
    return problem or ("" if _is_text(body["metadata"].get("namespace")) else "it has no metadata.namespace")


def check_list_of(check: ResponseCheck) -> ResponseCheck:
    """Return the check of a list (one page) whose items must pass `check`."""

    def check_list(body: Any) -> str:
        if problem := check_json_object(body):
            return problem
        metadata = body.get("metadata")
        if not isinstance(metadata, dict) or not _is_text(metadata.get("resourceVersion")):
            return "it is a list without metadata.resourceVersion"
        if not isinstance(metadata.get("continue") or "", str):
            return "its metadata.continue is not a string"
        if "items" not in body or not isinstance(body["items"] or [], list):  # Go writes an empty list as null, too
            return "it is a list without items"
        problems = ((number, check(item)) for number, item in enumerate(body["items"] or []))
        return next((f"item {number} of the list: {problem}" for number, problem in problems if problem), "")

    return check_list


def check_deletion(body: Any) -> str:
    """Return the problem with the response to a deletion, or an empty string.

    The response must be a Status with `status: Success`, or the object that is being deleted.
    """
    if isinstance(body, dict) and body.get("kind") == "Status":
        return "" if body.get("status") == "Success" else "it is a Status without success"
    return check_object(body)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_text_map(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(item, str) for item in value.values()))
