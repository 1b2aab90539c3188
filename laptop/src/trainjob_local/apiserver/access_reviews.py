"""Reviews of tokens and users: who it is, and what it may do. They are not stored.

Source: k8s.io/kubernetes 1.36 `pkg/registry/authorization` and `pkg/registry/authentication`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from trainjob_local.apiserver.authorization import Action, Authorizer
from trainjob_local.apiserver.http_messages import json_response, read_validated_json
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.status_errors import FieldProblem, StatusError, bad_request, invalid
from trainjob_local.apiserver.tokens import User

__all__ = ["REVIEWS", "review"]

Json = dict[str, Any]

REVIEWS: Mapping[str, tuple[str, str]] = {
    "selfsubjectaccessreviews": ("authorization.k8s.io", "SelfSubjectAccessReview"),
    "selfsubjectrulesreviews": ("authorization.k8s.io", "SelfSubjectRulesReview"),
    "selfsubjectreviews": ("authentication.k8s.io", "SelfSubjectReview"),
    "subjectaccessreviews": ("authorization.k8s.io", "SubjectAccessReview"),
    "tokenreviews": ("authentication.k8s.io", "TokenReview"),
}
"""API group and kind of each review, by plural; the version of all is v1."""


async def review(
    plural: str, request: Request, user: User, authorizer: Authorizer, authenticate: Callable[[str], User | None]
) -> Response:
    """Handle the creation of a review, and return the response.

    Args:
        plural: kind of the review, a key of `REVIEWS`.
        request: the request.
        user: the user that sends it.
        authorizer: the rules of all users.
        authenticate: function that returns the user of a token; None if the token is not valid.

    Raises:
        StatusError: 400, 413 or 415 if the body is not valid, or has no namespace for its rules, or no token; 422 if
            its spec does not have exactly one kind of attributes, or no user.
    """
    group, kind = REVIEWS[plural]
    spec = (await read_validated_json(request, kind)).get("spec") or {}
    is_of_token = plural == "tokenreviews"
    status = _review_token(spec, authenticate) if is_of_token else _STATUS[plural](spec, user, authorizer)
    empty: Mapping[str, Json] = {"selfsubjectrulesreviews": {"spec": {}}, "selfsubjectreviews": {}}
    returned = empty.get(plural, {"spec": spec})
    found = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, **returned, "status": status}
    return json_response(found, 201)


def _review_access(spec: Json, user: User, authorizer: Authorizer) -> Json:
    request, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if request is None and path is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid("resourceAttributes", None, text)
    if request is not None and path is not None:
        raise _invalid("nonResourceAttributes", path, "cannot be specified in combination with resourceAttributes")
    return {"allowed": authorizer.allows(user, _to_action(spec))}


def _review_subject(spec: Json, _user: User, authorizer: Authorizer) -> Json:
    """Return what another user may do."""
    named = User(spec.get("user") or "", tuple(spec.get("groups") or ()))
    if not named.name and not named.groups:
        raise _invalid("user", "", "at least one of user or group must be specified")
    return _review_access(spec, named, authorizer)


def _review_token(spec: Json, authenticate: Callable[[str], User | None]) -> Json:
    """Return the user of a token, for the API server itself or for other audiences."""
    token = spec.get("token")
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    found = authenticate(token)
    if found is None or spec.get("audiences"):  # no token of this server has other audiences
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": _describe(found)}


def _review_rules(spec: Json, user: User, authorizer: Authorizer) -> Json:
    if not spec.get("namespace"):
        raise bad_request("no namespace on request")
    rules = list(authorizer.list_rules(user, spec["namespace"]))
    return {
        "resourceRules": [
            _kept(rule, "apiGroups", "resources", "resourceNames") for rule in rules if "resources" in rule
        ],
        "nonResourceRules": [_kept(rule, "nonResourceURLs") for rule in rules if "nonResourceURLs" in rule],
        "incomplete": False,
    }


def _review_user(_spec: Json, user: User, _authorizer: Authorizer) -> Json:
    return {"userInfo": _describe(user)}


def _describe(user: User) -> Json:
    return {"username": user.name, "groups": list(user.groups)}


_STATUS: Mapping[str, Callable[[Json, User, Authorizer], Json]] = {
    "selfsubjectaccessreviews": _review_access,
    "selfsubjectrulesreviews": _review_rules,
    "selfsubjectreviews": _review_user,
    "subjectaccessreviews": _review_subject,
}


def _to_action(spec: Json) -> Action:
    path, attributes = spec.get("nonResourceAttributes"), spec.get("resourceAttributes", {})
    if path is not None:
        return Action(path.get("verb", ""), path=path.get("path", ""))
    resource, subresource = attributes.get("resource") or "*", attributes.get("subresource")
    target = f"{resource}/{subresource}" if subresource else resource
    scope = attributes.get("namespace", ""), attributes.get("name", "")
    return Action(attributes.get("verb", ""), attributes.get("group", ""), target, *scope)


def _kept(rule: Mapping[str, Any], *names: str) -> Json:
    return {name: rule[name] for name in ("verbs", *names) if rule.get(name)}


def _invalid(field: str, value: Any, detail: str) -> StatusError:
    """Return the error of an access review, whose kind the real server does not name."""
    problem = FieldProblem(f"spec.{field}", "Invalid value", json.dumps(value), detail)
    return invalid(Resource("authorization.k8s.io", "v1", "", ""), "", [problem])
