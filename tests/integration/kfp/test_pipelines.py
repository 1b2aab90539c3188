"""Tests of the compiled pipelines without code."""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace

import pytest
import yaml
from kfp import components

from trainjob.manifest import to_trainjob
from trainjob_kfp import pipelines, promotion_pipeline, steps
from trainjob_kfp.input_names import CONFIG_FIELDS

MAX_BYTES = 100_000  # Argo stores the text several times in a Workflow of 1 MiB
REQUIRED = {"model_uri", "dataset_uri"}
OF_TRAINING = {"learning_rate", "batch_size", "lora_rank", "epochs", "config", "deadline"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Return the documents of each package by the name of its pipeline."""
    folder = tmp_path_factory.mktemp("packages")
    options = ["--workspace-size", "200Gi", "--storage-class", "fast", "--access-mode", "ReadWriteMany"]
    assert pipelines.main([str(folder), *options]) == 0
    assert {path.stat().st_size < MAX_BYTES for path in folder.iterdir()} == {True}
    loaded = [[*yaml.safe_load_all(path.read_text())] for path in sorted(folder.iterdir())]
    return {spec["pipelineInfo"]["name"]: (spec, platform) for spec, platform in loaded}


@pytest.fixture(params=pipelines.PACKAGES, ids=lambda package: package.name)
def package(request):
    return request.param


@pytest.fixture
def form(packages, package):
    """Return the parameters of a package by name."""
    return packages[package.name][0]["root"]["inputDefinitions"]["parameters"]


def test_the_files_have_the_version(tmp_path, capsys):
    pipelines.main([str(tmp_path)])
    names = sorted(path.name for path in tmp_path.iterdir())
    pipeline_names = ("evaluate-and-promote", "grpo-lora", "preference-tuning-lora", "sft-lora")
    assert names == [f"{name}-{version('kfp-trainjob')}.yaml" for name in pipeline_names]
    assert sorted(capsys.readouterr().out.split()) == [str(tmp_path / name) for name in names]


def test_each_parameter_has_a_description_and_most_have_a_default(form):
    assert all(one["description"].endswith(".") for one in form.values())
    assert {name for name, one in form.items() if "defaultValue" not in one} == REQUIRED


def test_all_packages_have_the_same_form(packages):
    trainings = [packages[package.name][0] for package in pipelines.PACKAGES]
    forms = {tuple(spec["root"]["inputDefinitions"]["parameters"]) for spec in trainings}
    assert len(forms) == 1


def test_the_steps_run_one_after_the_other(packages, package):
    """Nodes cannot share a claim that is ReadWriteOnce."""
    spec, _ = packages[package.name]
    tasks = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    earlier = {name: set(task.get("dependentTasks", ())) for name, task in tasks.items()}
    assert earlier == {
        "initialize-dataset": set(),
        "initialize-model": {"initialize-dataset"},
        "fine-tune": {"initialize-dataset", "initialize-model"},
        "export-model": {"fine-tune"},
    }


def test_the_claim_is_that_of_the_command(packages, package):
    _, platform = packages[package.name]
    assert platform["platforms"]["kubernetes"]["pipelineConfig"]["workspace"] == {
        "size": "200Gi",
        "kubernetes": {"pvcSpecPatch": {"accessModes": ["ReadWriteMany"], "storageClassName": "fast"}},
    }


def test_the_defaults_are_a_valid_training(package, form):
    """kfp writes integers as floats; a launcher gets them like that."""
    given = {name: form[name]["defaultValue"] for name in OF_TRAINING}
    limits = {"cpu": form["cpu"]["defaultValue"], "memory": form["memory"]["defaultValue"]}
    gpus = {form["gpu_type"]["defaultValue"]: str(int(form["gpus"]["defaultValue"]))}
    task = SimpleNamespace(
        resources={"limits": {**limits, **gpus}},
        **dict.fromkeys(("env", "tolerations", "node_selector", "affinity", "volumes", "volume_mounts")),
    )
    step = steps.fine_tune(
        {"framework": "trl", "method": package.method, "model": "hf://a/b", "workspace": "claim", **given}, task
    )
    to_trainjob(step)
    assert step.config.peft_config.lora_rank == 16
    assert step.config.resources_per_node["nvidia.com/gpu"] == "1"


def test_the_dataset_step_prepares_the_rows_of_the_form(packages, package):
    spec, _ = packages[package.name]
    tasks = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    inputs = tasks["initialize-dataset"]["inputs"]["parameters"]
    names = ("subset", "split", "columns")
    found = {name: inputs[name]["componentInputParameter"] for name in names}
    assert found == {name: f"pipelinechannel--dataset_{name}" for name in names}
    assert "eval_dataset_path" in CONFIG_FIELDS
    producer = tasks["fine-tune"]["inputs"]["parameters"]["eval_dataset_path"]["taskOutputParameter"]
    assert producer == {"outputParameterKey": "eval_dataset_path", "producerTask": "initialize-dataset"}


def test_a_package_can_be_loaded(packages, package):
    spec, platform = packages[package.name]
    assert components.load_component_from_text(yaml.safe_dump_all([spec, platform])).name == package.name


@pytest.mark.parametrize("size", ["big", "", "100 Gi"])
def test_a_wrong_size_is_refused(tmp_path, size, capsys):
    with pytest.raises(SystemExit, match="2"):
        pipelines.main([str(tmp_path), "--workspace-size", size])
    assert "is not a quantity, such as 200Gi" in capsys.readouterr().err


def test_the_promotion_compares_with_the_served_model_and_promotes_the_same_address(packages):
    spec, platform = packages[promotion_pipeline.NAME]
    form = spec["root"]["inputDefinitions"]["parameters"]
    assert all(one["description"].endswith(".") for one in form.values())
    required = {name for name, one in form.items() if "defaultValue" not in one}
    assert required == {"model_uri", "dataset_uri", "service"}
    tasks = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    earlier = {name: set(task.get("dependentTasks", ())) for name, task in tasks.items()}
    assert earlier == {
        "initialize-dataset": set(),
        "initialize-model": {"initialize-dataset"},
        "evaluate-model": {"initialize-dataset", "initialize-model"},
        "promote-if-passed": {"evaluate-model"},
    }
    assert not tasks["evaluate-model"]["cachingOptions"].get("enableCache")
    promoted = tasks["promote-if-passed"]["inputs"]["parameters"]
    assert promoted["model"] == {"componentInputParameter": "pipelinechannel--model_uri"}
    assert promoted["passed"]["taskOutputParameter"]["outputParameterKey"] == "passed"
    assert components.load_component_from_text(yaml.safe_dump_all([spec, platform])).name == promotion_pipeline.NAME


def test_the_defaults_of_the_promotion_are_valid_steps(packages):
    form = packages[promotion_pipeline.NAME][0]["root"]["inputDefinitions"]["parameters"]
    given = {name: one["defaultValue"] for name, one in form.items() if "defaultValue" in one}
    champion = {"service": "tickets", "endpoint": given["model_endpoint"]}
    shared = {name: given[name] for name in ("gates", "tasks", "chat_template", "env", "queue")}
    step = steps.evaluate_model(
        {"workspace": "claim", "model_path": "model", "held_out": "dataset", "champion": champion, **shared}, None
    )
    assert (step.champion.service, step.champion.endpoint) == ("tickets", None)
    assert step.gates["held_out/bits_per_byte"].better_than_champion
    to_trainjob(step)
    own = {name: given[name] for name in ("smoke_request", "time_limit")}
    to_trainjob(steps.promote_model({"model": "s3://acme/models/7", "service": "tickets", **own}, None))
