"""Tests of the OpenLineage events, through Airflow's own provider and its file transport."""

from __future__ import annotations

import json
import re

import pytest

import trainjob
from trainjob_airflow import ExportModelOperator, FineTuneOperator, InitializeModelOperator, TrainJobOperator, Workspace
from trainjob_airflow.lineage import parent_run_variables

VOLUME = "kubernetes://kubernetes_default"


def name_pairs(datasets):
    return [(dataset.namespace, dataset.name) for dataset in datasets]


@pytest.mark.slow
def test_a_run_reports_its_datasets_and_its_pods_get_their_parent_run(airflow, cluster, tmp_path):
    log = tmp_path / "events.jsonl"
    transport = json.dumps({"type": "file", "log_file_path": str(log), "append": True})
    done = airflow("dags", "test", "lineage", AIRFLOW__OPENLINEAGE__TRANSPORT=transport)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    by_name = {(event["job"]["name"], event["eventType"]): event for event in events}

    end = by_name["lineage.train", "COMPLETE"]
    parent = f"default/lineage.train/{end['run']['runId']}"
    root = end["run"]["facets"]["parent"]["root"]["run"]["runId"]
    assert f"[node-0] parent {parent} root default/lineage/{root}" in done.stdout, done.stdout[-4000:]
    query = end["run"]["facets"]["externalQuery"]
    [job] = [job for job in cluster.list_trainjobs("default") if job["metadata"]["uid"] == query["externalQueryId"]]
    assert query["source"] == f"default/{job['metadata']['name']}"

    for event_type in ("START", "FAIL"):
        event = by_name["lineage.dataset", event_type]
        [source], [target] = event["inputs"], event["outputs"]
        assert (source["namespace"], source["name"]) == ("hf://huggingface.co", "datasets/acme/tickets/data")
        assert (target["namespace"], target["name"]) == (VOLUME, "nowhere/lineage/files/dataset")
    error = by_name["lineage.dataset", "FAIL"]["run"]["facets"]["errorMessage"]["message"]
    assert re.search("can't create trainjobs in namespace nowhere", error)


def test_the_steps_of_a_chain_share_datasets_that_are_the_same_in_every_run():
    workspace = Workspace(size="1Gi")
    model = InitializeModelOperator(task_id="m", workspace=workspace, storage_uri="hf://acme/tiny")
    tune = FineTuneOperator(
        task_id="t", workspace=workspace, model="llama3.2-1b", config={"framework": "torchtune"}, output_path="a"
    )
    export = ExportModelOperator(
        task_id="e", workspace=workspace, destination="s3://models/tickets/v1", output_path="a"
    )
    inside = ExportModelOperator(task_id="i", workspace="tickets", destination="/workspace/export", namespace="ml")
    found = {operator.task_id: operator.get_openlineage_facets_on_start() for operator in (model, tune, export, inside)}
    assert name_pairs(found["m"].inputs) == [("hf://huggingface.co", "acme/tiny")]
    assert name_pairs(found["m"].outputs) == [name_pairs(found["t"].inputs)[1]]
    assert [name.rpartition("/workspace/")[2] for _, name in name_pairs(found["t"].outputs)] == ["output/a"]
    assert name_pairs(found["t"].outputs) == name_pairs(found["e"].inputs)
    assert name_pairs(found["e"].outputs) == [("s3://models", "tickets/v1")]
    assert name_pairs(found["i"].outputs) == [(VOLUME, "ml/tickets/export")]


def test_a_folder_of_a_claim_is_part_of_the_dataset_name():
    workspace = trainjob.WorkspaceVolume(claim="tickets", sub_path="team")
    operator = InitializeModelOperator(task_id="m", workspace=workspace, storage_uri="hf://acme/tiny")
    lineage = operator.get_openlineage_facets_on_start()
    assert name_pairs(lineage.outputs) == [(VOLUME, "tickets/team/model")]


def test_a_claim_as_a_source_is_the_dataset_of_the_workspace_that_it_was():
    operator = InitializeModelOperator(
        task_id="m", workspace="tickets", storage_uri="pvc://base/team/model", namespace="ml"
    )
    lineage = operator.get_openlineage_facets_on_start()
    assert name_pairs(lineage.inputs) == [(VOLUME, "ml/base/team/model")]
    image = InitializeModelOperator(task_id="i", workspace="tickets", storage_uri="oci://registry.example/acme/tiny:v1")
    assert name_pairs(image.get_openlineage_facets_on_start().inputs) == [("oci://registry.example", "acme/tiny:v1")]


def test_an_export_reports_version_and_size_of_the_model():
    operator = ExportModelOperator(task_id="e", workspace="w", destination="s3://models/tickets")
    operator.task_result = {
        "job": "e-1",
        "namespace": "ml",
        "uid": "u-1",
        "digest": "sha256:ab",
        "bytes": 99,
        "files": 7,
    }
    lineage = operator.get_openlineage_facets_on_start()
    [model] = lineage.outputs
    assert model.facets["version"].datasetVersion == "sha256:ab"
    assert (model.outputFacets["outputStatistics"].size, model.outputFacets["outputStatistics"].fileCount) == (99, 7)
    assert lineage.run_facets["externalQuery"].source == "ml/e-1"


@pytest.mark.parametrize(
    "operator",
    [
        lambda: FineTuneOperator(
            task_id="t",
            model="llama3.2-1b",
            config={"framework": "torchtune"},
            dataset={"storage_uri": "hf://acme/tickets"},
            model_initializer={"storage_uri": "hf://acme/tiny"},
        ),
        lambda: TrainJobOperator(
            task_id="t",
            runtime="torchtune-llama3.2-1b",
            trainer={"config": {}},
            initializer={"dataset": {"storage_uri": "hf://acme/tickets"}, "model": {"storage_uri": "hf://acme/tiny"}},
        ),
        lambda: TrainJobOperator(
            task_id="t",
            manifest={
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "spec": {
                    "runtimeRef": {"name": "torchtune-llama3.2-1b"},
                    "initializer": {
                        "dataset": {"storageUri": "hf://acme/tickets"},
                        "model": {"storageUri": "hf://acme/tiny"},
                    },
                },
            },
        ),
    ],
)
def test_initializers_of_the_same_trainjob_are_inputs(operator):
    found = operator().get_openlineage_facets_on_start()
    hub = "hf://huggingface.co"
    assert name_pairs(found.inputs) == [(hub, "datasets/acme/tickets"), (hub, "acme/tiny")]


def test_without_openlineage_the_pods_get_no_variables():
    assert parent_run_variables({}) == {}
