"""Tests of `trainjob submit`, for a file that is submitted once and repeatedly."""

from __future__ import annotations

import json
from contextlib import closing
from unittest.mock import ANY

import pytest
import yaml

from tests.integration.cli.bare_apiserver import bare_apiserver
from tests.integration.cli.gated_steps import GatedStep, wait_for_only_trainjob
from tests.support.kubernetes_client import Client, path_of
from trainjob.manifest import labels
from trainjob.version import VERSION


@pytest.fixture
def submit(trainjob, namespace):
    def run(*arguments, **options):
        return trainjob("submit", "-n", namespace, *arguments, **options)

    return run


@pytest.mark.slow
def test_an_active_trainjob_is_adopted_and_a_finished_one_is_created_again(submit, trainjob, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    first, again = submit(work.file), submit(work.file)
    assert (first.returncode, first.stdout) == (0, again.stdout)
    name = first.stdout.strip()
    assert first.stderr == f"TrainJob {namespace}/{name}: created\n"
    assert again.stderr == f"TrainJob {namespace}/{name}: adopted, because it already existed\n"
    work.open_gate()
    assert trainjob("wait", "-n", namespace, name).returncode == 0
    created = json.loads(submit(work.file, "--json").stdout)
    assert [(job["attempt"], job["adopted"]) for job in created] == [(2, False)]
    assert created[0]["name"] != name


@pytest.mark.slow
def test_a_run_id_adopts_a_succeeded_trainjob_unless_the_document_changed(submit, trainjob, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    work.open_gate()
    name = submit(work.file, "--run-id", "monday").stdout.strip()
    assert trainjob("wait", f"{namespace}/{name}").returncode == 0
    again = json.loads(submit(work.file, "--run-id", "monday", "--json").stdout)
    assert [(job["name"], job["adopted"]) for job in again] == [(name, True)]
    changed = submit("-", "--run-id", "monday", "--json", input=yaml.safe_dump({**work.document, "max_restarts": 1}))
    assert [(job["attempt"], job["adopted"]) for job in json.loads(changed.stdout)] == [(2, False)]


def test_a_submission_prints_the_learning_rate_of_lora_unless_it_is_given(submit, namespace):
    lora = {"framework": "trl", "method": "sft", "peft_config": {"lora_rank": 4}}
    step = {"step": "FineTune", "name": "chosen", "model": "tiny", "workspace": "tickets", "config": lora}
    given = {**step, "name": "given", "config": {**lora, "learning_rate": 2e-4}}
    done = submit("-", input=yaml.safe_dump_all([step, given]))
    assert done.returncode == 0, done.stderr
    chosen, other = done.stdout.split()
    rate = "the learning rate is 0.0002, the usual one for LoRA, because config.learning_rate is not given"
    lines = [line for line in done.stderr.splitlines() if "learning rate" in line]
    assert lines == [f"TrainJob {namespace}/{chosen}: {rate}"]
    assert f"TrainJob {namespace}/{other}: created" in done.stderr


def test_output_yaml_is_the_object_that_submit_sends(submit, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune", workspace="tickets", queue="team", nodes=2)
    shown = submit(work.file, "-o", "yaml")
    assert (shown.returncode, shown.stderr, cluster.list_trainjobs(namespace)) == (0, "", [])
    printed = yaml.safe_load(shown.stdout)
    submit(work.file)
    sent = wait_for_only_trainjob(cluster, namespace)
    for part in ("name", "namespace", "labels"):
        assert printed["metadata"][part] == sent["metadata"][part]
    renewals = [job["metadata"]["annotations"].pop(labels.RENEWAL) for job in (printed, sent)]
    assert renewals[0] != renewals[1]  # a new value for each command
    assert printed["metadata"]["annotations"] == sent["metadata"]["annotations"]
    for patch in sent["spec"]["runtimePatches"]:
        patch.pop("time", None)  # the server's
    assert {name: sent["spec"][name] for name in printed["spec"]} == printed["spec"]


STEPS = """
step: InitializeModel
storage_uri: hf://acme/llama
workspace: tickets
---
step: FineTune
model: llama3.2-1b
workspace: tickets
config: {framework: torchtune}
---
step: ExportModel
destination: s3://models/tickets
workspace: tickets
"""
IN_IMAGE = "\nprogram: image\nimage: registry.example/steps:1\nworkspace:"


@pytest.mark.parametrize("steps", [STEPS, STEPS.replace("\nworkspace:", IN_IMAGE)], ids=["packed", "image"])
def test_printed_trainjobs_can_be_applied(submit, laptop, namespace, steps):
    """kubectl apply sends the printed objects with strict validation, as this test does."""
    shown = submit("-", "-o", "yaml", input=steps)
    assert (shown.returncode, shown.stderr) == (0, "")
    with closing(Client.from_kubeconfig(str(laptop.kubeconfig))) as client:
        for printed in yaml.safe_load_all(shown.stdout):
            created = client.request("POST", path_of("TrainJob", namespace), printed, fieldValidation="Strict")
            assert created.code == 201, created.message
            assert created.body["spec"]["trainer"] == printed["spec"]["trainer"]
            client.request("DELETE", path_of("TrainJob", namespace, printed["metadata"]["name"]))


@pytest.mark.parametrize("command", ["submit", "run"])
def test_output_summary_shows_digests_instead_of_packed_code(trainjob, command):
    complete, summary = (
        trainjob(command, "-", "-o", each, "--dialect", "2.2", input=STEPS) for each in ("yaml", "summary")
    )
    assert (summary.returncode, summary.stderr) == (0, "")
    assert summary.stdout.startswith("# For reviewers. Print the TrainJobs with -o yaml to apply them.\n")
    assert len(summary.stdout) < 10_000 < 60_000 < len(complete.stdout)
    for full, short in zip(*(yaml.safe_load_all(each.stdout) for each in (complete, summary)), strict=True):
        *before, packed, program = full["spec"]["trainer"]["command"]
        assert short["spec"]["trainer"]["command"] == [*before, ANY, program]
        assert short["spec"]["trainer"]["command"][3].startswith(f"<{program} {VERSION}, packed, {len(packed):,}")
        short["spec"]["trainer"]["command"][3] = packed
        assert {**short, "metadata": ANY} == full


def test_a_missing_image_for_the_program_is_reported_before_anything_is_sent(submit, cluster, namespace):
    failed = submit("-", input=STEPS.replace("\nworkspace:", "\nprogram: image\nworkspace:"))
    assert (failed.returncode, failed.stdout, cluster.list_trainjobs(namespace)) == (2, "", [])
    assert failed.stderr.count("image is required: program='image' runs the code of the image") == 3


def test_output_for_another_trainer_version_needs_no_cluster(submit, tmp_path):
    work = GatedStep(tmp_path, "tune", workspace="tickets")
    nowhere = {"KUBECONFIG": str(tmp_path / "none")}
    old, new = (submit(work.file, "-o", "yaml", "--dialect", each, env=nowhere) for each in ("2.0", "2.2"))
    assert [shown.returncode for shown in (old, new)] == [0, 0]
    assert "podSpecOverrides" in yaml.safe_load(old.stdout)["spec"]
    assert "runtimePatches" in yaml.safe_load(new.stdout)["spec"]


@pytest.mark.slow
def test_a_file_can_contain_steps_and_manifests(submit, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "first")
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "second", "labels": {"team": "tickets"}},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "busybox", "command": ["true"]}},
    }
    done = submit("-", input=yaml.safe_dump_all([work.document, manifest]))
    assert done.returncode == 0
    names = done.stdout.split()
    assert [name.rpartition("-")[0] for name in names] == ["first", "second"]
    assert cluster.get_trainjob(names[1], namespace)["metadata"]["labels"]["team"] == "tickets"


