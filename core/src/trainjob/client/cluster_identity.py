"""Identity of a cluster, which processes with different connections compare.

It is taken from the connection alone, so it needs no request and no permission. Kubernetes has no ID of a cluster: the
usual substitute, the uid of a namespace, needs a permission that most users do not have.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_MAX_AUTHORITIES = 8  # more are a bundle of public authorities, which identifies no cluster


@dataclass(frozen=True)
class ClusterIdentity:
    """Address and certificate authorities by which a process reaches a cluster.

    Each cluster has an authority of its own by default, and one cluster has several addresses: a service inside, a load
    balancer outside. So the authorities decide, and the address only if an authority is unknown. In a pod, the address
    of another cluster may be the same.

    Attributes:
        server: URL of the API server.
        authorities: hashes of the certificates of the authorities that the server is checked against; empty if they are
            those of the operating system, or the server is not checked.
    """

    server: str
    authorities: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the identity as JSON values."""
        return {"server": self.server, "authorities": list(self.authorities)}

    @classmethod
    def from_dict(cls, values: Any) -> ClusterIdentity | None:
        """Return the identity from the result of [to_dict][] of any version.

        Returns:
            None if it has no address.
        """
        if not isinstance(values, Mapping) or not isinstance(values.get("server"), str):
            return None
        authorities = values.get("authorities")
        return cls(values["server"], tuple(map(str, authorities)) if isinstance(authorities, list) else ())

    def may_differ(self, other: ClusterIdentity) -> bool:
        """Return whether the other identity may be that of another cluster.

        It also does if the authorities can't be compared and the addresses differ. So use it only if the TrainJob was
        not found: the alternative is that it was deleted.
        """
        if self.authorities and other.authorities:
            return not self._shares_authority(other)
        return self.server != other.server

    def differs(self, other: ClusterIdentity) -> bool:
        """Return whether both address and authority are those of another cluster."""
        both_known = bool(self.authorities and other.authorities)
        return both_known and self.server != other.server and not self._shares_authority(other)

    def _shares_authority(self, other: ClusterIdentity) -> bool:
        # While an authority is replaced, connections have the old one and the new one.
        return not set(self.authorities).isdisjoint(other.authorities)


def identify_cluster(server: str, client: ApiClient) -> ClusterIdentity:
    """Return the identity of the cluster that a kubernetes client reaches.

    Args:
        server: URL of the API server, without credentials.
        client: the client.
    """
    configuration = client.configuration
    is_checked = configuration.host.startswith("https") and configuration.verify_ssl
    authorities = _read_authorities(client) if is_checked else []
    if len(authorities) > _MAX_AUTHORITIES:
        return ClusterIdentity(server)
    return ClusterIdentity(server, tuple(sorted({hashlib.sha256(one).hexdigest()[:16] for one in authorities})))


def _read_authorities(client: ApiClient) -> list[bytes]:
    """Return the certificates of the connection's authorities, in DER format.

    The list is empty if they can't be read.
    """
    context = client.rest_client.pool_manager.connection_pool_kw.get("ssl_context")
    if context is not None and not client.configuration.ssl_ca_cert:  # a kubeconfig with the certificates in it
        return list(context.get_ca_certs(binary_form=True))
    try:
        pem = Path(client.configuration.ssl_ca_cert or os.devnull).read_text()
        return [ssl.PEM_cert_to_DER_cert(one) for one in _CERTIFICATE.findall(pem)]
    except (OSError, ValueError):
        return []
