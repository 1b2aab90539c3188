"""Credentials that are replaced while a client uses them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from trainjob.client import Connection


class Credentials:
    """A token that a client reads from a file, a kubeconfig or a credential plugin.

    Attributes:
        kubeconfig: the kubeconfig file.
        plugin_runs: file with a line for each run of the plugin.
    """

    def __init__(self, kind: str, folder: Path, server: str) -> None:
        """Write the token `old`.

        Args:
            kind: `token file`, `kubeconfig` or `plugin`.
            folder: folder of the files.
            server: URL of the API server.
        """
        self._token, self.kubeconfig, self.plugin_runs = folder / "token", folder / "kubeconfig", folder / "runs"
        self._kind, self._server = kind, server
        self.replace("old")

    def replace(self, token: str) -> None:
        """Write another token, in the way that Kubernetes and kubectl do."""
        self._write(self._token, token)
        user = {"token": token} if self._kind == "kubeconfig" else {"exec": self._plugin()}
        content = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
            "clusters": [{"name": "c", "cluster": {"server": self._server}}],
            "users": [{"name": "u", "user": user}],
        }
        self._write(self.kubeconfig, json.dumps(content))

    def connection(self) -> Connection:
        """Return the settings with which a client reads these credentials."""
        if self._kind == "token file":
            return Connection(server=self._server, token_file=str(self._token), namespace="default")
        return Connection(kubeconfig=str(self.kubeconfig))

    def _plugin(self) -> dict[str, Any]:
        version = "client.authentication.k8s.io/v1"
        response = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "TOKEN"}}
        before, _, after = json.dumps(response).partition("TOKEN")
        token, runs = shlex.quote(str(self._token)), shlex.quote(str(self.plugin_runs))
        script = f"echo >> {runs}; printf '%s%s%s' {shlex.quote(before)} \"$(cat {token})\" {shlex.quote(after)}"
        return {"apiVersion": version, "command": "sh", "args": ["-c", script]}

    @staticmethod
    def _write(path: Path, content: str) -> None:
        new = path.with_suffix(".new")
        new.write_text(content)
        new.replace(path)
