"""Tests of shell completion, with the protocol of typer's completion script."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.integration.cli.bare_apiserver import bare_apiserver

pytestmark = pytest.mark.slow

SLOW_COMPLETION = "from trainjob.cli import completion, main; completion._TIMEOUT_SECONDS = 60; main()"


@pytest.fixture
def complete_words(tmp_path):
    """Return a function that completes the last word of a command line.

    The command waits longer for the cluster than at a user's prompt, because a busy machine may need more time.
    """

    def complete(kubeconfig, *words):
        variables = {"_TRAINJOB_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["trainjob", *words])}
        done = subprocess.run(
            [sys.executable, "-c", SLOW_COMPLETION],
            env={**os.environ, **variables, "COMP_CWORD": str(len(words)), "KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return complete


def test_completion_offers_names_from_the_cluster(tmp_path, complete_words):
    with bare_apiserver(tmp_path) as api_server:
        for name in ("train-a", "train-b", "other"):
            api_server.create_trainjob(name)
        api_server.create_namespace("team-a")
        api_server.create_runtime("torch-mine")
        for words, names in (
            (("describe", "tr"), ["train-a", "train-b"]),
            (("watch", "train-a", "tr"), ["train-b"]),
            (("cancel", "train-a", "tr"), ["train-b"]),
            (("logs", "tr"), ["train-a", "train-b"]),
            (("list", "-n", "te"), ["team-a"]),
            (("runtimes", "torch"), ["torch-mine"]),
        ):
            assert complete_words(tmp_path / "none", "--kubeconfig", str(api_server.kubeconfig), *words) == names


def test_completion_without_a_cluster_offers_nothing_and_prints_no_error(tmp_path, complete_words):
    assert complete_words(tmp_path / "none", "describe", "tr") == []
    assert complete_words(tmp_path / "none", "desc") == ["describe"]
