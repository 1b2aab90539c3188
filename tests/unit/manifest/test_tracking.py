"""TrainJobs of tracked trainings: manifests compared with files, and the tracked run in them.

UPDATE_GOLDEN=1 pytest tests/unit/manifest/test_tracking.py     writes the files anew
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    CustomTrainer,
    CustomTrainerContainer,
    FineTune,
    InvalidSpec,
    MLflow,
    RunKey,
    SecretKeyReference,
    TensorBoard,
    TorchTuneConfig,
    TrainJob,
    TRLConfig,
    TRLLoraConfig,
    WandB,
)
from trainjob.frameworks.output_folder import find_output_folder
from trainjob.frameworks.tracking.settings import TrackedRun
from trainjob.lifecycle.prepared_job import prepare_job
from trainjob.manifest import Dialect, build_trainjob, spec_hash
from trainjob.manifest.review import shorten_command
from trainjob.manifest.tracking import build_tracked_run
from trainjob.packing import read_packed_code
from trainjob.version import VERSION

GOLDEN = Path(__file__).parent / "golden"
URI = "https://mlflow.example.org"
KEY = RunKey("airflow", "tickets", "tune", "manual__2026-01-01", "3", "https://airflow.example.org")


def train(rate: float = 0.1) -> None:
    """Print a line that a tracker reads; this is the function of the CustomTrainer."""
    print({"loss": rate, "learning_rate": rate, "epoch": 1.0})


STEPS: dict[str, Any] = {
    "torchtune": FineTune(
        model="llama3.2-1b",
        workspace="tickets",
        config=TorchTuneConfig(epochs=3, overrides=("device=cpu",)),
        tracking=MLflow(tracking_uri=URI, secret="mlflow", parameters={"team": "support", "$(HOME)": "$(HOME) $$"}),
    ),
    "trl": FineTune(
        model="llama-1b",
        workspace="tickets",
        config=TRLConfig(
            method="sft", epochs=3, peft_config=TRLLoraConfig(lora_rank=16, target_modules=("all-linear",))
        ),
        env={"HF_HUB_OFFLINE": "1"},
        tracking=WandB(project="support", entity="team", base_url="https://wandb.example.org", secret="wandb"),
    ),
    "function": TrainJob(
        trainer=CustomTrainer(func=train, func_args={"rate": 0.5}, env={"MLFLOW_TRACKING_TOKEN": "$(OTHER)"}),
        tracking=MLflow(
            tracking_uri=URI,
            experiment="own",
            secret={"name": "mlflow", "keys": {"MLFLOW_TRACKING_TOKEN": "token"}},
        ),
    ),
    "container": TrainJob(
        trainer=CustomTrainerContainer(image="registry.example/train:1", command=("train",), args=("--epochs", "3")),
        workspace="tickets",
        tracking=TensorBoard(log_path="logs"),
    ),
    "image": FineTune(
        model="llama3.2-1b",
        config={"framework": "torchtune"},
        workspace="tickets",
        image="registry.example/torchtune:1",
        program="image",
        tracking=WandB(mode="offline"),
    ),
}
# Hashes of the same requests without the field `tracking`, computed with the version before it existed.
RECORDED_HASHES = {
    "torchtune": "7d18f8e38d071acf",
    "trl": "2cd212cadeb96411",
    "function": "1ad3de22147f4012",
    "container": "6072790f45ba1732",
    "image": "9c52ea7599c23acd",
}
DIALECTS = {"torchtune": list(Dialect)}


def build(step, *, key=KEY, attempt=1, dialect=Dialect.V2_2, **values):
    prepared = prepare_job(step, key, "team", **values)
    return build_trainjob(prepared.job, **prepared.build_metadata(attempt), dialect=dialect)


def read_run(manifest):
    """Return the tracked run of the expanded command, which the program in the pod gets."""
    command = manifest["spec"]["trainer"]["command"]
    return TrackedRun.from_json(command[command.index("--track") + 1].replace("$$", "$"))


def shorten_programs(manifest):
    """Return a manifest without the packed programs.

    They change with every line of their source.
    """
    trainer = manifest["spec"]["trainer"]
    words = [f"<{code.name}>" if (code := read_packed_code(word)) else word for word in trainer["command"]]
    return {**manifest, "spec": {**manifest["spec"], "trainer": {**trainer, "command": words}}}


@pytest.mark.parametrize(
    ("name", "dialect"), [(name, dialect) for name in STEPS for dialect in DIALECTS.get(name, [Dialect.V2_2])]
)
def test_a_manifest_is_that_of_its_file(name, dialect):
    manifest = shorten_programs(build(STEPS[name], dialect=dialect))
    text = yaml.safe_dump(manifest, sort_keys=False, width=120).replace(VERSION, "VERSION")
    file = GOLDEN / f"tracked-{name}-{dialect.value}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", STEPS)
def test_the_tracker_is_not_part_of_the_requests_identity(name):
    tracked = STEPS[name]
    untracked = tracked.model_copy(update={"tracking": None})
    assert spec_hash(tracked) == spec_hash(untracked)
    assert spec_hash(tracked) == RECORDED_HASHES[name]


def test_the_training_itself_is_unchanged():
    """Behind the program and its arguments, the command is that of the untracked training."""
    for name in ("trl", "function", "container"):
        manifests = [build(STEPS[name].model_copy(update={"tracking": each})) for each in (STEPS[name].tracking, None)]
        tracked, untracked = (manifest["spec"]["trainer"] for manifest in manifests)
        command = tracked["command"]
        assert command[command.index("--track") + 2 :] == untracked["command"]
        assert tracked.get("args") == untracked.get("args")


def test_a_tracked_torchtune_prints_all_metrics_of_each_step():
    arguments = build(STEPS["torchtune"])["spec"]["trainer"]["args"]
    assert arguments[-4:-2] == [
        "metric_logger._component_=torchtune.training.metric_logging.StdoutLogger",
        "~metric_logger.log_dir",
    ]
    config = TorchTuneConfig(overrides=("metric_logger.log_dir=/x",))
    own = STEPS["torchtune"].model_copy(update={"config": config})
    assert not any("StdoutLogger" in word for word in build(own)["spec"]["trainer"]["args"])


def test_the_output_folder_of_a_tracked_training_is_found():
    for name in ("torchtune", "trl", "image"):
        trainer = build(STEPS[name])["spec"]["trainer"]
        assert find_output_folder([*trainer["command"], *trainer["args"]]) == "/workspace/output"


def test_a_report_shows_the_command_without_the_code():
    words = shorten_command(build(STEPS["trl"])["spec"]["trainer"]["command"])
    assert words[:4] == ["python", "-m", "trainjob.frameworks.supervision", "--track"]
    assert max(map(len, words)) < 2000


def test_the_program_in_the_image_needs_no_packed_code():
    command = build(STEPS["image"])["spec"]["trainer"]["command"]
    assert command[:5] == ["python", "-m", "trainjob.frameworks.supervision", "--trainjob-version", VERSION]


def test_the_run_leads_back_to_its_origin():
    run = read_run(build(STEPS["torchtune"], attempt=2))
    assert run.name == "tune[3] manual__2026-01-01"
    options = {"tracking_uri": URI, "experiment": "tickets", "dataset": "/workspace/dataset"}
    assert {name: text for name, text in run.options.items() if name != "parent"} == options
    assert run.tags == {
        "trainjob.engine": "airflow",
        "trainjob.workflow": "tickets",
        "trainjob.task": "tune",
        "trainjob.run": "manual__2026-01-01",
        "trainjob.map_index": "3",
        "trainjob.namespace": "team",
        "trainjob.name": build(STEPS["torchtune"], attempt=2)["metadata"]["name"],
        "trainjob.attempt": "2",
    }


def test_the_map_indexes_of_a_task_have_one_parent():
    def parent_of(step="torchtune", **fields):
        return read_run(build(STEPS[step], key=replace(KEY, **fields))).options.get("parent")

    assert parent_of() == parent_of(map_index="0") != parent_of(run="manual__2")
    assert parent_of() != parent_of(origin="https://other.example.org")
    assert parent_of(map_index="0-eab8f4e9") == parent_of(map_index="12-01234567")
    # A task of one name in an exit handler, a condition or a nested pipeline, or a task of kfp.local.
    assert {parent_of(map_index=index) for index in ("", "eab8f4e9", "01234567")} == {None}
    assert parent_of("trl") is None  # only MLflow has parents


def test_system_metrics_are_an_option():
    tracking = MLflow(tracking_uri=URI, system_metrics=True)
    step = STEPS["torchtune"].model_copy(update={"tracking": tracking})
    assert read_run(build(step)).options["system_metrics"] == "true"


def test_the_parameters_are_those_of_the_configuration_and_of_the_tracker():
    parameters = read_run(build(STEPS["torchtune"])).parameters
    assert parameters == {
        "model": "llama3.2-1b",
        "framework": "torchtune",
        "epochs": "3",
        "overrides": '["device=cpu"]',
        "team": "support",
        "$(HOME)": "$(HOME) $$",
    }
    parameters = read_run(build(STEPS["trl"])).parameters
    assert parameters["peft_config.lora_rank"] == "16"
    assert parameters["peft_config.target_modules"] == '["all-linear"]'


def test_the_trackers_parameters_win():
    tracking = MLflow(tracking_uri=URI, parameters={"model": "mine", "flag": True, "long": "x" * 600})
    parameters = read_run(build(STEPS["torchtune"].model_copy(update={"tracking": tracking}))).parameters
    assert (parameters["model"], parameters["flag"]) == ("mine", "true")
    assert parameters["long"] == "x" * 499 + "…"


def test_a_secret_is_only_a_reference():
    env = {each["name"]: each for each in build(STEPS["function"])["spec"]["trainer"]["env"]}
    assert env["MLFLOW_TRACKING_TOKEN"] == {"name": "MLFLOW_TRACKING_TOKEN", "value": "$$(OTHER)"}  # the trainer's own
    env = {each["name"]: each for each in build(STEPS["torchtune"])["spec"]["trainer"]["env"]}
    reference = {"name": "mlflow", "key": "MLFLOW_TRACKING_PASSWORD", "optional": True}
    assert env["MLFLOW_TRACKING_PASSWORD"]["valueFrom"] == {"secretKeyRef": reference}
    step = STEPS["torchtune"].model_copy(
        update={"env": {"MLFLOW_TRACKING_TOKEN": SecretKeyReference(name="other", key="k")}}
    )
    env = {each["name"]: each for each in build(step)["spec"]["trainer"]["env"]}
    assert env["MLFLOW_TRACKING_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "other"


def test_too_many_parameters():
    tracking = MLflow(tracking_uri=URI, parameters={f"p{number}": "x" * 400 for number in range(200)})
    with pytest.raises(InvalidSpec) as refused:
        build(STEPS["torchtune"].model_copy(update={"tracking": tracking}))
    assert str(refused.value) == (
        "tracking.parameters cannot be '204 parameters': all parameters and tags may have 65536 characters "
        "together: give fewer or shorter ones"
    )


def test_a_command_that_is_too_long_with_the_program():
    trainer = CustomTrainerContainer(command=("c",) * 128)
    with pytest.raises(InvalidSpec, match=r"^trainer\.command cannot be '135 items': a TrainJob can have at most 128"):
        build(TrainJob(trainer=trainer, tracking=MLflow(tracking_uri=URI)))


@pytest.mark.parametrize(
    ("workflow", "task", "folder"),
    [
        ("tickets", "tune", "tickets/tune-"),
        ("..", "..", "_/..-"),
        (".", ".", "_/.-"),
        ("a/../b", "group.tune/x", "a_.._b/group.tune_x-"),
        ("ticket\n", "größe", "ticket_/größe-"),
    ],
)
def test_event_files_stay_in_their_folder(workflow, task, folder):
    run = read_run(build(STEPS["container"], key=RunKey("airflow", workflow, task, "run")))
    assert run.options["folder"] == f"/workspace/logs/{folder}{run.run_id[:8]}"


def test_a_project_of_wandb_has_a_valid_name():
    step = TrainJob(trainer=CustomTrainer(func=train), tracking=WandB())
    run = read_run(build(step, key=RunKey("kfp", "my pipeline/v1?", "tune", "run-1")))
    assert run.options == {"project": "my-pipeline-v1-", "mode": "online", "group": "run-1"}
    run = read_run(build(STEPS["image"]))
    assert (run.options["folder"], run.options["mode"]) == ("/workspace", "offline")


def test_a_trainjob_without_a_run_key_is_its_own_run():
    job = TrainJob(trainer=CustomTrainer(func=train), tracking=MLflow(tracking_uri=URI))
    runs = [read_run(build_trainjob(job, name=name, namespace="team")) for name in ("one", "two", "one")]
    assert runs[0] == runs[2]
    assert runs[0].run_id != runs[1].run_id
    assert (runs[0].name, runs[0].options["experiment"]) == ("one", "trainjob")
    assert runs[0].tags == {"trainjob.namespace": "team", "trainjob.name": "one"}


texts = st.text(st.characters(codec="utf-8"), max_size=20)
keys = st.builds(RunKey, texts, texts, texts, texts, texts, texts)


@given(keys, keys, st.integers(1, 99), st.integers(1, 99), texts, texts)
def test_a_run_belongs_to_one_run_key_and_renewal(one, other, attempt, later, renewal, other_renewal):
    """All attempts have the same run; another run key or a renewal has another one."""

    def run_of(key, number, renewal=""):
        prepared = prepare_job(STEPS["torchtune"], key, "team", renewal=renewal)
        return build_tracked_run(STEPS["torchtune"].tracking, prepared.build_metadata(number))

    first = run_of(one, attempt, renewal)
    assert first.run_id == run_of(one, later, renewal).run_id
    assert (first.run_id == run_of(other, later, renewal).run_id) == (one == other)
    assert (first.run_id == run_of(one, attempt, other_renewal).run_id) == (renewal == other_renewal)
    assert TrackedRun.from_json(first.to_json()) == first
