"""A merged model computes what its base model and adapter compute, in every family and with every kind of adapter."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.training_fixtures import ROOT

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

PROGRAM = Path(__file__).with_name("merged_families.py")
CASES = 47
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.02}  # of logits up to 3.5


@pytest.fixture(scope="module", params=("trl", "llamafactory"))
def results(request, hub, tmp_path_factory):
    """Return what the program printed for each case, by name.

    LLaMA-Factory needs earlier releases of transformers and peft than TRL.
    """
    tokenizer, folder = hub / "models" / "demo" / "tiny-llama", tmp_path_factory.mktemp("families")
    command = [ROOT / ".venv" / request.param / "bin" / "python", PROGRAM, tokenizer, folder]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "core" / "src")))}
    printed = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {result.pop("case"): result for result in found}


def test_every_merge_keeps_the_logits(results):
    merged = {case: result for case, result in results.items() if ", " in case}
    assert len(merged) == CASES
    assert {case: result["error"] for case, result in merged.items() if "error" in result} == {}
    for case, result in merged.items():
        assert result["difference"] <= TOLERANCES[case.rpartition(", ")[2]], case
        assert result["effect"] is None or result["effect"] > 100 * result["difference"], case


def test_every_family_is_merged_by_layer(results):
    printed = {case: result["printed"] for case, result in results.items() if ", " in case}
    whole = {case for case, text in printed.items() if "the merge loads the whole base model" in text}
    assert whole == {case for case in printed if "trained biases" in case}


def test_added_embeddings_are_merged_with_the_whole_model(results):
    added = results["added"]
    assert "the merge loads the whole base model: the training added embeddings\n" in added["printed"]
    assert added["difference"] <= 1e-5


def test_the_head_of_a_reward_model_is_merged_with_the_whole_model(results):
    reward = results["reward"]
    assert "the merge loads the whole base model: " in reward["printed"]
    assert reward["difference"] <= 1e-5


def test_an_adapter_that_is_loaded_in_part_is_not_merged(results):
    expected = "peft does not load 2 of the adapter's 8 tensors, such as base_model.model.model.layers.9.self_attn.v"
    assert expected in results["partly loaded"]["error"]


def test_a_merge_needs_memory_for_one_layer(results):
    large = results["large"]
    assert large["peak"] <= large["largest"] + (1 << 30) < large["all"]
    assert large["difference"] <= 1e-4  # relative, because the logits of a larger model are larger
    assert "each of its 42 changed tensors is that of base model and adapter; logits were not" in large["printed"]


def test_the_merged_folder_of_a_model_with_own_code_has_the_code(results):
    assert "modeling_own.py" in results["own code, all linear, float32"]["files"]


def test_a_merge_that_changes_the_logits_is_an_error_and_replaces_nothing(results):
    """The program asserts that there is no folder with a merged model."""
    assert "the logits of the merged model differ by" in results["wrong"]["error"]
