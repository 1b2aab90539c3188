"""Exports of real TRL runs, loaded with transformers and peft, and compared with what the training left."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.programs.export.export_program import BASE_ENVIRONMENT, ROOT, export_command, export_environment
from tests.support.export_runs import write
from trainjob_demo.tickets_hub import make_hub

pytestmark = [pytest.mark.slow]

PYTHON = ROOT / ".venv" / "trl" / "bin" / "python"
MODELS = Path(__file__).with_name("trl_models.py")
WHOLE_ADAPTER = {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json"}

Train = Callable[..., Path]
RunExport = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the demo's tiny model and tickets."""
    folder = tmp_path_factory.mktemp("hub")
    make_hub(folder, PYTHON.parents[1])
    return folder


@pytest.fixture
def run_models(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs `trl_models.py` and returns its output."""

    def run(*arguments: object) -> str:
        env = {**BASE_ENVIRONMENT, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            [PYTHON, MODELS, *map(str, arguments)], env=env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture
def workspace(tmp_path: Path, hub: Path) -> Path:
    """Return a workspace with the tiny model and a dataset in TRL's format."""
    folder = tmp_path / "workspace"
    shutil.copytree(hub / "models" / "demo" / "tiny-llama", folder / "model")
    pairs = [(f"Ticket {n}: my invoice is wrong.", " Route to billing.", " I do not know.") for n in range(24)]
    sft = [{"prompt": prompt, "completion": answer} for prompt, answer, _ in pairs]
    preference = [{"prompt": prompt, "chosen": good, "rejected": bad} for prompt, good, bad in pairs]
    for name, rows in (("sft", sft), ("reward", preference)):
        write(folder / "dataset" / name / "train.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.fixture
def train(workspace: Path, run_models: Callable[..., str]) -> Train:
    """Return a function that runs a training and returns its output folder."""

    def run(method: str, *kind: str) -> Path:
        output = workspace / "output"
        run_models("train", method, workspace / "model", workspace / "dataset" / method, output, *kind)
        return output

    return run


@pytest.fixture
def run_export(workspace: Path, tmp_path: Path) -> RunExport:
    """Return a function that runs the export and returns its receipt."""

    def run(destination: Path, *more: str) -> dict[str, Any]:
        command = export_command(workspace, destination, *more)
        done = subprocess.run(command, env=export_environment(tmp_path), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        receipt: dict[str, Any] = json.loads(done.stdout.splitlines()[-1].removeprefix("export: done "))
        return receipt

    return run


@pytest.fixture
def compare(workspace: Path, run_models: Callable[..., str]) -> Callable[[Path, Path], dict[str, Any]]:
    """Return a function that compares the models in two folders."""

    def run(one: Path, other: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run_models("compare", workspace / "model", one, other).splitlines()[-1])
        return found

    return run


def list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_fully_tuned_model_gives_the_same_answers_after_its_export(
    workspace: Path, train: Train, run_export: RunExport, compare: Callable[[Path, Path], dict[str, Any]]
) -> None:
    output = train("sft", "full")
    receipt = run_export(workspace / "export")
    assert (receipt["kind"], receipt["step"]) == ("model", 3)
    assert receipt["metrics"]["loss"] > 0
    assert list_files(workspace / "export") == {
        *("config.json", "generation_config.json", "model.safetensors", "README.md", "manifest.json"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "original/tokenizer.model"),
    }
    found = compare(output, workspace / "export")
    assert (found["between"], found["architecture"]) == (0.0, "LlamaForCausalLM")
    assert found["from_base"] > 0.1
    assert "start_header_id" in found["template"]
    assert found["answers"][0] == found["answers"][1]


def test_a_lora_run_is_exported_merged_or_as_an_adapter(
    workspace: Path,
    train: Train,
    run_models: Callable[..., str],
    run_export: RunExport,
    compare: Callable[[Path, Path], dict[str, Any]],
) -> None:
    output = train("sft", "lora", "merge")
    assert run_export(workspace / "merged")["kind"] == "model"
    merged = compare(output, workspace / "merged")  # base plus adapter, and the exported model
    assert merged["between"] < 1e-5 < 0.01 < merged["from_base"]
    assert merged["answers"][0] == merged["answers"][1]

    metadata = ("--manifest", json.dumps({"base_model": "hf://demo/tiny-llama"}))
    assert run_export(workspace / "adapter", "--adapter", "keep", *metadata)["kind"] == "adapter"
    assert list_files(workspace / "adapter") >= WHOLE_ADAPTER
    config = json.loads((workspace / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "demo/tiny-llama"
    adapter = compare(output, workspace / "adapter")
    assert adapter["between"] == 0.0
    assert adapter["from_base"] == pytest.approx(merged["from_base"], abs=1e-5)

    shutil.rmtree(output / "merged")
    run_models("merge", workspace / "model", output, output / "merged", "100KB")
    run_export(workspace / "sharded")
    assert len([name for name in list_files(workspace / "sharded") if name.endswith(".safetensors")]) > 1
    sharded = compare(workspace / "merged", workspace / "sharded")
    assert (sharded["between"], sharded["answers"][0]) == (0.0, merged["answers"][0])


def test_a_reward_model_is_exported_with_its_head(
    workspace: Path, train: Train, run_export: RunExport, compare: Callable[[Path, Path], dict[str, Any]]
) -> None:
    output = train("reward", "full")
    run_export(workspace / "export")
    assert "generation_config.json" not in list_files(workspace / "export") - list_files(output)
    found = compare(output, workspace / "export")
    assert (found["between"], found["architecture"]) == (0.0, "LlamaForSequenceClassification")
    card = (workspace / "export" / "README.md").read_text()
    assert 'tags: ["trl", "reward", "trainjob"]' in card