def test_one_invalid_document_prevents_the_creation_of_all(submit, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    wrong = {**work.document, "name": "other", "trainer": {**work.document["trainer"], "num_nodes": 0}}
    work.file.write_text(yaml.safe_dump_all([work.document, wrong]))
    failed, as_json = submit(work.file), submit(work.file, "--json")
    assert (failed.returncode, failed.stdout, cluster.list_trainjobs(namespace)) == (2, "", [])
    line = work.file.read_text().splitlines().index("  num_nodes: 0") + 1
    assert failed.stderr.startswith(f"error: {work.file}:{line}: trainer.num_nodes cannot be 0: ")
    error = json.loads(as_json.stderr)
    assert (as_json.returncode, as_json.stdout, error["error"], error["exit_code"]) == (2, "", "InvalidSpec", 2)
    assert error["problems"][0]["field"] == f"{work.file}:{line}: trainer.num_nodes"


@pytest.mark.slow
def test_an_unreadable_file_is_an_error_with_its_name(submit, tmp_path):
    missing, folder = submit(tmp_path / "none.yaml"), submit(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    binary = submit(tmp_path / "binary")
    assert [done.returncode for done in (missing, folder, binary)] == [2, 2, 2]
    assert "No such file or directory" in missing.stderr
    assert "Is a directory" in folder.stderr
    assert "UTF-8" in binary.stderr
    twice = submit("-", input="step: FineTune\n---\nstep: FineTune\n")
    assert (twice.returncode, "standard input:1: model is required" in twice.stderr) == (2, True)


@pytest.mark.slow
def test_documents_of_one_kind_need_different_names(submit, tmp_path):
    work = GatedStep(tmp_path, "tune")
    twice = submit("-", input=yaml.safe_dump_all([work.document, work.document]))
    assert (twice.returncode, "name cannot be 'tune': the document in line 1 has" in twice.stderr) == (2, True)
    named = submit("-", "--name", "mine", input=yaml.safe_dump_all([work.document, work.document]))
    assert (named.returncode, "has 2 requests" in named.stderr) == (2, True)
    assert submit(work.file, "--name", "mine").stdout.startswith("mine-")


def test_a_submission_looks_for_the_jobset_and_the_pods_of_a_deleted_trainjob(trainjob, tmp_path):
    """The run key is the request's content, so Ctrl-C and the same command use a name again."""
    work = GatedStep(tmp_path, "tune")
    with bare_apiserver(tmp_path) as api_server:
        done = trainjob("--kubeconfig", api_server.kubeconfig, "submit", work.file)
        counts = dict(api_server.server.request_counts)
    assert done.returncode == 0, done.stderr
    # The second list finds TrainJobs of the run key that have lost its label.
    assert counts == {"list trainjobs": 2, "get jobsets": 1, "list pods": 1, "post trainjobs": 1}
