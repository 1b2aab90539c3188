"""Tests of `trainjob cancel`, `suspend` and `resume`."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.integration.cli.gated_steps import GatedStep, wait_for_only_trainjob
from tests.support.polling import wait_until
from trainjob.status import Phase, derive_verdict
from trainjob.status.verdict import QUEUE_LABEL


def test_cancel_deletes_active_trainjobs_and_retains_finished_ones(trainjob, cluster, namespace, tmp_path):
    ended, work = GatedStep(tmp_path, "ended"), GatedStep(tmp_path, "work")
    ended.open_gate()
    names = [trainjob("submit", each.file, "-n", namespace).stdout.strip() for each in (ended, work)]
    assert trainjob("wait", names[0], "-n", namespace).returncode == 0
    done = trainjob("cancel", *names, "-n", namespace, "--json")
    results = [(each["name"], each["done"], each["reason"]) for each in json.loads(done.stdout)]
    assert (done.returncode, results) == (0, [(names[0], "unchanged", "it is Complete"), (names[1], "deleted", "")])
    assert wait_for_only_trainjob(cluster, namespace)["metadata"]["name"] == names[0]
    gone = trainjob("cancel", names[1], "-n", namespace)
    assert (gone.returncode, "there is no TrainJob" in gone.stderr) == (1, True)


@pytest.mark.slow
def test_suspend_deletes_the_pods_and_resume_starts_them_again(trainjob, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    name = trainjob("submit", work.file, "-n", namespace).stdout.strip()
    wait_for_only_trainjob(cluster, namespace, phase="Running")
    first, again = (trainjob("suspend", name, "-n", namespace) for _ in range(2))
    where = f"TrainJob {namespace}/{name}"
    assert (first.stdout, again.stdout) == (
        f"{where}: suspended\n",
        f"{where}: unchanged: it has ended, or is already suspended\n",
    )
    wait_until(
        lambda: (
            derive_verdict(wait_for_only_trainjob(cluster, namespace)).phase is Phase.SUSPENDED
            and not cluster.list_pods(name, namespace)
        )
    )
    assert trainjob("resume", name, "-n", namespace).stdout == f"{where}: resumed\n"
    work.open_gate()
    assert trainjob("wait", name, "-n", namespace).returncode == 0


@pytest.mark.slow
def test_a_queued_trainjob_is_not_suspended_and_the_others_are(trainjob, cluster, namespace, tmp_path):
    queued, free = GatedStep(tmp_path, "queued", queue="team"), GatedStep(tmp_path, "free")
    names = [trainjob("submit", each.file, "-n", namespace).stdout.strip() for each in (queued, free)]
    assert cluster.get_trainjob(names[0], namespace)["metadata"]["labels"][QUEUE_LABEL] == "team"
    done = trainjob("suspend", *names, "-n", namespace)
    assert (done.returncode, done.stdout) == (1, f"TrainJob {namespace}/{names[1]}: suspended\n")
    assert "is in the Kueue queue team" in done.stderr
    trainjob("cancel", *names, "-n", namespace)


@pytest.mark.slow
def test_a_trainjob_whose_jobset_is_immutable_is_not_resumed(trainjob, namespace):
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tune"},
        "spec": {"runtimeRef": {"name": "torchtune-llama3.2-1b"}, "suspend": True},
    }
    name = trainjob("submit", "-", "-n", namespace, input=yaml.safe_dump(manifest)).stdout.strip()
    done = trainjob("resume", name, "-n", namespace)
    assert (done.returncode, done.stdout) == (1, "")
    assert "uses the stock runtime torchtune-llama3.2-1b. Its JobSet can't be changed" in done.stderr
    trainjob("cancel", name, "-n", namespace)
