"""Airflow examples run with `dag.test()`; the nightly ones start each other.

tests/e2e/demo/test_demo.py runs tickets_llm and trl_sft.
"""

from __future__ import annotations

import re

import kubernetes
import pytest

from tests.support.dag_examples import DAGS, example_runs, laptop_with_tickets, read_hub_objects
from tests.support.mlflow_server import MLflowServer, check_tracked_example
from tests.support.registry_server import RegistryServer
from tests.support.s3_server import S3Server, StoredObject
from tests.support.standalone import Standalone, wait_for_airflow

pytestmark = [pytest.mark.timeout(900), pytest.mark.torchtune, pytest.mark.usefixtures("torchrun_lock")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def examples(folder):
    with example_runs(folder) as runs:
        yield runs


def test_a_nightly_model_is_announced(examples, evidence):
    done = examples.run("nightly_fine_tune")
    assert done["state"] == "success", examples.read_log()[-6000:]
    [export] = done["returned"]["export"]
    assert export["location"] == "/workspace/export"
    announced = examples.run("announce_model")
    assert announced["state"] == "success", examples.read_log()[-6000:]
    [made] = announced["returned"]["announce"]
    assert made["digest"] == export["digest"]
    assert made["trainjob"] == f"default/{export['job']}"
    assert made["metrics"]["steps"] == 10
    for row in ("Hub initializer", "TorchTune models", "export"):
        evidence("features", row=row, cell="Airflow example")
        evidence("features", row=row, cell="real run")


def test_a_manual_run_has_no_exports_to_register(examples):
    done = examples.run("register_models")
    assert done["state"] == "success", examples.read_log()[-6000:]
    assert done["returned"]["register"] == [[]]


def test_a_sweep_exports_its_best_try(examples):
    done = examples.run("sweep", learning_rates=[3e-3, 1e-4])
    assert done["state"] == "success", examples.read_log()[-6000:]
    good, bad = done["returned"]["fine_tune"]
    assert good["progress"]["loss"] < bad["progress"]["loss"]
    assert good["job"] != bad["job"]
    assert done["returned"]["best"] == [0]
    [export] = done["returned"]["export"]
    assert export["metrics"]["loss"] == pytest.approx(good["progress"]["loss"])


def test_a_sweep_skips_a_try_that_diverges(examples):
    done = examples.run("sweep", learning_rates=[1e8, 3e-3])
    assert done["state"] == "success", examples.read_log()[-6000:]
    assert done["tasks"]["fine_tune"] == ["failed", "success"]
    [good] = done["returned"]["fine_tune"]
    assert done["returned"]["best"] == [1]
    [export] = done["returned"]["export"]
    assert export["metrics"]["loss"] == pytest.approx(good["progress"]["loss"])


def test_a_sweep_in_which_each_try_diverges_fails_with_the_reason(examples):
    done = examples.run("sweep", learning_rates=[1e8])
    tasks = [done["tasks"][task] for task in ("fine_tune", "best", "export")]
    assert (done["state"], *tasks) == ("failed", ["failed"], ["failed"], ["upstream_failed"])
    assert "no try succeeded; the logs of fine_tune show the reasons" in examples.read_log()


def test_a_model_is_registered_with_its_sources(examples, evidence):
    with RegistryServer() as registry:
        done = examples.run("registered", registry=registry.url)
        assert done["state"] == "success", examples.read_log()[-6000:]
    [export], [tune], [model] = (done["returned"][task] for task in ("export", "fine_tune", "model"))
    [(name, properties)] = registry.version_properties().items()
    registered = export["registered"]
    assert name == f"tickets/{registered['version']}"
    assert f"sha256:{properties['digest']}" == export["digest"]
    assert (properties["trainjob_uid"], properties["run_key.workflow"]) == (tune["uid"], "registered")
    assert (properties["base_model"], properties["base_model_revision"]) == ("hf://demo/tiny-llama", model["revision"])
    assert properties["metrics.loss"] == pytest.approx(export["metrics"]["loss"])
    assert properties["parameters.optimizer.lr"] == 3e-3
    [artifact] = registry.objects["model_artifact"]
    assert artifact["uri"].startswith("pvc://registered-workspace-")
    assert (artifact["id"], registry.violations) == (registered["artifact_id"], [])
    for row in ("export", "model registry", "Hub initializer"):
        evidence("features", row=row, cell="Airflow example")
        evidence("features", row=row, cell="real run")


def test_the_nightly_chain_promotes_keeps_and_undoes(examples):
    first = examples.run("nightly_promotion")
    assert first["state"] == "success", examples.read_log()[-6000:]
    [evaluation], [promotion] = first["returned"]["evaluate"], first["returned"]["promote"]
    assert evaluation["scores"]["answers/right"]["value"] > 0.8
    assert evaluation["champion_scores"] == {}
    assert (promotion["promoted"], promotion["before"]) == (True, "")
    assert [first["tasks"][task] for task in ("check", "undo", "announce")] == [["success"], ["skipped"], ["success"]]
    # A worse model is good enough by itself, but not better than the one that is served.
    worse = examples.run("nightly_promotion", epochs=1, minimum=0.0)
    assert worse["state"] == "success", examples.read_log()[-6000:]
    [evaluation] = worse["returned"]["evaluate"]
    champion, score = (evaluation[name]["answers/right"]["value"] for name in ("champion_scores", "scores"))
    assert (champion > 0.8, score < champion) == (True, True)
    assert evaluation["differences"]["answers/right"]["value"] == pytest.approx(score - champion)
    assert worse["tasks"]["promote"] == ["skipped"]
    # A model that is as good is promoted, and undone by a check that fails.
    bad = examples.run("nightly_promotion", epochs=4, minimum=0.8, checked_file="missing.json")
    assert bad["state"] == "failed", examples.read_log()[-6000:]
    assert [bad["tasks"][task] for task in ("promote", "check", "undo", "announce")] == [
        ["success"],
        ["failed"],
        ["success"],
        ["upstream_failed"],
    ]
    [undone] = bad["returned"]["undo"]
    assert (undone["rolled_back"], undone["model"]) == (True, promotion["model"])


def test_preference_tuning_after_a_fine_tuning(examples, evidence):
    done = examples.run("preference_tuning")
    assert done["state"] == "success", examples.read_log()[-6000:]
    [export], [taught], [preferences] = (done["returned"][task] for task in ("export", "taught", "preferences"))
    assert export["digest"] != taught["digest"]
    assert preferences["progress"]["loss"] < 0.6  # it started at log 2, without a preference
    for row in ("TorchTune recipes", "TorchTune models"):
        evidence("features", row=row, cell="Airflow example")


def test_preference_tuning_of_an_adapter_with_trl(examples, evidence):
    check_preference_tuning(examples, "trl_preferences", "sft_model")
    evidence("features", row="TRL", cell="Airflow example")
    evidence("features", row="TRL", cell="real run")


@pytest.mark.llamafactory
def test_preference_tuning_after_an_adapter_with_llamafactory(examples, evidence):
    check_preference_tuning(examples, "llamafactory_preferences", "merged")
    evidence("features", row="LLaMA-Factory", cell="Airflow example")


def check_preference_tuning(examples, dag, first_export):
    done = examples.run(dag)
    assert done["state"] == "success", examples.read_log()[-6000:]
    [sft], [first], [dpo], [export] = (done["returned"][task] for task in ("sft", first_export, "dpo", "export"))
    assert sft["progress"]["step"] == 43  # 340 rows in batches of 8
    assert dpo["progress"]["loss"] < 0.6  # it started at log 2, without a preference
    assert dpo["progress"]["metrics"]["rewards/accuracies"] > 0.9
    assert export["digest"] != first["digest"]


def test_a_fine_tuning_is_tracked(examples, evidence):
    with MLflowServer() as server:
        done = examples.run("tracked", mlflow=server.url)
        assert done["state"] == "success", examples.read_log()[-6000:]
        [run] = server.list_runs("tracked")
        check_tracked_example(server, run)
    evidence("features", row="MLflow", cell="Airflow example")
    [tune] = done["returned"]["fine_tune"]
    assert tune["tracking_url"].endswith(f"/runs/{run['info']['run_id']}")


def test_rewards_of_a_function_rise_with_trl(examples, evidence):
    done = examples.run("trl_rewards")
    assert done["state"] == "success", examples.read_log()[-6000:]
    [grpo] = done["returned"]["grpo"]
    first = re.search(r"'reward': '?(-?[0-9.]+)", examples.read_log())
    assert first, examples.read_log()[-6000:]
    assert grpo["progress"]["metrics"]["reward"] > float(first[1]) + 0.1
    evidence("features", row="TRL", cell="Airflow example")


def test_two_nodes_train_one_model_with_trl(examples, evidence):
    done = examples.run("trl_two_nodes")
    assert done["state"] == "success", examples.read_log()[-6000:]
    [fine_tune], [export] = (done["returned"][task] for task in ("fine_tune", "export"))
    assert fine_tune["progress"]["step"] == 22  # 340 rows in batches of 8 on two nodes
    assert fine_tune["progress"]["loss"] < 2.5  # it started at 5.6
    assert export["location"] == "/workspace/export"
    evidence("features", row="TRL", cell="Airflow example")


def test_an_object_store_for_the_source_and_the_export(examples, folder, evidence):
    core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(folder / "cluster" / "kubeconfig")))
    with S3Server() as store:
        store.objects = {key: StoredObject(data, {}) for key, data in read_hub_objects(folder / "hub").items()}
        secret = {"metadata": {"name": "object-store"}, "stringData": store.environment}
        core.create_namespaced_secret("default", secret)
        done = examples.run("object_store", endpoint=store.url)
    assert done["state"] == "success", examples.read_log()[-6000:]
    [export] = done["returned"]["export"]
    sent = store.read_prefix(export["location"].removeprefix("s3://"))
    assert export["location"].startswith("s3://models/tickets-llm/manual__")
    assert {"config.json", "model.safetensors", "manifest.json"} <= set(sent)
    assert not any(secret in examples.read_log() for secret in store.environment.values())
    evidence("features", row="S3 initializer", cell="Airflow example")
    evidence("features", row="export", cell="Airflow example")


