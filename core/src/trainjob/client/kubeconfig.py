"""Loader of kubeconfig files that keeps certificates and keys in memory.

kubernetes 30 to 36 writes the certificates and the private key that a kubeconfig or a credential plugin gives as text
into temporary files, and deletes them at the interpreter's exit. A process that is killed leaves the key behind. This
loader passes them to TLS without a file that has a name.
"""

from __future__ import annotations

import base64
import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

# Imported at the module's level, because a class below inherits. Only `connection.open_client` imports this module.
from kubernetes.config.config_exception import ConfigException  # noqa: TID253
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger  # noqa: TID253

from trainjob.client.credential_plugin import run_plugin
from trainjob.client.kubeconfig_fields import KubeconfigRefused, check_fields, check_proxy, impersonation_headers
from trainjob.errors import CredentialPluginRefused

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration

_CA, _CERTIFICATE, _KEY = "certificate-authority-data", "client-certificate-data", "client-key-data"


@dataclass(frozen=True)
class InlineCertificates:
    """Certificates and key, in PEM format, that a kubeconfig or a plugin gives as text.

    Attributes:
        authority: certificates of the authorities that the server's certificate is checked against.
        client: certificate of the client, with its chain.
        key: private key of the client.
    """

    authority: bytes = b""
    client: bytes = b""
    key: bytes = b""

    def apply_to(self, client: ApiClient) -> None:
        """Make a kubernetes client use them.

        Raises:
            ConfigException: they are not valid PEM, do not belong together, or the key has a password.
        """
        if not (self.authority or self.client or self.key):
            return
        from urllib3.util.ssl_ import create_urllib3_context

        options = client.rest_client.pool_manager.connection_pool_kw
        context = create_urllib3_context(cert_reqs=options["cert_reqs"])
        if self.authority:
            with _explained("its certificate authority is not a PEM certificate"):
                context.load_verify_locations(cadata=self.authority.decode("ascii", errors="ignore"))
            options["ca_certs"] = None  # kubernetes 30 would also trust the public authorities
        elif not options["ca_certs"]:
            context.load_default_certs()
        if self.client or self.key:
            with contextlib.ExitStack() as stack:
                certificate = stack.enter_context(_unnamed_file(self.client)) if self.client else options["cert_file"]
                key = stack.enter_context(_unnamed_file(self.key)) if self.key else options["key_file"]
                stack.enter_context(_explained("its client certificate and key are not a pair in PEM without password"))
                context.load_cert_chain(certificate, key, password="")  # without it, OpenSSL prompts for one
            options["cert_file"] = options["key_file"] = None
        options["ssl_context"] = context


@contextlib.contextmanager
def _explained(problem: str) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, ValueError, TypeError) as error:
        raise ConfigException(problem) from error


@contextlib.contextmanager
def _unnamed_file(content: bytes) -> Iterator[str]:
    """Yield a path to content that vanishes with the process, even after SIGKILL.

    Linux keeps it in memory only. Elsewhere, the file has lost its name before the content is written.
    """
    with _open_unnamed_file() as file:
        file.write(content)
        file.flush()
        file.seek(0)  # on macOS, a reader of the path starts at this position
        yield f"/dev/fd/{file.fileno()}"


def _open_unnamed_file() -> IO[bytes]:
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or a sandbox refuses it
        return os.fdopen(os.memfd_create("trainjob"), "w+b")
    return tempfile.TemporaryFile()


