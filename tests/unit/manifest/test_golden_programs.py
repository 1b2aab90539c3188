"""TrainJobs whose programs are in their image, compared with files: a change of a manifest must be intended.

UPDATE_GOLDEN=1 pytest tests/unit/manifest/test_golden_programs.py     writes the files anew
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from trainjob import (
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    LoraConfig,
    ModelRegistry,
    TorchTuneConfig,
    TRLConfig,
)
from trainjob.manifest import Dialect, build_trainjob, to_trainjob
from trainjob.version import VERSION

GOLDEN = Path(__file__).parent / "golden"
COMMON = {"workspace": "tickets", "program": "image"}
STEPS = {
    "dataset": InitializeDataset(storage_uri="s3://data/tickets", image="registry.example/steps:1", **COMMON),
    "model": InitializeModel(storage_uri="hf://acme/llama", revision="v1", image="registry.example/steps:1", **COMMON),
    "torchtune": FineTune(
        model="llama3.2-1b",
        image="registry.example/torchtune:1",
        config=TorchTuneConfig(epochs=3, peft_config=LoraConfig(lora_rank=16)),
        **COMMON,
    ),
    "torchtune-runtime": FineTune(
        model="llama3.2-1b", config={"framework": "torchtune"}, runtime="team-torchtune", **COMMON
    ),
    "trl": FineTune(
        model="llama-1b",
        image="registry.example/trl:1",
        config=TRLConfig(method="sft", columns={"prompt": "question"}),
        **COMMON,
    ),
    "export": ExportModel(
        destination="s3://models/tickets",
        image="registry.example/steps:1",
        metadata={"team": "support"},
        registry=ModelRegistry(server="https://registry.example", model="tickets"),
        **COMMON,
    ),
}
DIALECTS = {"dataset": list(Dialect)}


@pytest.mark.parametrize(
    ("name", "dialect"), [(name, dialect) for name in STEPS for dialect in DIALECTS.get(name, [Dialect.V2_2])]
)
def test_a_manifest_is_that_of_its_file(name, dialect):
    job = to_trainjob(STEPS[name], run="0123456789abcdef-0123456789abcdef")
    manifest = build_trainjob(job, name=name, namespace="team", dialect=dialect)
    text = yaml.safe_dump(manifest, sort_keys=False, width=120).replace(f"- {VERSION}\n", "- VERSION\n")
    file = GOLDEN / f"image-{name}-{dialect.value}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
