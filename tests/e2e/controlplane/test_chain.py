"""The demo's chain with everything real: API server, controllers, Airflow and KFP, TorchTune."""

from __future__ import annotations

import contextlib

import pytest

from control_plane import ControlPlane
from tests.support.demo_chain import ENVIRONMENTS, demo_engine, example_workflow, make_demo_hub
from trainjob.client import Cluster, Connection
from trainjob_demo.chain import find_export_folder, run_chain
from trainjob_demo.tickets_hub import BASE_MODEL, Scorer
from trainjob_local.demo.hub import HubServer

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Serve the demo's tiny model and tickets like the Hugging Face hub."""
    folder = tmp_path_factory.mktemp("hub")
    make_demo_hub(folder)
    with HubServer(folder) as server:
        yield folder, server.url


@pytest.fixture(scope="module")
def scorer(hub):
    started = Scorer(hub[0], ENVIRONMENTS["torchtune"])
    yield started
    started.stop()


@pytest.mark.parametrize(
    ("trainer", "engine"),
    [
        pytest.param("2.3", "airflow", marks=pytest.mark.smoke),
        pytest.param("2.3", "kfp", marks=pytest.mark.smoke),
        ("2.2", "kfp"),
        ("2.1", "airflow"),
        ("2.0", "kfp"),
    ],
)
def test_the_model_learns(trainer, engine, hub, scorer, tmp_path, evidence):
    """The chain creates one TrainJob for each step, and the exported model classifies the held-out tickets."""
    if reason := ControlPlane.unavailable_reason(trainer):
        pytest.skip(reason)
    folder, url = hub
    pods = {"HF_ENDPOINT": url}
    with contextlib.ExitStack() as stack:
        plane = ControlPlane(tmp_path / "state", trainer=trainer, environments=ENVIRONMENTS, pod_env=pods)
        stack.enter_context(plane)
        cluster = Cluster(Connection(kubeconfig=str(plane.kubeconfig)))
        stack.callback(cluster.close)
        view = run_chain(demo_engine(engine), example_workflow(engine, "tickets_llm"), cluster, plane.kubeconfig)
        jobs = cluster.list_trainjobs("default")
        assert sorted(job["metadata"]["labels"]["trainjob.dev/task"] for job in jobs) == TASKS[engine]
        assert all(condition(job) == ("Complete", "AllJobsCompleted") for job in jobs)
        export = find_export_folder(cluster, view, plane.state)
        before = scorer.exact_match(folder / BASE_MODEL)
        after = scorer.exact_match(export)
    assert int(before.partition("/")[0]) <= 5
    assert int(after.partition("/")[0]) >= 50
    for row in ("Hub initializer", "TorchTune models", "export"):
        evidence("features", row=row, cell="control plane")


TASKS = {
    "airflow": ["dataset", "export", "fine_tune", "model"],
    "kfp": ["export-model", "fine-tune", "initialize-dataset", "initialize-model"],
}


def condition(job):
    [last] = job["status"]["conditions"]
    return last["type"], last["reason"]
