"""Tests of the two pipelines with which a person approves a model, with `kfp.local` and the laptop cluster."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.evaluation.conftest import TASKS, trained
from tests.support.evaluated_models import laptop_with_models
from tests.support.kubernetes_client import Client
from tests.support.training_fixtures import hub
from trainjob_demo.engines.kfp import RUN_PIPELINE

__all__ = ["hub", "trained"]
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "kfp"


def run_example(laptop, name, **arguments):
    """Run an example, and return its exit code and log."""
    words = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments.items()]
    done = subprocess.run(
        [sys.executable, RUN_PIPELINE, EXAMPLES / f"{name}.py", "run", *words],
        env={**os.environ, "KUBECONFIG": str(laptop.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("passed", [True, False])
def test_a_proposal_is_promoted_if_its_gates_have_passed(laptop, claim, passed):
    client = Client.from_kubeconfig(str(laptop.kubeconfig))
    uid = client.get("PersistentVolumeClaim", "default", claim)["metadata"]["uid"]
    client.close()
    proposal = {"model": "/workspace/candidate", "report": {"passed": passed}}
    code, log = run_example(laptop, "promote_approved", proposal=proposal, workspace=claim)
    champion = laptop.state / "volumes" / f"default_{claim}_{uid[:8]}" / "champion"
    if passed:
        assert code == 0, log
        assert champion.readlink().name == "candidate"
    else:
        assert code != 0
        assert "/workspace/candidate is not promoted: a gate of its evaluation has failed" in log
        assert not champion.is_symlink()


@pytest.mark.slow
@pytest.mark.lm_eval
def test_a_person_reads_the_summary_and_promotes_what_was_proposed(hub, trained, tmp_path):
    with laptop_with_models(tmp_path / "cluster", hub, trained, TASKS["tickets"]) as (laptop, volume):
        (volume / "champion").symlink_to("worse")
        code, log = run_example(laptop, "evaluate_candidate", candidate="better")
        assert code == 0, log
        [proposal] = re.findall(r"Output: (\{.*\})$", log, re.MULTILINE)
        assert (volume / "champion").readlink().name == "worse"
        code, log = run_example(laptop, "promote_approved", proposal=ast.literal_eval(proposal))
        assert code == 0, log
        assert (volume / "champion").readlink().name == "better"
