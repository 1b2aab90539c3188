"""Tokens of service accounts, issued for TokenRequests and stored as SHA-256.

A token is valid until it expires, or until its service account or the pod that it is bound to is deleted.
Source: k8s.io/kubernetes 1.36 `pkg/registry/core/serviceaccount/storage/token.go`. The tokens are random texts;
those of a real cluster are JSON Web Tokens.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainjob_local.apiserver.resources import BY_PLURAL, Resource
from trainjob_local.apiserver.status_errors import FieldProblem, bad_request, conflict, invalid, not_found
from trainjob_local.apiserver.storage import Storage, StoredToken
from trainjob_local.apiserver.store import Store, StoredObject
from trainjob_local.objects import format_timestamp

__all__ = ["AUDIENCE", "TokenIssuer", "User", "service_account_groups"]

Json = dict[str, Any]

AUDIENCE = "https://kubernetes.default.svc.cluster.local"
_MIN_SECONDS, _DEFAULT_SECONDS, _MAX_SECONDS = 600, 3600, 2**32
_REQUEST = Resource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest")


@dataclass(frozen=True)
class User:
    """The user that sent a request.

    Attributes:
        name: name of the user, such as `system:serviceaccount:NAMESPACE:NAME`.
        groups: groups of the user, such as `system:authenticated`.
    """

    name: str
    groups: tuple[str, ...] = ()


class TokenIssuer:
    """Token issuer that also verifies the service account tokens it has issued.

    Args:
        store: store of service accounts and pods.
        storage: storage of the hashes of tokens.
        clock: function that returns the current time.
    """

    def __init__(self, store: Store, storage: Storage, clock: Callable[[], datetime]) -> None:
        self._store, self._storage, self._clock = store, storage, clock

    def create(self, namespace: str, account: str, spec: Mapping[str, Any] | None = None) -> Json:
        """Issue a token for a TokenRequest.

        Args:
            namespace: namespace of the service account.
            account: name of the service account.
            spec: `expirationSeconds` (600 to 2^32; 3600 if not given), `audiences`, `boundObjectRef` (a Pod).

        Returns:
            The TokenRequest with `status.token` and `status.expirationTimestamp`.

        Raises:
            StatusError: 400 if `expirationSeconds` is not an integer or the bound object is not a Pod; 404 if the
                account or the pod does not exist; 409 if the pod has another uid than the request; 422 if the duration
                is out of range.
        """
        spec = dict(spec or {})
        seconds = spec.get("expirationSeconds", _DEFAULT_SECONDS)
        self._check_seconds(seconds)
        expires = self._clock() + timedelta(seconds=seconds)
        token = secrets.token_urlsafe(32)
        audiences = spec.get("audiences") or [AUDIENCE]
        with self._store.lock:
            found = self._store.get(BY_PLURAL["serviceaccounts"], namespace, account)
            if found is None:
                raise not_found(BY_PLURAL["serviceaccounts"], account)
            pod = self._bound_pod(namespace, spec.get("boundObjectRef") or {})
            self._storage.put_token(
                StoredToken(
                    digest=_digest(token),
                    namespace=namespace,
                    account=account,
                    uid=_uid(found),
                    pod=pod.key[1] if pod else "",
                    pod_uid=_uid(pod) if pod else "",
                    audiences=" ".join(audiences),
                    expires=expires.timestamp(),
                ),
                self._clock().timestamp(),
            )
        token_spec = {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        }
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": account, "namespace": namespace, "creationTimestamp": format_timestamp(self._clock())},
            "spec": token_spec,
            "status": {"token": token, "expirationTimestamp": format_timestamp(expires)},
        }

    def authenticate(self, token: str) -> User | None:
        """Return the user of a token, or None if the token is not valid.

        It is not valid if it is unknown, has expired, is for other audiences, or if its account or pod is deleted.
        """
        with self._store.lock:
            found = self._storage.get_token(_digest(token))
            if found is None or found.expires <= self._clock().timestamp() or AUDIENCE not in found.audiences.split():
                return None
            account = self._store.get(BY_PLURAL["serviceaccounts"], found.namespace, found.account)
            if account is None or _uid(account) != found.uid:
                return None
            pod = self._store.get(BY_PLURAL["pods"], found.namespace, found.pod) if found.pod else None
            if found.pod and (pod is None or _uid(pod) != found.pod_uid):
                return None
        name = f"system:serviceaccount:{found.namespace}:{found.account}"
        return User(name, service_account_groups(name))

    @staticmethod
    def _check_seconds(seconds: Any) -> None:
        if not isinstance(seconds, int):
            raise bad_request("spec.expirationSeconds must be an integer")
        detail = "may not specify a duration less than 10 minutes" if seconds < _MIN_SECONDS else ""
        detail = "may not specify a duration larger than 2^32 seconds" if seconds > _MAX_SECONDS else detail
        if detail:
            raise invalid(_REQUEST, "", [FieldProblem("spec.expirationSeconds", "Invalid value", str(seconds), detail)])

    def _bound_pod(self, namespace: str, reference: Mapping[str, Any]) -> StoredObject | None:
        if not reference:
            return None
        name, pods = str(reference.get("name", "")), BY_PLURAL["pods"]
        if reference.get("kind") != "Pod":
            given = f"{reference.get('apiVersion', '')}, Kind={reference.get('kind', '')}"
            raise bad_request(f"cannot bind token to object of type {'' if '/' in given else '/'}{given}")
        found = self._store.get(pods, namespace, name)
        if found is None:
            raise not_found(pods, name)
        uid = reference.get("uid")
        if uid and uid != _uid(found):
            why = f"the UID in the bound object reference ({uid}) does not match the UID in record."
            raise conflict(pods, name, f"{why} The object might have been deleted and then recreated")
        return found


def service_account_groups(name: str) -> tuple[str, ...]:
    """Return the groups of a service account, by its user name; empty for other users."""
    namespace, _, account = name.removeprefix("system:serviceaccount:").partition(":")
    if not name.startswith("system:serviceaccount:") or not account:
        return ()
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _uid(stored: StoredObject) -> str:
    return str(stored.body["metadata"]["uid"])
