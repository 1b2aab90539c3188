"""A green run has exported the model that it trained, with the caching options of the compiled pipeline."""

from __future__ import annotations

import hashlib
import re
import sys

import pytest

from tests.kfp_backend import pipelines
from tests.kfp_backend.conftest import COMPILE, compile_pipeline
from tests.kfp_backend.pipeline_run import PipelineRun
from tests.support.polling import wait_until

pytestmark = pytest.mark.timeout(900, func_only=True)
TRAINED = pytest.mark.usefixtures("torchrun_lock")
SECONDS = 600.0


@TRAINED
@pytest.mark.torchtune
def test_a_later_step_opens_the_model_in_the_store_of_kubeflow_pipelines(start, backend):
    """The export has no destination: endpoint and Secret are those of the installed store."""
    run = succeed(start(pipelines.opened_model, cache=None))
    opened = dict(re.findall(r"opened (\S+) ([0-9a-f]{64})", run.read_step_logs()))
    trained, _ = read_digests(backend)
    assert opened["model.safetensors"] == trained
    assert {"config.json", "tokenizer.json", "manifest.json"} <= set(opened)


def test_a_step_fetches_the_artifact_of_an_earlier_step(start, backend):
    """Endpoint and Secret are those of the store that Kubeflow Pipelines has installed."""
    run = succeed(start(pipelines.dataset_artifact, {"count": 7}))
    [stored] = [data for path, data in run.stored_objects().items() if path.endswith("/rows")]
    assert len(stored.splitlines()) == 7
    assert (claim_folder(backend, "shared") / "dataset" / "rows.jsonl").read_bytes() == stored


def list_tasks(run):
    return sorted(job["metadata"]["labels"]["trainjob.dev/task"] for job in run.list_trainjobs())


def claim_folder(backend, claim):
    [volume] = (backend.control_plane.state / "kubelet" / "volumes").glob(f"kubeflow_{claim}_*")
    return volume


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read_digests(backend, export="export"):
    """Return the digests of the trained and of the exported weights, if they are on the claim."""
    folder = claim_folder(backend, "tickets")
    [trained] = (folder / "output" / "epoch_0").glob("model-*.safetensors")
    exported = folder / export / "model.safetensors"
    return digest(trained), digest(exported) if exported.exists() else ""


def succeed(run):
    run.wait_until_succeeded(SECONDS)
    return run


@TRAINED
@pytest.mark.torchtune
def test_runs_that_differ_in_a_training_argument_export_their_own_models(start, backend):
    """The steps are in an exit handler, where kfp's `enable_caching=False` for the run has no effect."""
    found = []
    for rate in (1e-3, 3e-3, 1e-2):
        run = succeed(start(pipelines.chain, {"rate": rate}, cache=None))
        assert list_tasks(run) == ["export-model", "fine-tune", "initialize-dataset", "initialize-model"]
        found.append(read_digests(backend))
        print(f"rate {rate}: trained {found[-1][0][:16]}, exported {found[-1][1][:16]}")
    assert [exported for _, exported in found] == [trained for trained, _ in found]
    assert len(set(found)) == 3


@TRAINED
@pytest.mark.torchtune
def test_an_export_accepts_the_checkpoint_of_a_cached_training(start, backend):
    """The link names the TrainJob of the earlier run, which has trained the checkpoint."""
    succeed(start(pipelines.cached_chain, {"destination": "/workspace/one"}, cache=None))
    second = succeed(start(pipelines.cached_chain, {"destination": "/workspace/two"}, cache=None))
    assert list_tasks(second) == ["export-model"]
    [trained, exported] = read_digests(backend, "two")
    assert trained == exported


@TRAINED
@pytest.mark.torchtune
def test_two_runs_at_once_in_one_workspace_never_exchange_their_models(start, backend):
    """The second run overwrites the checkpoint before the first one exports it, and the export names both."""
    first = start(pipelines.slow_export, {"rate": 1e-3, "mark": "/workspace/first"}, cache=None)
    waiting = f"trainjob.dev/run={first.run_id},trainjob.dev/task=train"
    backend.cluster.wait_for("TrainJob", backend.namespace, "", lambda _: True, seconds=SECONDS, labelSelector=waiting)
    folder = claim_folder(backend, "tickets")
    (folder / "second").touch()
    second = succeed(start(pipelines.slow_export, {"rate": 1e-2, "mark": "/workspace/second"}, cache=None))
    [trained, exported] = read_digests(backend, "second-model")
    assert trained == exported
    (folder / "first").touch()
    assert first.wait_until_ended(SECONDS)["status"]["phase"] == "Failed"
    [*_, launcher] = first.list_pods("system-container-impl")
    log = first.read_log(launcher)
    [tune] = [job["metadata"]["name"] for job in second.list_trainjobs() if "fine-tune" in job["metadata"]["name"]]
    assert f"the model in /workspace/output is of TrainJob {tune}, run kfp/" in log, log[-3000:]
    assert first.run_id in log
    assert not (folder / "first-model").exists()


def test_each_run_runs_its_steps_on_a_workspace_in_every_kind_of_group(start):
    expected = ["train", "train", "train-2", "train-3", "train-3"]
    for cache in (None, False):
        assert list_tasks(succeed(start(pipelines.everywhere, cache=cache))) == expected


def test_a_linked_step_is_cached_if_the_step_before_it_is(start):
    counts = [len(succeed(start(pipelines.linked, {"word": word}, cache=None)).list_trainjobs()) for word in "aab"]
    assert counts == [2, 0, 2]


def test_each_run_of_a_recurring_run_runs_its_steps(backend, kfp_client, tmp_path):
    package = tmp_path / "inner.yaml"
    compile_pipeline([sys.executable, "-c", COMPILE, "inner", package], "image")
    experiment = kfp_client.create_experiment("recurring")
    created = kfp_client.create_recurring_run(
        experiment.experiment_id,
        "each-minute",
        cron_expression="*/30 * * * * *",
        max_concurrency=1,
        pipeline_package_path=str(package),
    )

    def list_ended():
        runs = kfp_client.list_runs(experiment_id=experiment.experiment_id).runs or []
        return [run.run_id for run in runs if run.state == "SUCCEEDED"]

    try:
        wait_until(lambda: len(list_ended()) >= 2, SECONDS, interval=1)
    finally:
        kfp_client.delete_recurring_run(created.recurring_run_id)
    for run_id in list_ended():
        assert list_tasks(PipelineRun(backend, kfp_client, run_id)) == ["train"]
