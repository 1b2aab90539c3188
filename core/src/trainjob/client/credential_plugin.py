"""Runner of a kubeconfig's credential plugin (`exec`), which gives a token or a client certificate.

The runner of the kubernetes client waits for ever, and its caller goes on without credentials after a failure. The
contract is Kubernetes': kubernetes.io/docs, "Authenticating: client-go credential plugins".
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from trainjob.client.kubeconfig_fields import KubeconfigRefused
from trainjob.credentials import redact_credentials
from trainjob.errors import CredentialPluginFailed

_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_MAX_SECONDS = 60.0
_REPORT_SECONDS = 5.0  # after which a log line names the plugin
_MAX_REASON = 300  # characters of the plugin's output that an error shows
_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True)
class PluginCredentials:
    """Credentials of a plugin.

    Attributes:
        token: bearer token; empty if there is none.
        certificate: client certificate in PEM format; empty if there is none.
        key: its private key in PEM format.
        expires_at: time after which the plugin runs again; None if it never expires.
    """

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires_at: datetime | None = None


def run_plugin(config: Mapping[str, Any], cluster: Mapping[str, Any], folder: str) -> PluginCredentials:
    """Run a plugin, and return its credentials.

    On a terminal the plugin may prompt its user, and has no time limit.

    Args:
        config: the fields of `exec`.
        cluster: the fields of the context's cluster.
        folder: folder of the kubeconfig, for a relative path of the command.

    Raises:
        CredentialPluginFailed: the plugin failed, took longer than a minute, or gave no credentials.
        KubeconfigRefused: its command does not exist here, or the fields are wrong.
    """
    version, command = config.get("apiVersion"), config.get("command")
    if version not in _VERSIONS:
        raise KubeconfigRefused("its exec has another apiVersion", f"use {_VERSIONS[0]}, and a plugin that knows it")
    is_interactive = config.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if config.get("interactiveMode") == "Always" and not is_interactive:
        raise KubeconfigRefused("its exec has interactiveMode Always, and this process has no terminal")
    spec: dict[str, Any] = {"interactive": is_interactive}
    if config.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster, folder)
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **_variables(config), "KUBERNETES_EXEC_INFO": json.dumps(request)}
    arguments = config.get("args", [])
    if not command or not all(isinstance(text, str) for text in arguments):
        raise KubeconfigRefused("its exec has no command, or args that are no texts")
    path = str(Path(folder) / command) if os.sep in command else command  # an absolute command stays absolute
    try:
        output = _run([path, *arguments], environment, is_interactive=is_interactive)
    except (FileNotFoundError, PermissionError) as error:
        hint = str(
            config.get("installHint") or "install the plugin on this machine, and check the PATH of this process"
        )
        reason = f"its credential plugin {command} can't be started: {error.strerror}"
        raise KubeconfigRefused(reason, " ".join(hint.split())) from None
    return _parse(output, str(version), command)


def _run(command: list[str], environment: Mapping[str, str], *, is_interactive: bool) -> bytes:
    """Return the standard output of a plugin.

    Raises:
        CredentialPluginFailed: its exit code is not 0, or it took longer than a minute.
        OSError: it can't be started.
    """
    name = command[0]
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=None if is_interactive else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if is_interactive else subprocess.PIPE,
        start_new_session=not is_interactive,  # so that its own children end with it
    ) as process:
        try:
            output, errors = _communicate(process, name, None if is_interactive else _MAX_SECONDS)
        except subprocess.TimeoutExpired:
            raise _failed(name, f"it did not end within {_MAX_SECONDS:.0f} s") from None
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL) if not is_interactive else process.kill()
    if process.returncode:
        lines = redact_credentials((errors or b"").decode(errors="replace"), environment).strip().splitlines()
        raise _failed(name, lines[-1][:_MAX_REASON] if lines else f"exit code {process.returncode}")
    return output


def _communicate(process: subprocess.Popen[bytes], name: str, seconds: float | None) -> tuple[bytes, bytes]:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=_REPORT_SECONDS)
    logging.getLogger(__name__).warning("waiting for the credential plugin %s", name)
    return process.communicate(timeout=None if seconds is None else seconds - _REPORT_SECONDS)


def _parse(output: bytes, version: str, command: str) -> PluginCredentials:
    """Return the credentials of a plugin's output, which no error shows.

    Raises:
        CredentialPluginFailed: it has none.
    """
    try:
        found = json.loads(output)
        status = found["status"]
        certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
        credentials = PluginCredentials(status.get("token") or "", certificate, key, _parse_time(status))
        are_texts = all(isinstance(text, str) for text in (credentials.token, certificate, key))
        is_complete = bool(certificate) == bool(key) and bool(credentials.token or certificate)
        if found["apiVersion"] == version and are_texts and is_complete:
            return credentials
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        pass
    expected = f"an ExecCredential of {version} with a token, or with a client certificate and its key"
    raise _failed(command, f"it gave no such output: {expected}")


def _parse_time(status: Mapping[str, Any]) -> datetime | None:
    from kubernetes.config.dateutil import parse_rfc3339

    text = status.get("expirationTimestamp")
    return parse_rfc3339(text) if text else None


def _cluster_info(cluster: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the fields of the cluster for a plugin.

    They are those of client-go 0.36, pkg/apis/clientauthentication/v1/types.go.
    """
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    info = {name: cluster[name] for name in (*names, "disable-compression") if name in cluster}
    if authority := cluster.get("certificate-authority"):
        with contextlib.suppress(OSError):  # the connection reports it
            content = (Path(folder) / authority).read_bytes()
            info.setdefault("certificate-authority-data", base64.b64encode(content).decode())
    for extension in cluster.get("extensions", []):
        if isinstance(extension, dict) and extension.get("name") == _EXTENSION:
            info["config"] = extension.get("extension")
    return info


def _variables(config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in config.get("env", []):
        name, value = (item.get("name"), item.get("value")) if isinstance(item, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(value, str):
            raise KubeconfigRefused("the env of its exec is no list of name and value")
        found[name] = value
    return found


def _failed(command: str, reason: str) -> CredentialPluginFailed:
    message = f"the credential plugin {command} of the kubeconfig failed: {reason}"
    logging.getLogger(__name__).warning("%s", message)  # it is tried again, and its user may have to log in
    return CredentialPluginFailed(message, hint="log in again, or run the plugin by itself to see what it needs")
