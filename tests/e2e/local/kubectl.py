"""The real kubectl, as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

_SECONDS = 60


class Kubectl:
    """kubectl with a kubeconfig, a namespace and a home folder of its own.

    Its environment names a proxy that does not exist, because Go programs must not use it for loopback.
    """

    def __init__(self, program: Path, kubeconfig: Path, namespace: str, home: Path) -> None:
        self._program, self.namespace, self.home = program, namespace, home
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
        self._environment = {**os.environ, **proxies, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command; the caller reads its standard output and ends it."""
        command = [str(self._program), "--namespace", self.namespace, *arguments]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True)

    def attempt(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with a text as standard input, and return its result."""
        command = [str(self._program), "--namespace", self.namespace, *arguments]
        return subprocess.run(
            command, env=self._environment, input=text, capture_output=True, text=True, timeout=_SECONDS
        )

    def run(self, *arguments: str, text: str = "") -> str:
        """Run a command that must succeed, and return its standard output."""
        done = self.attempt(*arguments, text=text)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def fail(self, *arguments: str, text: str = "") -> str:
        """Run a command that must fail, and return its standard error."""
        done = self.attempt(*arguments, text=text)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def table(self, *arguments: str) -> list[dict[str, str]]:
        """Run a command that prints a table, and return its rows by column."""
        head, *rows = self.run(*arguments).splitlines()
        columns = [(found.group(), found.start()) for found in re.finditer(r"\S+( \S+)*", head)]
        ends = [*(start for _, start in columns[1:]), None]
        places = [(name, slice(start, end)) for (name, start), end in zip(columns, ends, strict=True)]
        return [{name: row[place].strip() for name, place in places} for row in rows]

    def read(self, kind: str, name: str) -> Any:
        """Return an object."""
        return json.loads(self.run("get", kind, name, "--output", "json"))


def trainjob(name: str, script: str, **labels: str) -> str:
    """Return the manifest of a TrainJob that runs a shell script."""
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"image": "busybox", "command": ["sh", "-c", script]},
    }
    metadata = {"name": name, "labels": labels}
    return json.dumps(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
    )


def pod(name: str, script: str, **metadata: Any) -> str:
    """Return the manifest of a pod whose container `main` runs a script; `side` ends."""
    containers = [
        {"name": "main", "image": "busybox", "command": ["sh", "-c", script]},
        {"name": "side", "image": "busybox", "command": ["sh", "-c", "echo from the side"]},
    ]
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": containers}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec})
