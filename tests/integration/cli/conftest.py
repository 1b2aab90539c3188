"""Fixtures that run the `trainjob` command in a separate process, against the laptop cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from tests.support.pseudo_terminal import PseudoTerminal

_SECONDS = 300.0  # for one command, on a busy machine


@pytest.fixture
def environment(laptop):
    """Return the environment of a command: the laptop's kubeconfig, and a wide terminal."""
    return {**os.environ, "KUBECONFIG": str(laptop.kubeconfig), "COLUMNS": "200"}


@pytest.fixture
def trainjob(environment):
    """Return a function that runs the command: `trainjob(*arguments, input=None, env=None)`."""

    def run(*arguments, env=None, **options):
        return subprocess.run(
            [sys.executable, "-m", "trainjob", *map(str, arguments)],
            env={**environment, **(env or {})},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            **options,
        )

    return run


@pytest.fixture
def start_command(environment):
    """Return a function that starts the command with pipes: `start(*arguments, **options)`.

    A command that still runs after five minutes, or after the test, is killed. So reading from its pipes always ends.
    """
    processes = []

    def start(*arguments, **options):
        command = [sys.executable, "-m", "trainjob", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=environment, **(pipes | options))
        alarm = threading.Timer(_SECONDS, process.kill)
        alarm.start()
        processes.append((process, alarm))
        return process

    yield start
    for process, alarm in processes:
        alarm.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def namespace(cluster, unique):
    """Create a namespace for this test and return its name."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    cluster._http.request("POST", "/api/v1/namespaces", doing="create a namespace", body=body)
    return unique


@pytest.fixture
def terminal(environment):
    """Return a function that starts the command on a pseudo terminal: `start(*arguments)`."""
    opened = []

    def start(*arguments):
        opened.append(PseudoTerminal([sys.executable, "-m", "trainjob", *map(str, arguments)], environment))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
