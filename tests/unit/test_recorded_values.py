"""Tests of the values that outlive a release: in clusters, databases, files, pod logs and scripts of users.

They are compared with `recorded/values.json`. New values are added to that file. A recorded value must not change,
unless a test shows that the old value still works.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import BaseModel
from typer.main import get_command

from trainjob import (
    BuiltinTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    Limits,
    MLflow,
    RunKey,
    TrainJob,
    TrainJobManifest,
    errors,
    spec,
    status,
)
from trainjob.cli.application import application
from trainjob.client import ClusterIdentity
from trainjob.frameworks import llamafactory, torchtune, trl, unsloth
from trainjob.frameworks.fine_tuning import run_files
from trainjob.frameworks.tracking.trackers import RUN_ID_TAG
from trainjob.lifecycle import JobReference
from trainjob.manifest import labels, spec_hash, training_hash
from trainjob.manifest.tracking import build_tracked_run
from trainjob.programs.fetch.record import RECORD_FILE
from trainjob.status import Outcome, Phase, TransferLogParser, Usage
from trainjob.status.step_result import parse_step_result

RECORDED = json.loads(Path(__file__).with_name("recorded").joinpath("values.json").read_text())

MANIFEST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "own"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}
STEPS = {
    "fetch a dataset": InitializeDataset(storage_uri="hf://a/b", workspace="w"),
    "fetch a model": InitializeModel(storage_uri="s3://a/b", workspace="w", secret="s", env={"A": "b"}),
    "fine-tune": FineTune(
        model="llama3.2-1b",
        workspace="w",
        config={"framework": "torchtune", "epochs": 2, "peft_config": {"lora_rank": 4}},
    ),
    "fine-tune with TRL": FineTune(
        model="m",
        workspace="w",
        config={"framework": "trl", "method": "sft", "epochs": 2, "peft_config": {"lora_rank": 4}},
    ),
    "fine-tune with LLaMA-Factory": FineTune(
        model="m",
        workspace="w",
        config={"framework": "llamafactory", "method": "sft", "epochs": 2, "peft_config": {"lora_rank": 4}},
    ),
    "fine-tune with Unsloth": FineTune(
        model="m",
        workspace="w",
        image="unsloth:1",
        config={
            "framework": "unsloth",
            "method": "sft",
            "resources_per_node": {"gpu": 1},
            "peft_config": {"lora_rank": 4},
        },
    ),
    "export": ExportModel(destination="hf://a/b", workspace="w", output_path="first"),
    "export of an adapter": ExportModel(destination="hf://a/b", workspace="w", adapter="keep"),
    "tracked container": TrainJob(
        trainer=CustomTrainerContainer(image="i", command=("a", "b"), env={"A": "b"}, num_nodes=2),
        tracking=MLflow(tracking_uri="https://mlflow", experiment="e", secret="s"),
    ),
    "container": TrainJob(trainer=CustomTrainerContainer(image="i", command=("a", "b"), env={"A": "b"}, num_nodes=2)),
    "builtin": TrainJob(trainer=BuiltinTrainer(config={"epochs": 1}), runtime="torchtune-llama3.2-1b"),
    "manifest": TrainJobManifest(manifest=MANIFEST),
}

TRACKING = MLflow(tracking_uri="https://mlflow")
TRACKED_METADATA = {
    "name": "own",
    "annotations": {labels.RUN_KEY: '{"engine":"airflow"}', labels.SPEC_HASH: "0123", labels.RENEWAL: "again"},
}


def recorded_commands():
    """Return the options and arguments of `trainjob` and of each of its commands."""
    tree: Any = get_command(application())
    context = click.Context(tree)
    loaded = {name: tree.resolve_command(context, [name])[1] for name in sorted(tree.list_commands(context))}
    root = sorted(name for parameter in tree.params for name in parameter.opts)
    return {"trainjob": root, **{name: recorded_options(command) for name, command in loaded.items()}}


def recorded_options(command):
    own = sorted(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))
    below = getattr(command, "commands", {})
    return {"": own, **{name: recorded_options(found) for name, found in sorted(below.items())}} if below else own


def error_names():
    found = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.TrainJobError)]
    return {one.__name__: [parent.__name__ for parent in one.__mro__[1:-2]] for one in found}


def current_values():
    key = RunKey("airflow", "dag", "task", "run-1", "3", "here")
    public = [
        *vars(spec).values(),
        *(getattr(each, name) for each in (torchtune, trl, llamafactory, unsloth) for name in each.__all__),
    ]
    models = [one for one in public if inspect.isclass(one) and issubclass(one, BaseModel)]
    annotations = {name: value for name, value in vars(labels).items() if str(value).startswith(labels.PREFIX + "/")}
    lines = (
        'export: done {"manifest_sha256": "0"}',
        'fetch: done {"files": 1}',
        'trainjob result: {"loss": 1.5}',
    )
    fetched = TransferLogParser().feed("fetch: 1/2 a.json (10 bytes) (50 %)")
    return {
        "JobReference": [field.name for field in fields(JobReference)],
        "Limits": Limits(queued=timedelta(1), starting=timedelta(1), total=timedelta(1)).to_dict(),
        "Outcome": [field.name for field in fields(Outcome)],
        "Usage": list(Usage().to_dict()),
        "phases": [phase.value for phase in Phase],
        "categories": [category.value for category in status.Category],
        "errors": error_names(),
        "specs": {one.__name__: sorted(one.model_fields) for one in models},
        "fingerprints": {name: spec_hash(step) for name, step in STEPS.items()},
        "training hashes": {name: training_hash(step) for name, step in STEPS.items()},
        "run key": {"canonical": key.canonical, "digest": key.digest},
        "labels and annotations": sorted({*annotations.values(), *labels.run_labels(key.to_dict(), "digest", 1)}),
        "command": recorded_commands(),
        "tag of a tracked run": RUN_ID_TAG,
        "tracked run": build_tracked_run(TRACKING, TRACKED_METADATA).run_id,
        "record of a fetch": RECORD_FILE,
        "record of a TRL training": run_files.RECORD_FILE,
        "handed back": {line: parse_step_result(line) for line in lines},  # serialized name
        "progress of a fetch": fetched.to_dict() if fetched else None,
    }


def is_preserved(recorded, now):
    """Return whether all recorded values still exist; lists and tables may have become longer."""
    if isinstance(recorded, dict):
        return isinstance(now, dict) and all(
            name in now and is_preserved(recorded[name], now[name]) for name in recorded
        )
    if isinstance(recorded, list):
        return isinstance(now, list) and not [value for value in recorded if value not in now]
    return recorded == now


CLUSTER = {"server": "https://a", "authorities": ["b"]}
REFERENCE = JobReference("a", "b", "c", 2, True, "d", 1, 1, ClusterIdentity.from_dict(CLUSTER))
INNER = ("cluster", "usage", "progress")  # fields that are serialized classes, too
CURRENT = [
    (REFERENCE, {"name": "a", "namespace": "b", "uid": "c"}, JobReference("a", "b", "c")),
    (Limits(starting=timedelta(1), max_restarts=2), {"starting": 86400.0}, Limits(starting=timedelta(1))),
    (
        Outcome("a", "b", "c", Phase.FAILED, status.Category.IMAGE, progress=status.Progress(3), usage=Usage(1.0)),
        {"job": "a", "namespace": "b", "uid": "c", "phase": "Failed"},
        Outcome("a", "b", "c", Phase.FAILED, status.Category.UNKNOWN),
    ),
]


@pytest.mark.parametrize(("current", "older", "expected"), CURRENT, ids=[type(each[0]).__name__ for each in CURRENT])
def test_values_of_an_older_and_of_a_newer_version_are_read(current, older, expected):
    """The newer version has one more field in each class, and the older one only those without a default."""
    read, values = type(current).from_dict, json.loads(json.dumps(current.to_dict()))
    newer = {**values, "new": {"a": 1}, **{name: {**values[name], "new": 1} for name in INNER if values.get(name)}}
    assert (read(values), read(newer), read(older)) == (current, current, expected)
    with pytest.raises(errors.IncompatibleVersion):
        read([values])


def test_run_keys_of_an_older_and_of_a_newer_version_are_read():
    """A sweep and a clean-up then recognize the TrainJobs of the other version."""
    key = RunKey("kfp", "pipeline", "task", "run")
    values = json.loads(key.canonical)
    del values["origin"], values["map_index"]
    assert RunKey.from_text(json.dumps(values)) == RunKey.from_text(json.dumps({**values, "new": [1]})) == key
    del values["run"]
    assert RunKey.from_text(json.dumps(values)) is None


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_values_have_not_changed(name):
    now = json.loads(json.dumps(current_values()[name]))
    assert is_preserved(RECORDED[name], now), f"{name} was {RECORDED[name]}, and is {now}"
