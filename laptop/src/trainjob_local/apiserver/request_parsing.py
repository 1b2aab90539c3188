"""Parser of requests: path, verb, and the options of lists, writes and deletions.

All functions are pure.
Source: k8s.io/apiserver 0.36 `pkg/endpoints/request/requestinfo.go` and `pkg/apis/meta/internalversion/validation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob_local.apiserver.authorization import Action
from trainjob_local.apiserver.deletion import DeleteOptions
from trainjob_local.apiserver.resources import Resource, by_group_version
from trainjob_local.apiserver.selectors import SelectorError, parse_fields
from trainjob_local.apiserver.status_errors import FieldProblem, StatusError, bad_request, invalid
from trainjob_local.apiserver.store import parse_resource_version
from trainjob_local.apiserver.write_rules import WriteOptions

__all__ = [
    "ListOptions",
    "RequestInfo",
    "parse_delete_options",
    "parse_list_options",
    "parse_minimum_version",
    "parse_request_info",
    "parse_write_options",
]

Query = Mapping[str, str]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "HEAD": "get"}
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


@dataclass(frozen=True)
class RequestInfo:
    """The verb and the target of a request: a resource, or a path that names no resource.

    Attributes:
        verb: verb of RBAC; for a path that names no resource, the HTTP method in lower case.
        path: the whole path of the URL.
        group: API group of the resource; without meaning if the path names no resource.
        version: version of the group; empty if the path names no resource.
        plural: plural of the resource; empty if the path names no resource.
        namespace: namespace of the request; empty for the cluster scope.
        name: name of the object; empty for requests about many objects or a new one.
        subresource: subresource, such as `status` or `log`, or empty.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> Resource | None:
        """Entry of the resource in `RESOURCES`, or None."""
        return next(
            (found for found in by_group_version(self.group, self.version) if found.plural == self.plural), None
        )

    @property
    def target(self) -> str:
        """Plural and subresource, as in `pods/log`; the path if it names no resource."""
        if not self.plural:
            return self.path
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    def to_action(self, query: Query) -> Action:
        """Return the action to authorize with RBAC.

        If a list, a watch or a deletecollection selects one name, the action has that name.
        """
        if not self.plural:
            return Action(self.verb, path=self.path)
        name = self.name
        if self.verb in ("list", "watch", "deletecollection") and query.get("fieldSelector"):
            name = _selected_name(query["fieldSelector"])
        return Action(self.verb, self.group, self.target, self.namespace, name)


def _selected_name(selector: str) -> str:
    try:
        return parse_fields(selector, None).name
    except SelectorError:
        return ""


def parse_request_info(method: str, path: str, query: Query) -> RequestInfo:
    """Parse the method, the path and the query of a request."""
    parts = [part for part in path.split("/") if part]
    group_version = _split_group_version(parts)
    if group_version is None or not group_version[2]:
        return RequestInfo(method.lower(), path)
    group, version, rest = group_version
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    namespace = "" if plural == "namespaces" and len(rest) == 1 else namespace
    if method in ("GET", "HEAD"):
        watch = not name and query.get("watch", "0").lower() not in ("0", "false")
        verb = "get" if name else ("watch" if watch else "list")
    elif method == "DELETE":
        verb = "delete" if name else "deletecollection"
    else:
        verb = _VERBS.get(method, method.lower())
    return RequestInfo(verb, path, group, version, plural, namespace, name, subresource)


def _split_group_version(parts: list[str]) -> tuple[str, str, list[str]] | None:
    if parts[:1] == ["api"] and len(parts) > 1:
        return "", parts[1], parts[2:]
    if parts[:1] == ["apis"] and len(parts) > 2:
        return parts[1], parts[2], parts[3:]
    return None


@dataclass(frozen=True)
class ListOptions:
    """The options of a list or a watch.

    Attributes:
        label_selector: label selector, or empty.
        field_selector: field selector, or empty.
        limit: maximum number of items on one page; 0 for no limit.
        continue_token: `continue` token of the previous page, or empty.
        resource_version: resourceVersion of the request as text; empty for none.
        version_match: resourceVersionMatch, or empty.
        allow_bookmarks: whether a watch may send bookmarks.
        timeout_seconds: maximum duration of a watch in seconds; None lets the server choose.
        send_initial_events: sendInitialEvents, or None.
    """

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    version_match: str = ""
    allow_bookmarks: bool = False
    timeout_seconds: int | None = None
    send_initial_events: bool | None = None

    def parse_version(self, *, watch: bool) -> int:
        """Return the resourceVersion as a number, 0 if it is empty.

        Args:
            watch: whether the request is a watch, which gets another status for a version that is not a number.

        Raises:
            StatusError: 400, or 500 for a watch, if the resourceVersion is not a number.
        """
        try:
            return parse_resource_version(self.resource_version)
        except ValueError as error:
            text = f"resourceVersion: Invalid value: {json.dumps(self.resource_version)}: {error}"
            raise (StatusError(500, "", text) if watch else bad_request(f"invalid resource version: {text}")) from error


def parse_minimum_version(query: Query) -> int:
    """Return the minimum resourceVersion of the response; 0 if the query has none.

    Raises:
        StatusError: 500 if the resourceVersion is not a number.
    """
    return ListOptions(resource_version=query.get("resourceVersion", "")).parse_version(watch=True)


_LIST = Resource("meta.k8s.io", "v1", "listoptions", "ListOptions")
_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"