def test_a_container_gets_parameters_and_returns_a_result(examples, evidence):
    done = examples.run("container", points=50_000)
    assert done["state"] == "success", examples.read_log()[-6000:]
    [guess] = done["returned"]["guess"]
    assert done["returned"]["report"] == [guess["result"]]
    assert guess["result"]["pi"] == pytest.approx(3.14, abs=0.05)
    for node in (0, 1):
        assert re.search(rf"\[node-{node}\] node {node} of 2: \d+ of 50000 points", examples.read_log())
    evidence("features", row="container", cell="Airflow example")


def test_a_function_trains_on_two_nodes_and_returns_a_result(examples, evidence):
    done = examples.run("distributed_function")
    assert done["state"] == "success", examples.read_log()[-6000:]
    [train] = done["returned"]["train"]
    [learned] = done["returned"]["report"]
    assert train["result"] == learned
    assert learned["processes"] == 2
    assert learned["weight"] == pytest.approx(3, abs=0.1)
    assert learned["bias"] == pytest.approx(-1, abs=0.1)
    for node in (0, 1):
        assert f"[node-{node}] process {node} of 2: 3 points" in examples.read_log()
    for row in ("Python function", "PyTorch DDP/FSDP"):
        evidence("features", row=row, cell="Airflow example")