class InMemoryLoader(KubeConfigLoader):  # type: ignore[misc]
    """kubernetes' loader of a kubeconfig, without its temporary files and its loose checks.

    The methods that it overrides are the same in kubernetes 30 to 36.
    """

    _cluster: Any  # set by the base class
    _user: Any

    def __init__(self, *arguments: Any, run_plugins: bool, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._certificates, self._may_run_plugins = InlineCertificates(), run_plugins
        context = _checked("context", self._current_context["context"]).value
        self._namespace = context.get("namespace", "")
        if self._user is None and context.get("user"):
            raise KubeconfigRefused(
                f"its user {context['user']} does not exist", "add the user, or correct the context"
            )
        self._cluster = _checked("cluster", self._cluster)
        self._user = ConfigNode("user", {}) if self._user is None else _checked("user", self._user)
        if not self._cluster.value.get("server"):
            raise KubeconfigRefused("its cluster has no server", "add the URL of the API server")

    @property
    def loaded(self) -> LoadedContext:
        """The part of the context that the configuration does not have."""
        proxy = check_proxy(self._cluster.value["proxy-url"]) if self._cluster.value.get("proxy-url") else ""
        return LoadedContext(self._namespace, self._certificates, proxy, impersonation_headers(self._user.value))

    def _load_user_token(self) -> bool:
        """Read the token; a token file comes first.

        client-go 0.36 does so, too: transport/token_source.go.
        """
        token = str(self._user.value.get("token", ""))
        if name := self._user.value.get("tokenFile"):
            path = Path(self._folder(self._user)) / name
            try:
                token = path.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise KubeconfigRefused(f"its token file {path} can't be read: {reason}") from None
        if token:
            self.token = f"Bearer {token}"
        return bool(token)

    def _load_from_exec_plugin(self) -> bool:
        """Run the credential plugin of the user, and return whether it has one."""
        if "exec" not in self._user:
            return False
        if not self._may_run_plugins:
            raise CredentialPluginRefused(
                "the kubeconfig gets its credentials from a plugin (exec), which this process does not run",
                hint="give it a token or a client certificate",
            )
        given = run_plugin(
            check_fields("exec", self._user.value["exec"]), self._cluster.value, self._folder(self._user)
        )
        if given.expires_at:
            self.expiry = given.expires_at
        if given.token:
            self.token = f"Bearer {given.token}"
        if given.certificate:
            self._certificates = InlineCertificates(client=given.certificate.encode(), key=given.key.encode())
            self.cert_file = self.key_file = None  # instead of the user's
        return True

    def _folder(self, node: Any) -> str:
        return str(self._get_base_path(node.path))

    def _load_cluster_info(self) -> None:
        cluster, user = self._cluster, self._user
        self._cluster, self._user = _without(cluster, _CA), _without(user, _CERTIFICATE, _KEY)
        try:
            super()._load_cluster_info()
        finally:
            self._cluster, self._user = cluster, user
        if str(self.__dict__.get("host", "")).startswith("https"):
            plugin = self._certificates
            self._certificates = InlineCertificates(
                authority=_decode(cluster, _CA),
                client=plugin.client or _decode(user, _CERTIFICATE),
                key=plugin.key or _decode(user, _KEY),
            )


@dataclass(frozen=True)
class LoadedContext:
    """The part of a context that the client's configuration does not have.

    Attributes:
        namespace: its namespace; empty if it has none.
        certificates: certificates and key that it has as text.
        proxy: URL of the proxy to its cluster; empty if it names none.
        impersonation: headers that each request needs.
    """

    namespace: str
    certificates: InlineCertificates
    proxy: str
    impersonation: list[tuple[str, str]]


def load_kubeconfig(
    configuration: Configuration,
    *,
    path: str = "",
    content: Any = None,
    context: str | None = None,
    run_plugins: bool = True,
) -> LoadedContext:
    """Load a context of a kubeconfig into a configuration of the kubernetes client.

    Args:
        configuration: configuration to change.
        path: path of the file, or several as in `KUBECONFIG`.
        content: the kubeconfig itself, instead of a path.
        context: name of the context; None means the current one.
        run_plugins: whether its credential plugin may run.

    Raises:
        CredentialPluginRefused: it has a credential plugin, which may not run.
        CredentialPluginFailed: its credential plugin gives no credentials.
        KubeconfigRefused: a field of it is wrong, unknown or was removed from Kubernetes.
        Exception: the kubeconfig can't be used for another reason.
    """
    if content is None:
        _check_permissions(path)
        content = KubeConfigMerger(path).config
        if content is None:
            raise ConfigException("the file does not exist")
    loader = InMemoryLoader(content, context, config_base_path=None, run_plugins=run_plugins)
    loader.load_and_set(configuration)
    return loader.loaded


def _check_permissions(paths: str) -> None:
    """Raise PermissionError for a file in a folder that may not be searched.

    kubernetes 36 skips such a file as if it did not exist. kubectl 1.36 reports it.
    """
    for path in filter(None, paths.split(os.pathsep)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            Path(path).expanduser().stat()


def _checked(section: str, node: Any) -> Any:
    """Return a part of a kubeconfig with its checked fields."""
    is_node = isinstance(node, ConfigNode)
    return ConfigNode(section, check_fields(section, node.value if is_node else node), node.path if is_node else None)


def _without(node: Any, *names: str) -> Any:
    """Return a part of a kubeconfig without some fields; the part itself is not changed."""
    return ConfigNode(node.name, {name: value for name, value in node.value.items() if name not in names}, node.path)


def _decode(node: Any, name: str) -> bytes:
    return base64.standard_b64decode(node.value[name]) if node.value.get(name) else b""
