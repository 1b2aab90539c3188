"""Address to which a training copies its checkpoints: what is refused, and what the pod gets."""

from __future__ import annotations

import json

import pytest

from trainjob import FineTune, InvalidSpec, TRLConfig
from trainjob.manifest import spec_hash, training_hash, weight_fields
from trainjob.manifest.steps import to_trainjob

URI = "s3://bucket/checkpoints"


def fine_tune(**fields):
    given = {"model": "m", "workspace": "w", "config": TRLConfig(method="sft"), "checkpoint_uri": URI}
    return FineTune(**{**given, **fields})


def get_option(step, name):
    words = to_trainjob(step, run="r").trainer.args
    return words[words.index(name) + 1] if name in words else None


@pytest.mark.parametrize("uri", [URI, "gs://bucket/a", "az://container/a", "abfss://c@account.dfs.core.windows.net/a"])
def test_a_pod_gets_the_address_and_the_program_that_copies(uri):
    step = fine_tune(checkpoint_uri=uri, checkpoint_endpoint="http://store:9000")
    assert get_option(step, "--checkpoint-uri") == uri
    option, bootstrap, packed, name, *words = json.loads(get_option(step, "--copier"))
    assert (option, name) == ("-c", "trainjob.frameworks.checkpoint_copies")
    assert words == ["--endpoint", "http://store:9000"]
    assert "runpy" in bootstrap
    assert len(get_option(step, "--copier")) < 65_536
    assert packed not in " ".join(to_trainjob(step).trainer.command)
    without = fine_tune(checkpoint_uri=None)
    assert get_option(without, "--copier") is get_option(without, "--checkpoint-uri") is None


def test_an_image_with_the_code_runs_its_own_program():
    words = json.loads(get_option(fine_tune(program="image", image="i"), "--copier"))
    assert words[:2] == ["-m", "trainjob.frameworks.checkpoint_copies"]


@pytest.mark.parametrize(
    ("uri", "key"), [(URI, "ACCESS_KEY_ID"), ("gs://b/c", "GOOGLE_CREDENTIALS"), ("az://b/c", "AZURE_STORAGE_KEY")]
)
def test_the_secret_of_the_step_has_the_credentials_of_the_store(uri, key):
    env = to_trainjob(fine_tune(checkpoint_uri=uri, secret="keys")).trainer.env
    assert {"HF_TOKEN", key} <= env.keys()
    assert key not in to_trainjob(fine_tune(checkpoint_uri=None, secret="keys")).trainer.env


@pytest.mark.parametrize(
    ("fields", "field", "rule"),
    [
        ({"checkpoint_uri": "hf://organization/name"}, "checkpoint_uri", "the Hub keeps every version"),
        ({"checkpoint_uri": "ftp://host/path"}, "checkpoint_uri", "s3://… or gs://…"),
        ({"checkpoint_uri": "s3://key:secret@bucket/a"}, "checkpoint_uri", "must not contain a user name"),
        ({"resume": False}, "checkpoint_uri", "it needs resume=True"),
        ({"checkpoint_uri": None, "checkpoint_endpoint": "http://s"}, "checkpoint_endpoint", "it needs checkpoint_uri"),
        ({"config": TRLConfig(method="sft", save_strategy="no")}, "checkpoint_uri", "must save checkpoints"),
        (
            {"config": {"framework": "torchtune"}, "model": "llama3.2-1b"},
            "checkpoint_uri",
            "TorchTune's checkpoints are not copied",
        ),
        (
            {
                "config": {"framework": "torchtune"},
                "model": "llama3.2-1b",
                "workspace": None,
                "dataset": {"storage_uri": "hf://a/b"},
            },
            "checkpoint_uri",
            "allowed only with a workspace",
        ),
    ],
)
def test_what_cannot_be_copied_is_refused(fields, field, rule):
    with pytest.raises(InvalidSpec) as raised:
        fine_tune(**fields)
    assert [problem.field for problem in raised.value.problems] == [field]
    assert rule in str(raised.value)
    assert "secret@" not in str(raised.value)


def test_an_empty_text_of_a_template_means_no_copies():
    assert fine_tune(checkpoint_uri="") == fine_tune(checkpoint_uri=None)


def test_copies_decide_neither_the_result_nor_the_weights():
    one, other = fine_tune(checkpoint_uri=None), fine_tune(checkpoint_endpoint="http://store")
    assert spec_hash(one) != spec_hash(other)
    assert (training_hash(one), weight_fields(one)) == (training_hash(other), weight_fields(other))
