"""RBAC authorization: the stored Roles and RoleBindings, evaluated for each request.

Source: k8s.io/kubernetes 1.36 `plugin/pkg/auth/authorizer/rbac` and `pkg/apis/rbac/v1/evaluation_helpers.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainjob_local.apiserver.resources import BY_PLURAL
from trainjob_local.apiserver.status_errors import StatusError
from trainjob_local.apiserver.tokens import User

if TYPE_CHECKING:
    from trainjob_local.apiserver.registry import Registry

__all__ = ["Action", "Authorizer"]


@dataclass(frozen=True)
class Action:
    """The action to authorize: a verb and its target.

    Attributes:
        verb: verb such as `get`, `list`, `deletecollection`; for paths the HTTP method in lower case.
        group: API group of the resource.
        resource: plural, with its subresource as in `pods/log`; empty if the target is a path.
        namespace: namespace of the action; empty for the cluster scope.
        name: name of the object; empty for actions on many objects or a new one.
        path: the path if the target is not a resource, such as `/version`.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def forbidden_error(self, user: User) -> StatusError:
        """Return the 403 error for a user that may not do this action."""
        plural = self.resource.partition("/")[0]
        if not self.resource:
            text = f'forbidden: User "{user.name}" cannot {self.verb} path "{self.path}"'
            return StatusError(403, "Forbidden", text, details={})
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        qualified = f"{plural}.{self.group}" if self.group else plural
        named = f'{qualified} "{self.name}"' if self.name else qualified
        what = f'cannot {self.verb} resource "{self.resource}" in API group "{self.group}" {where}'
        details = {**({"name": self.name} if self.name else {}), **({"group": self.group} if self.group else {})}
        text = f'{named} is forbidden: User "{user.name}" {what}'
        return StatusError(403, "Forbidden", text, details={**details, "kind": plural})


class Authorizer:
    """RBAC authorizer that evaluates the stored Roles, ClusterRoles and their bindings.

    Args:
        registry: registry of these objects.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def check(self, user: User, action: Action) -> None:
        """Check that the user may do the action.

        Raises:
            StatusError: 403 if the user may not do it.
        """
        if not self.allows(user, action):
            raise action.forbidden_error(user)

    def allows(self, user: User, action: Action) -> bool:
        """Return whether a user may do an action; group `system:masters` may do every action."""
        if "system:masters" in user.groups:
            return True
        return any(_permits(rule, action) for rule in self.list_rules(user, action.namespace))

    def list_rules(self, user: User, namespace: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rules of the Roles and ClusterRoles that a user has in a namespace."""
        for plural, where in (("clusterrolebindings", ""), ("rolebindings", namespace)):
            if plural == "rolebindings" and not namespace:
                continue
            for binding in self._registry.store.list_objects(BY_PLURAL[plural], where):
                subjects = binding.body.get("subjects") or ()
                if any(_is_subject(subject, user, where) for subject in subjects):
                    yield from self._list_role_rules(binding.body["roleRef"], where)

    def _list_role_rules(self, reference: Mapping[str, Any], namespace: str) -> Iterator[Mapping[str, Any]]:
        cluster_wide = reference.get("kind") == "ClusterRole"
        resource = BY_PLURAL["clusterroles" if cluster_wide else "roles"]
        found = self._registry.store.get(resource, "" if cluster_wide else namespace, str(reference.get("name")))
        yield from (found.body.get("rules") or ()) if found else ()


def _is_subject(subject: Mapping[str, Any], user: User, namespace: str) -> bool:
    name = subject.get("name")
    if subject.get("kind") == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return name in user.groups if subject.get("kind") == "Group" else name == user.name


def _permits(rule: Mapping[str, Any], action: Action) -> bool:
    if not _includes(rule.get("verbs"), action.verb):
        return False
    if not action.resource:
        return any(_path_matches(pattern, action.path) for pattern in rule.get("nonResourceURLs") or ())
    resources = rule.get("resources") or ()
    subresource = action.resource.partition("/")[2]
    named = action.resource in resources or "*" in resources or (bool(subresource) and f"*/{subresource}" in resources)
    names = rule.get("resourceNames") or ()
    return named and _includes(rule.get("apiGroups"), action.group) and (not names or action.name in names)


def _includes(allowed: Any, value: str) -> bool:
    return "*" in (allowed or ()) or value in (allowed or ())


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))
