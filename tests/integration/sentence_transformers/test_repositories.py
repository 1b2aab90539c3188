"""Repositories of the hub are fetched, trained and exported with all files that load them."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.corpus.model_repositories import REPOSITORIES
from tests.integration.sentence_transformers.tiny_config import tiny_config
from trainjob import InitializeModel, RunKey, WorkspaceVolume, submit, wait
from trainjob_local.demo.hub import HubServer

pytestmark = [pytest.mark.sentence_transformers, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

[MINILM] = [each for each in REPOSITORIES if each.name == "sentence-transformers/all-MiniLM-L6-v2"]
# Names of files by repository, and the form of the tiny encoder whose files they get. The second one has weights in
# a folder of a module; the third one is a form of older releases, whose transformer has a folder of its own.
NAMES = {
    "sentence-transformers/all-MiniLM-L6-v2": (" ".join(MINILM.files), "modules"),
    "google/embeddinggemma-300m": (
        (
            ".gitattributes 1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors README.md "
            "config.json config_sentence_transformers.json model.safetensors modules.json sentence_bert_config.json "
            "special_tokens_map.json tokenizer.json tokenizer_config.json"
        ),
        "dense",
    ),
    "example/older": (
        (
            ".gitattributes README.md modules.json config_sentence_transformers.json 0_Transformer/config.json "
            "0_Transformer/pytorch_model.bin 0_Transformer/model.safetensors 0_Transformer/sentence_bert_config.json "
            "0_Transformer/tokenizer.json 0_Transformer/tokenizer_config.json 1_Pooling/config.json"
        ),
        "older",
    ),
}


@pytest.fixture
def repository(encoders, tmp_path, request):
    """Return a hub with a repository whose files have these names."""
    names, form = NAMES[request.param]
    folder = tmp_path / "hub" / "models" / request.param
    shutil.copytree(encoders / form, folder)
    for name in names.split():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(json.dumps({}) if name.endswith(".json") else "another program reads this")
    return tmp_path / "hub"


@pytest.mark.parametrize("repository", NAMES, indirect=True)
def test_a_repository_is_fetched_trained_and_exported(
    cluster, unique, run_training, export_model, workspace, repository, embed
):
    [source] = [path.parent for path in repository.rglob("modules.json")]
    address = source.relative_to(repository / "models").as_posix()
    where = WorkspaceVolume(node_path=str(workspace))
    with HubServer(repository) as server:
        fetch = InitializeModel(storage_uri=f"hf://{address}", endpoint=server.url, workspace=where)
        wait(cluster, submit(cluster, fetch, RunKey("test", "fetch", unique, "model"))).raise_for_failure()
    outcome, lines = run_training("run", tiny_config(max_steps=4), dataset_path="pairs")
    assert outcome.succeeded, lines[-20:]
    log = export_model("run")
    assert not [line for line in log if "does not" in line or "has none" in line], log
    exported = {path.relative_to(workspace / "export").as_posix() for path in (workspace / "export").rglob("*.*")}
    assert not [name for name in exported if name.startswith(("0_", "onnx/", "openvino/")) or name.endswith(".bin")]
    found = embed(source, workspace / "output" / "run", workspace / "export")
    assert found["export"]["vectors"] == found["run"]["vectors"] != found[source.name]["vectors"]
    manifest = json.loads((workspace / "export" / "manifest.json").read_text())
    assert (manifest["framework"], manifest["method"]) == ("sentence_transformers", "embedding")
    assert manifest["base_model"] == f"hf://{address}"
