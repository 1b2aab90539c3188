"""Connection settings of a cluster, and the kubernetes client made from them."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from trainjob.client.kubeconfig_fields import KubeconfigRefused
from trainjob.errors import CredentialPluginFailed, InvalidSpec, NoClusterConfigured, Problem, ProblemKind

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from trainjob.client.kubeconfig import LoadedContext

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_POOL_SIZE = 64  # watches and log streams each hold a connection


@dataclass(frozen=True)
class Connection:
    """Settings to reach a cluster and to authenticate there.

    If all fields are empty, the client uses `KUBECONFIG`, then `~/.kube/config`, then the pod's service account.

    The fields name files instead of holding credentials, so that they can travel in a trigger's arguments: `token_file`
    names a file, never a token. Only `kubeconfig_text` may hold credentials.

    Attributes:
        kubeconfig: path of a kubeconfig file.
        kubeconfig_text: content of a kubeconfig, as YAML or JSON, if there is no file. The representation shows `***`
            instead, because it may hold credentials.
        context: context of the kubeconfig; empty means its current context.
        in_cluster: whether to use the pod's own service account.
        server: URL of an API server, for an explicit connection.
        token_file: file with the bearer token for `server`; read again before each request.
        ca_file: file with the certificate authority of `server`.
        namespace: default namespace; empty means that of the context or of the pod, then `default`.
        verify_tls: whether to check the server's certificate.
        run_plugins: whether a credential plugin (`exec`) of the kubeconfig may run in this process.
    """

    kubeconfig: str = ""
    kubeconfig_text: str = ""
    context: str = ""
    in_cluster: bool = False
    server: str = ""
    token_file: str = ""
    ca_file: str = ""
    namespace: str = ""
    verify_tls: bool = True
    run_plugins: bool = True

    def __post_init__(self) -> None:
        given = [name for name in ("kubeconfig", "kubeconfig_text", "in_cluster", "server") if getattr(self, name)]
        if len(given) > 1:
            raise InvalidSpec(
                Problem(
                    "connection",
                    " and ".join(given),
                    "give only one of them, because each of them selects a cluster",
                )
            )
        if "@" in self.server.partition("://")[2].partition("/")[0]:
            rule = "it must not contain a user name or password; name a file with the bearer token in token_file"
            raise InvalidSpec(Problem("connection.server", "***", rule))
        if (self.token_file or self.ca_file) and not self.server:
            raise InvalidSpec(
                Problem(
                    "connection.server", "nothing", "token_file and ca_file need the server's URL", ProblemKind.MISSING
                )
            )

    def __repr__(self) -> str:
        hidden = ("verify_tls", "run_plugins")
        shown = {name: value for name, value in asdict(self).items() if value and name not in hidden}
        if "kubeconfig_text" in shown:
            shown["kubeconfig_text"] = "***"
        return f"Connection({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def uses_service_account(self) -> bool:
        """Whether the connection uses the pod's own service account.

        It does if `in_cluster` is set, or if no other way is given or configured.
        """
        return self.in_cluster or not (self.server or self.kubeconfig or self.kubeconfig_text or _default_kubeconfig())

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


def open_client(connection: Connection) -> tuple[ApiClient, str]:
    """Create a kubernetes client, and return it with the default namespace.

    The client is separate from the library's global client. Its `default_headers` are those that impersonate a user.

    Raises:
        NoClusterConfigured: no connection is configured, or the kubeconfig can't be used.
        CredentialPluginFailed: the credential plugin of the kubeconfig gives no credentials.
    """
    import urllib3
    import yaml
    from kubernetes import client

    configuration = client.Configuration()
    try:
        context = _configure(connection, configuration)
        configuration.connection_pool_maxsize = _POOL_SIZE
        configuration.retries = False  # only trainjob.client.backoff retries
        if not connection.verify_tls:
            configuration.verify_ssl = False
        configuration.host = _check_url(configuration.host)
        if _is_loopback(configuration.host):
            configuration.proxy = None  # kubernetes 31 and later take HTTP_PROXY for loopback, too; kubectl does not
        if context.proxy:
            _use_proxy(configuration, context.proxy)
        opened = client.ApiClient(configuration)
        context.certificates.apply_to(opened)
        opened.default_headers = urllib3.HTTPHeaderDict()
        for name, value in context.impersonation:
            opened.default_headers.add(name, value)
        return opened, connection.namespace or context.namespace or "default"
    except (NoClusterConfigured, CredentialPluginFailed):
        raise
    except KubeconfigRefused as error:
        raise _unusable_connection(connection, error.reason, error.hint) from None
    except yaml.YAMLError as error:  # its text shows the line, which may have a token
        mark = getattr(error, "problem_mark", None)
        place = f", at line {mark.line + 1}" if mark else ""
        raise _unusable_connection(connection, f"it is neither YAML nor JSON{place}") from None
    except Exception as error:  # noqa: BLE001 - kubernetes raises many types of errors on a kubeconfig with wrong types
        # If kubernetes quotes a part of the kubeconfig, that part may be a token.
        text = re.sub(r"^\[Errno \d+\] ", "", " ".join(str(error).split()))
        raise _unusable_connection(connection, re.split(r"[{\[]", text)[0].strip()) from None


def _check_url(server: str) -> str:
    """Return the API server's URL without a slash at its end.

    Raises:
        ValueError: the value is not the URL of an API server.
    """
    rule = "the server must be the URL of an API server, such as https://HOST:6443"
    try:
        parts = urlsplit(server)
        has_port = parts.port != 0
    except ValueError:
        raise ValueError(rule) from None
    if parts.scheme not in ("https", "http") or not parts.hostname or not has_port or re.search(r"[^!-~]", server):
        raise ValueError(rule)
    return server.rstrip("/")


def _use_proxy(configuration: Any, url: str) -> None:
    """Use a proxy whatever the environment says, as kubectl does."""
    from urllib3.util import make_headers

    user, _, address = url.partition("://")[2].rpartition("@")
    configuration.proxy, configuration.no_proxy = f"{url.partition('://')[0]}://{address}", None
    configuration.proxy_headers = make_headers(proxy_basic_auth=unquote(user)) if user else None


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _configure(connection: Connection, configuration: Any) -> LoadedContext:
    """Fill the configuration, and return what it does not have."""
    import yaml
    from kubernetes import config

    from trainjob.client.kubeconfig import InlineCertificates, LoadedContext, load_kubeconfig

    namespace = ""
    if connection.server:
        _configure_explicit(connection, configuration)
    elif connection.uses_service_account:
        config.load_incluster_config(client_configuration=configuration)
        namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else ""
    else:
        content = yaml.safe_load(connection.kubeconfig_text) if connection.kubeconfig_text else None
        path = connection.kubeconfig or _default_kubeconfig()
        context, run_plugins = connection.context or None, connection.run_plugins
        return load_kubeconfig(configuration, path=path, content=content, context=context, run_plugins=run_plugins)
    return LoadedContext(namespace, InlineCertificates(), proxy="", impersonation=[])


def _configure_explicit(connection: Connection, configuration: Any) -> None:
    configuration.host = connection.server
    if connection.ca_file:
        configuration.ssl_ca_cert = connection.ca_file
    if not connection.token_file:
        return

    def read_token(target: Any) -> None:
        try:
            token = Path(connection.token_file).read_text().strip()
        except OSError as error:
            if target.api_key:  # the file is being replaced; the token in use may still be valid
                return
            raise NoClusterConfigured(
                f"the token file {connection.token_file} can't be read: {error.strerror}",
                hint="name a readable file that holds the bearer token",
            ) from error
        target.api_key["authorization"] = target.api_key["BearerToken"] = f"Bearer {token}"

    read_token(configuration)
    configuration.refresh_api_key_hook = read_token  # the client calls it before each request


def _default_kubeconfig() -> str:
    """Return the path in `KUBECONFIG`, or `~/.kube/config` unless it does not exist.

    `KUBECONFIG` may name a file that does not exist, and `~/.kube` may be a folder without permission; the client then
    raises an error for that file. The result is empty if neither is set.
    """
    default = Path.home() / ".kube" / "config"
    try:
        exists = default.stat() is not None
    except OSError as error:
        exists = isinstance(error, PermissionError)
    return os.environ.get("KUBECONFIG", "") or (str(default) if exists else "")


def _unusable_connection(connection: Connection, reason: str, hint: str = "") -> NoClusterConfigured:
    if connection.in_cluster:
        return NoClusterConfigured(
            f"the pod's service account can't be used: {reason}",
            hint="run in a pod with a mounted service account token",
        )
    if connection.server:
        return NoClusterConfigured(f"the server {connection.server} can't be used: {reason}")
    source = connection.kubeconfig or _default_kubeconfig()
    if not source and not connection.kubeconfig_text:
        return NoClusterConfigured(
            "no cluster is configured: KUBECONFIG is not set, ~/.kube/config does not exist, and this process does not "
            "run in a pod",
            hint="set KUBECONFIG, or start a laptop cluster with `trainjob local up`",
        )
    return NoClusterConfigured(
        f"the kubeconfig {'of this connection' if connection.kubeconfig_text else source} can't be used: {reason}",
        hint=hint or "check that the file exists and that its context names a cluster and a user",
    )
