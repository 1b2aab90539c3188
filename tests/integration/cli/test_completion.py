"""What a shell offers after TAB, by the protocol that its script speaks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.integration.cli.bare_apiserver import bare_apiserver

pytestmark = pytest.mark.slow

SLOW_COMPLETION = "from trainjob.cli import completion, main; completion._SECONDS = 60; main()"


@pytest.fixture
def complete_words(tmp_path):
    """What is offered for a command line, of which the last word is not whole yet.

    The command waits longer for the cluster than at a person's prompt, because a busy machine may need more.
    """

    def complete(kubeconfig, *words):
        asked = {"_TRAINJOB_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["trainjob", *words])}
        done = subprocess.run(
            [sys.executable, "-c", SLOW_COMPLETION],
            env={**os.environ, **asked, "COMP_CWORD": str(len(words)), "KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return complete


def test_names_that_the_cluster_has(tmp_path, complete_words):
    with bare_apiserver(tmp_path) as alone:
        for name in ("train-a", "train-b", "other"):
            alone.create_trainjob(name)
        alone.create_namespace("team-a")
        alone.create_runtime("torch-mine")
        for words, names in (
            (("describe", "tr"), ["train-a", "train-b"]),
            (("watch", "train-a", "tr"), ["train-b"]),
            (("cancel", "train-a", "tr"), ["train-b"]),
            (("logs", "tr"), ["train-a", "train-b"]),
            (("list", "-n", "te"), ["team-a"]),
            (("runtimes", "torch"), ["torch-mine"]),
        ):
            assert complete_words(tmp_path / "none", "--kubeconfig", str(alone.kubeconfig), *words) == names


def test_without_a_cluster_nothing_is_offered_and_nothing_said(tmp_path, complete_words):
    assert complete_words(tmp_path / "none", "describe", "tr") == []
    assert complete_words(tmp_path / "none", "desc") == ["describe"]