def parse_list_options(query: Query, *, watch: bool) -> ListOptions:
    """Parse the options of a list or a watch.

    Raises:
        StatusError: 400 if a number is not valid; 422 if a value is not supported or two options exclude each other.
    """
    initial = query.get("sendInitialEvents")
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=max(0, parse_integer(query, "limit") or 0),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        version_match=query.get("resourceVersionMatch", ""),
        allow_bookmarks=parse_flag(query, "allowWatchBookmarks"),
        timeout_seconds=parse_integer(query, "timeoutSeconds"),
        send_initial_events=None if initial is None else initial.lower() not in ("0", "false"),
    )
    _check_list_options(options, watch=watch)
    return options


def _check_list_options(options: ListOptions, *, watch: bool) -> None:
    problems = [*(_watch_problems(options) if watch else _list_problems(options))]
    if problems:
        raise invalid(_LIST, "", problems)


def _watch_problems(options: ListOptions) -> Iterator[FieldProblem]:
    initial, match = options.send_initial_events, options.version_match
    if initial is None and not match and options.resource_version in ("", "0"):
        initial, match = True, _NOT_OLDER  # the server sets these for a watch that begins with the current objects
    if initial is not None and match != _NOT_OLDER:
        yield _forbidden_problem("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match and initial is None:
        yield _forbidden_problem("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    if match and match != _NOT_OLDER:
        yield _unsupported_problem(match, _NOT_OLDER)
    if match and options.continue_token:
        yield _forbidden_problem("resourceVersionMatch is forbidden when continue is provided")


def _list_problems(options: ListOptions) -> Iterator[FieldProblem]:
    match = options.version_match
    if match and not options.resource_version:
        yield _forbidden_problem("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match and options.continue_token:
        yield _forbidden_problem("resourceVersionMatch is forbidden when continue is provided")
    if match not in ("", _EXACT, _NOT_OLDER):
        yield _unsupported_problem(match, _EXACT, _NOT_OLDER, "")
    if match == _EXACT and options.resource_version == "0":
        yield _forbidden_problem('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if options.send_initial_events is not None:
        yield _forbidden_problem("sendInitialEvents is forbidden for list", "sendInitialEvents")


def _forbidden_problem(text: str, field: str = "resourceVersionMatch") -> FieldProblem:
    return FieldProblem(field, "Forbidden", detail=text)


def _unsupported_problem(actual: str, *supported: str) -> FieldProblem:
    detail = f"supported values: {', '.join(json.dumps(value) for value in supported)}"
    return FieldProblem("resourceVersionMatch", "Unsupported value", json.dumps(actual), detail)


def parse_write_options(query: Query, kind: str) -> WriteOptions:
    """Parse dryRun and fieldValidation of a write.

    Args:
        query: query of the request.
        kind: `CreateOptions`, `UpdateOptions` or `PatchOptions`, for the error message.

    Raises:
        StatusError: 422 if a value is not supported.
    """
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        supported = ", ".join(json.dumps(value) for value in _VALIDATIONS)
        detail = f"supported values: {supported}"
        problem = FieldProblem("fieldValidation", "Unsupported value", json.dumps(validation), detail)
        raise invalid(Resource("meta.k8s.io", "v1", "", kind), "", [problem])
    return WriteOptions(
        dry_run=_parse_dry_run([query["dryRun"]] if "dryRun" in query else [], kind),
        field_validation=validation or "Warn",
    )


def parse_delete_options(query: Query, body: Mapping[str, Any]) -> DeleteOptions:
    """Parse the options of a deletion from the body, or from the query if the body is empty.

    Raises:
        StatusError: 400 if a number is not valid; 422 if a value is not supported or two options exclude each other.
    """
    kind = "DeleteOptions"
    if not body:
        return DeleteOptions(
            grace=parse_integer(query, "gracePeriodSeconds"),
            propagation=_parse_propagation(query.get("propagationPolicy"), query.get("orphanDependents")),
            dry_run=_parse_dry_run([query["dryRun"]] if "dryRun" in query else [], kind),
        )
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        grace=body.get("gracePeriodSeconds"),
        propagation=_parse_propagation(body.get("propagationPolicy"), body.get("orphanDependents")),
        dry_run=_parse_dry_run(body.get("dryRun") or [], kind),
    )


def _parse_propagation(policy: Any, orphan: Any) -> str:
    if orphan is None:
        return str(policy or "")
    if policy:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        problem = FieldProblem("propagationPolicy", "Invalid value", json.dumps(policy), detail)
        raise invalid(Resource("meta.k8s.io", "v1", "", "DeleteOptions"), "", [problem])
    return "Orphan" if str(orphan).lower() == "true" else "Background"


def _parse_dry_run(values: list[str], kind: str) -> bool:
    if values and values != ["All"]:
        problem = FieldProblem("dryRun", "Unsupported value", json.dumps(values), 'supported values: "All"')
        raise invalid(Resource("meta.k8s.io", "v1", "", kind), "", [problem])
    return bool(values)


def parse_integer(query: Query, name: str) -> int | None:
    """Return a number from the query, or None if it is missing or empty.

    Raises:
        StatusError: 400 if the text is not an integer.
    """
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f"strconv.ParseInt: parsing {json.dumps(text)}: invalid syntax") from error


def parse_flag(query: Query, name: str) -> bool:
    """Return whether a flag of the query is on.

    As in Kubernetes, every value except `false` and `0` means on; a missing flag is off.
    """
    return name in query and query[name].lower() not in ("0", "false")
