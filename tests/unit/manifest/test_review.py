"""Summaries of TrainJobs for reviewers."""

from __future__ import annotations

import base64
import hashlib
import zlib

import pytest
import yaml

from trainjob import (
    CustomTrainer,
    ExportModel,
    FineTune,
    InitializeModel,
    LLaMAFactoryConfig,
    TrainJob,
    TRLConfig,
    UnslothConfig,
)
from trainjob.cli.terminal import to_yaml
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob.manifest.review import shorten_command, summarize_manifest
from trainjob.packing import BOOTSTRAP
from trainjob.version import VERSION

STEPS = {
    "trainjob.programs.fetch": InitializeModel(storage_uri="hf://acme/llama", workspace="tickets"),
    "trainjob.programs.export": ExportModel(destination="s3://models/tickets", workspace="tickets"),
    "trainjob.frameworks.torchtune.pod": FineTune(
        model="llama3.2-1b", workspace="tickets", config={"framework": "torchtune"}
    ),
    "trainjob.frameworks.trl.pod": FineTune(model="m", workspace="tickets", config=TRLConfig(method="sft")),
    "trainjob.frameworks.llamafactory.pod": FineTune(
        model="m", workspace="tickets", config=LLaMAFactoryConfig(method="sft")
    ),
    "trainjob.frameworks.unsloth.pod": FineTune(
        model="m",
        workspace="tickets",
        image="registry.example/unsloth:1",
        config=UnslothConfig(method="sft", resources_per_node={"gpu": 1}),
    ),
}


def answer(completions, **_):
    """Return a reward for each answer."""
    return [float(len(text)) for text in completions]


def train(rate=0.1):
    import math

    print("training at", math.log(rate))
    return {"loss": 1.5}


def build(step):
    return build_trainjob(to_trainjob(step, run="run-1"), name="step", namespace="team")


@pytest.mark.parametrize("program", STEPS)
def test_a_packed_program_is_replaced_by_its_digest(program):
    manifest = build(STEPS[program])
    packed = manifest["spec"]["trainer"]["command"][3]
    summary = summarize_manifest(manifest)
    digest = hashlib.sha256(zlib.decompress(base64.b64decode(packed))).hexdigest()
    shown = f"<{program} {VERSION}, packed, {len(packed):,} characters, sha256:{digest}>"
    assert summary["spec"]["trainer"]["command"] == ["python", "-c", BOOTSTRAP, shown, program]
    summary["spec"]["trainer"]["command"][3] = packed
    assert summary == manifest
    assert len(to_yaml(summarize_manifest(manifest))) < 3_000


def test_the_digest_does_not_depend_on_the_compression():
    manifest = build(STEPS["trainjob.programs.fetch"])
    packed = manifest["spec"]["trainer"]["command"][3]
    again = base64.b64encode(zlib.compress(zlib.decompress(base64.b64decode(packed)), 1)).decode()
    assert again != packed
    digests = set()
    for text in (packed, again):
        manifest["spec"]["trainer"]["command"][3] = text
        digests.add(summarize_manifest(manifest)["spec"]["trainer"]["command"][3].rpartition(":")[2])
    assert len(digests) == 1


@pytest.mark.parametrize("resume", [False, True])
def test_a_function_is_shown_as_source_in_a_block(resume):
    summary = summarize_manifest(build(TrainJob(trainer=CustomTrainer(func=train, resume=resume))))
    source = summary["spec"]["trainer"]["command"][3]
    assert source.startswith("from __future__ import annotations\ndef train(rate=0.1):\n    import math\n")
    assert (f"<trainjob.checkpoint {VERSION}, packed, " in source) == resume
    printed = to_yaml(summary)
    assert "- |-\n" in printed or "- |\n" in printed
    assert "\n      def train(rate=0.1):\n" in printed
    assert yaml.safe_load(printed) == summary


def test_a_reward_function_is_shown_as_source():
    config = TRLConfig(method="grpo", reward_functions=(answer, "think_format_reward"))
    words = summarize_manifest(build(FineTune(model="m", workspace="w", config=config)))["spec"]["trainer"]["args"]
    shown = [words[number + 1] for number, word in enumerate(words) if word == "--reward"]
    assert shown[0].startswith("answer:from __future__ import annotations\ndef answer(completions, **_):")
    assert shown[1] == "think_format_reward"


@pytest.mark.parametrize(
    "word",
    [
        "a" * 70_000,
        "0123456789abcdef-0123456789abcdef",
        base64.b64encode(b"no code at all, only a text").decode(),
        base64.b64encode(zlib.compress(b"not a zip file")).decode(),
        base64.b64encode(b"\xff\xfe" * 40).decode(),
        "",
    ],
)
def test_other_words_are_unchanged(word):
    manifest = {"spec": {"trainer": {"command": ["run", word], "args": [word]}}}
    assert summarize_manifest(manifest) == manifest


def test_a_manifest_without_a_trainer_is_unchanged():
    manifest = {"kind": "TrainJob", "spec": {"runtimeRef": {"name": "torch-distributed"}}}
    assert summarize_manifest(manifest) == manifest


def test_a_report_shows_the_program_and_its_arguments():
    trainer = build(STEPS["trainjob.programs.fetch"])["spec"]["trainer"]
    words = shorten_command([*trainer["command"], *trainer["args"]])
    arguments = ["--kind", "model", "--folder", "/workspace/model"]
    assert words == ["python", "-m", "trainjob.programs.fetch", *arguments]
    assert shorten_command(["python", "-c", "print(1)"]) == ["python", "-c", "print(1)"]
    assert shorten_command(["python", "-c", "x = 1;" * 50, "word"]) == ["python", "-c", "…", "word"]
