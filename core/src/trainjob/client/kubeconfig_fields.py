"""The fields of a kubeconfig: each is obeyed, or refused by name.

They are those of kubectl 1.36: client-go 0.36, tools/clientcmd/api/v1/types.go. Only the context in use is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from trainjob.credentials import find_wrong_character

_TYPES = {str: "text", bool: "boolean", list: "list", dict: "mapping"}
_CLUSTER: dict[str, type] = {
    "server": str,
    "tls-server-name": str,
    "insecure-skip-tls-verify": bool,
    "certificate-authority": str,
    "certificate-authority-data": str,
    "proxy-url": str,
    "disable-compression": bool,  # no response is compressed
    "extensions": list,
}
_USER: dict[str, type] = {
    "client-certificate": str,
    "client-certificate-data": str,
    "client-key": str,
    "client-key-data": str,
    "token": str,
    "tokenFile": str,
    "as": str,
    "as-uid": str,
    "as-groups": list,
    "as-user-extra": dict,
    "username": str,
    "password": str,
    "exec": dict,
    "extensions": list,
}
_PLUGIN: dict[str, type] = {
    "apiVersion": str,
    "command": str,
    "args": list,
    "env": list,
    "installHint": str,
    "provideClusterInfo": bool,
    "interactiveMode": str,
}
_CONTEXT: dict[str, type] = {"cluster": str, "user": str, "namespace": str, "extensions": list}
_FIELDS = {"cluster": _CLUSTER, "user": _USER, "exec": _PLUGIN, "context": _CONTEXT}
# kubernetes.io/docs: "Deprecated API Migration Guide", and the release notes of Kubernetes 1.26
_PROVIDERS = {
    "gcp": "use exec with gke-gcloud-auth-plugin: run `gcloud container clusters get-credentials`",
    "azure": "use exec with kubelogin: run `kubelogin convert-kubeconfig`",
    "oidc": "use exec with `kubectl oidc-login get-token`, of the plugin oidc-login",
}
_PROXY_SCHEMES = ("http", "https")
_HEADER_CHARACTERS = "!#$&'*+^`|~"  # also allowed in the name of a header: RFC 9110 section 5.6.2


class KubeconfigRefused(Exception):
    """A kubeconfig with a field that cannot be obeyed.

    Attributes:
        reason: what is wrong, without the field's value if that may be a credential.
        hint: what to do.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


def check_fields(section: str, given: object) -> dict[str, Any]:
    """Return the fields of a section that have a value.

    Args:
        section: cluster, user, exec or context.
        given: the section as it was read.

    Raises:
        KubeconfigRefused: a field is unknown or was removed, or its value has another type.
    """
    if not isinstance(given, Mapping):
        raise KubeconfigRefused(f"its {section} is not a mapping of fields")
    types, found = _FIELDS[section], {name: value for name, value in given.items() if value is not None}
    if "auth-provider" in found and section == "user":
        raise _removed_provider(found["auth-provider"])
    for name, value in found.items():
        if name not in types:
            reason = f"its {section} has the unknown field {name}"
            raise KubeconfigRefused(reason, "remove the field, or correct its name")
        if not isinstance(value, types[name]):
            raise KubeconfigRefused(f"the field {name} of its {section} is no {_TYPES[types[name]]}")
    return found


def check_proxy(url: str) -> str:
    """Return the URL of a proxy.

    Raises:
        KubeconfigRefused: it is no URL of an HTTP proxy.
    """
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in _PROXY_SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or too large
        is_usable = False
    if not is_usable or not url.isprintable() or " " in url:
        raise KubeconfigRefused(
            "its proxy-url is not the URL of an HTTP proxy",
            "give http://HOST:PORT or https://HOST:PORT; SOCKS is not supported",
        )
    return url


def impersonation_headers(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers that impersonate another user.

    They are those of the fields `as`, `as-uid`, `as-groups` and `as-user-extra`. A name may have several values, each
    in a header of its own: client-go 0.36, transport/round_trippers.go.

    Raises:
        KubeconfigRefused: `as` is missing, or a value is not a text that a header can have.
    """
    extra = user.get("as-user-extra", {})
    found = [
        ("as", "Impersonate-User", [user["as"]] if user.get("as") else []),
        ("as-uid", "Impersonate-Uid", [user["as-uid"]] if user.get("as-uid") else []),
        ("as-groups", "Impersonate-Group", user.get("as-groups", [])),
        *(("as-user-extra", f"Impersonate-Extra-{quote(str(key), _HEADER_CHARACTERS)}", extra[key]) for key in extra),
    ]
    for field, _, values in found:
        if not _are_header_values(values):
            raise KubeconfigRefused(f"the field {field} of its user has a value that is not printable ASCII text")
    headers = [(name, value) for _, name, values in found for value in values]
    if headers and not user.get("as"):
        raise KubeconfigRefused("its user has as-uid, as-groups or as-user-extra without as", "add the field as")
    return headers


def _are_header_values(values: object) -> bool:
    if not isinstance(values, list):
        return False
    return all(isinstance(value, str) and not find_wrong_character(value) for value in values)


def _removed_provider(provider: object) -> KubeconfigRefused:
    name = provider.get("name") if isinstance(provider, Mapping) else None
    hint = _PROVIDERS.get(name, "use exec with a credential plugin") if isinstance(name, str) else ""
    shown = f" {name}" if name in _PROVIDERS else ""
    return KubeconfigRefused(f"its user has the auth-provider{shown}, and providers are not supported", hint)