def test_the_code_of_a_project_trains_on_two_nodes(examples):
    done = examples.run("project_code", steps=150)
    assert done["state"] == "success", examples.read_log()[-6000:]
    [train] = done["returned"]["train"]
    [check] = done["returned"]["check"]
    assert train["result"]["weight"] == pytest.approx(3, abs=0.1)
    assert check["result"] == pytest.approx(0, abs=0.1)
    for node in (0, 1):
        assert f"[node-{node}] process {node} of 2: 3 points" in examples.read_log()
    assert re.search(r"code: sha256:[0-9a-f]{64}, 2 files, ", examples.read_log())


def test_the_nightly_export_starts_the_dags_of_its_asset(tmp_path):
    """The schedule, the asset and the watcher start all runs."""
    with laptop_with_tickets(tmp_path) as environment:
        home = tmp_path / "airflow"
        home.mkdir()
        # The default of 5 s is too short for a busy machine: the try would fail, and the next one starts minutes later.
        environment["AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT"] = "60"
        with Standalone(home, DAGS, **environment) as airflow:

            def ended_run(dag):
                for run in (airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns") or {}).get("dag_runs", ()):
                    if run["state"] in ("success", "failed"):
                        return run
                return None

            def returned(dag, task):
                # 700 s are enough for a second try, which starts after minutes.
                run = wait_for_airflow(lambda: ended_run(dag), 700)
                assert run["state"] == "success", airflow.log.read_text()[-6000:]
                path = f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}/taskInstances/{task}/xcomEntries/return_value"
                return run["run_type"], airflow.request("GET", f"{path}?deserialize=true")["value"]

            kind, export = returned("nightly_fine_tune", "export")
            assert kind == "scheduled"
            kind, made = returned("announce_model", "announce")
            assert (kind, made["digest"]) == ("asset_triggered", export["digest"])
            assert returned("register_models", "register") == ("asset_triggered", ["/workspace/export"])
