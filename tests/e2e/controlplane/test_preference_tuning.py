"""SFT and DPO with TRL and LLaMA-Factory on real control planes: API server, controllers, Airflow and KFP."""

from __future__ import annotations

import contextlib
import json

import pytest

from control_plane import ControlPlane
from tests.e2e.controlplane.test_chain import condition
from tests.support.demo_chain import ALL_ENVIRONMENTS, demo_engine, example_workflow, make_demo_hub
from trainjob.client import Cluster, Connection
from trainjob_demo.chain import find_export_folder, run_chain
from trainjob_local.demo.hub import HubServer

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("torchrun_lock")]

# Airflow names a TrainJob's task by its ID in the DAG, Kubeflow Pipelines by the component and a number.
TASKS = {
    ("trl", "airflow"): ["dataset", "dpo", "export", "model", "sft", "sft_model"],
    ("llamafactory", "airflow"): ["dataset", "dpo", "export", "merged", "model", "sft"],
    **{
        (framework, "kfp"): [
            "export-model",
            "export-model-2",
            "fine-tune",
            "fine-tune-2",
            "initialize-dataset",
            "initialize-model",
        ]
        for framework in ("trl", "llamafactory")
    },
}
CASES = [
    *(pytest.param("trl", trainer, marks=pytest.mark.trl) for trainer in ("2.3", "2.1")),
    pytest.param("llamafactory", "2.3", marks=pytest.mark.llamafactory),
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Serve the demo's tiny model and tickets like the Hugging Face hub."""
    folder = tmp_path_factory.mktemp("hub")
    make_demo_hub(folder)
    with HubServer(folder) as server:
        yield server.url


@pytest.mark.parametrize("engine", ["airflow", "kfp"])
@pytest.mark.parametrize(("framework", "trainer"), CASES)
def test_preference_tuning_after_sft(framework, trainer, engine, hub, tmp_path, evidence):
    """Six TrainJobs fetch, train an adapter, export the merged model, train it on pairs, and export it again."""
    if reason := ControlPlane.unavailable_reason(trainer):
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        plane = ControlPlane(
            tmp_path / "state", trainer=trainer, environments=ALL_ENVIRONMENTS, pod_env={"HF_ENDPOINT": hub}
        )
        stack.enter_context(plane)
        cluster = Cluster(Connection(kubeconfig=str(plane.kubeconfig)))
        stack.callback(cluster.close)
        workflow = example_workflow(engine, f"{framework}_preferences")
        view = run_chain(demo_engine(engine), workflow, cluster, plane.kubeconfig)
        jobs = cluster.list_trainjobs("default")
        assert sorted(job["metadata"]["labels"]["trainjob.dev/task"] for job in jobs) == TASKS[framework, engine]
        assert all(condition(job) == ("Complete", "AllJobsCompleted") for job in jobs)
        if engine == "airflow":  # the pipeline's workspace is a folder of kfp.local, which is deleted with the run
            manifest = json.loads((find_export_folder(cluster, view, plane.state) / "manifest.json").read_text())
            assert (manifest["framework"], manifest["method"]) == (framework, "dpo")
            assert "model.safetensors" in json.dumps(manifest)
    if framework == "trl":
        evidence("features", row="TRL", cell="control plane")
