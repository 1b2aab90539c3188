"""Environment variables that name an HTTP proxy."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["exempt_loopback"]

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOOPBACK = ("127.0.0.1", "localhost")


def exempt_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with NO_PROXY for loopback, if it names a proxy.

    Containers reach the API server, other pods and a loopback Hub at 127.0.0.1, where no proxy can reach them. Both
    spellings are set, because programs differ in the one that they prefer.
    """
    if not any(environment.get(name) or environment.get(name.lower()) for name in _PROXIES):
        return dict(environment)
    given = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    listed = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
    return {**environment, "NO_PROXY": listed, "no_proxy": listed}
