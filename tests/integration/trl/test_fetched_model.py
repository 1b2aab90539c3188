"""A model that a fetch brings from the hub trains on conversations, and its export has all of its files."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from trainjob import ExportModel, FineTune, InitializeModel, RunKey, WorkspaceVolume, submit, wait
from trainjob.lifecycle import Listener
from trainjob_local.demo.hub import HubServer

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

# Shards of the weights, and the tokenizer's special tokens, which transformers 5 saves in tokenizer_config.json.
OTHER_FORM = {"model.safetensors", "model.safetensors.index.json", "special_tokens_map.json"}
EXTRA = {
    "LICENSE": "Apache License 2.0",
    "additional_chat_templates/tool_use.jinja": "{{ messages }}",
    "configuration_own.py": "ANSWER = 42\n",
}


@pytest.fixture
def repository(hub, tmp_path):
    """Return a hub with a model whose chat template is a file, as transformers 5 saves it."""
    root = tmp_path / "hub"
    folder = root / "models" / "demo" / "instruct"
    shutil.copytree(hub / "models" / "demo" / "tiny-llama", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "chat_template.jinja").write_text(config.pop("chat_template"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for name, text in {**EXTRA, "pytorch_model.bin": "other weights", "onnx/model.onnx": "other weights"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return root


@pytest.fixture
def run_step(cluster, unique):
    def run(name, step):
        lines = []
        reference = submit(cluster, step, RunKey("test", "fetched", unique, name))
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
        assert outcome.succeeded, lines
        return lines

    return run


def list_files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_model_of_the_hub_trains_on_conversations_and_is_exported_whole(run_step, repository, workspace):
    shutil.rmtree(workspace / "model")
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]
    (workspace / "dataset" / "talks").mkdir()
    (workspace / "dataset" / "talks" / "train.jsonl").write_text("\n".join([json.dumps({"messages": messages})] * 8))
    where = WorkspaceVolume(node_path=str(workspace))
    with HubServer(repository) as server:
        fetch = InitializeModel(storage_uri="hf://demo/instruct", endpoint=server.url, workspace=where)
        lines = run_step("model", fetch)
    assert any(re.fullmatch(r"fetch: left out, .*: onnx/model\.onnx, pytorch_model\.bin", line) for line in lines)
    source = list_files(repository / "models" / "demo" / "instruct")
    fetched = {name for name in list_files(workspace / "model") if not name.startswith(".")}
    assert source - fetched == {"pytorch_model.bin", "onnx/model.onnx"}
    config = tiny_config(max_steps=2, columns={})
    run_step("train", FineTune(model="m", workspace=where, config=config, dataset_path="talks", image="trl"))
    run_step("export", ExportModel(workspace=where, destination="/workspace/export", any_run=True))
    exported = list_files(workspace / "export")
    assert fetched - exported <= OTHER_FORM
    assert {"model.safetensors", "chat_template.jinja", *EXTRA} <= exported
