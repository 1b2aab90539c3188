"""The command line of TorchTune.

Recipe and configuration come from `trainjob.spec.recipes`, the same table as the Trainer's torch plugin uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from trainjob.manifest.environment import literal
from trainjob.spec import LoraConfig, TorchTuneConfig, TorchTuneInstructDataset
from trainjob.spec.recipes import Model, recipe_and_config

WORKSPACE = "/workspace"
# torchrun takes nodes, processes and rank from PET_ variables, which the Trainer sets. Kubernetes puts them in here, so
# that the arguments do not depend on the TrainJob's name.
_RENDEZVOUS = "--rdzv_endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)"

# Texts that YAML takes as they are.
_PLAIN = re.compile(r"[A-Za-z]([\w .,!?'()/%\[\]:-]*[\w.!?)%\]])?", re.ASCII)
_WORDS = re.compile(r"y|n|yes|no|on|off|true|false|null|none", re.IGNORECASE)


def tune_run(model: Model, config: TorchTuneConfig, dataset_path: str) -> list[str]:
    """The arguments after `tune` for a training over a workspace.

    Args:
        model: what is trained.
        config: checked by `trainjob.spec.recipes.check_recipe`.
        dataset_path: where the data files lie below the dataset's folder.
    """
    recipe, configuration = recipe_and_config(model, config)
    layout = {
        "output_dir": f"{WORKSPACE}/output",
        "tokenizer.path": f"{WORKSPACE}/model/{model.tokenizer}",
        "tokenizer.merges_file": f"{WORKSPACE}/model/{model.merges}" if model.merges else None,
        "checkpointer.checkpoint_dir": f"{WORKSPACE}/model",
    }
    distributed = [_RENDEZVOUS] if recipe.endswith("_distributed") else []
    arguments = recipe_arguments(config, dataset_path)
    return ["run", *distributed, recipe, "--config", configuration, *_pairs(layout), *arguments]


def recipe_arguments(config: TorchTuneConfig, dataset_path: str) -> list[str]:
    """The `key=value` arguments for a configuration, in the Kubeflow SDK's order, then ours, then the overrides."""
    plain = {"dtype": config.dtype, "batch_size": config.batch_size, "epochs": config.epochs, "loss": config.loss}
    more = {
        "seed": config.seed,
        "optimizer.lr": config.learning_rate,
        "max_steps_per_epoch": config.max_steps_per_epoch,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
    }
    own_dataset = any(override.startswith(("dataset=", "dataset._component_=")) for override in config.overrides)
    return [
        *_pairs(plain),
        *_pairs(_lora(config.peft_config)),
        *_pairs(_dataset(config.dataset_preprocess_config, dataset_path, own=own_dataset)),
        *_pairs(more),
        *config.overrides,
    ]


def _lora(lora: LoraConfig | None) -> Mapping[str, Any]:
    if lora is None:
        return {}
    # `model.lora_attn_modules` is what makes the plugin choose a LoRA recipe; flags that are false are left out, as up
    # to Trainer 2.2 any `model.quantize_base` chose QLoRA.
    return {
        "model.apply_lora_to_mlp": lora.apply_lora_to_mlp,
        "model.apply_lora_to_output": lora.apply_lora_to_output,
        "model.lora_rank": lora.lora_rank,
        "model.lora_alpha": lora.lora_alpha,
        "model.lora_dropout": lora.lora_dropout,
        "model.quantize_base": lora.quantize_base or None,
        "model.use_dora": lora.use_dora or None,
        "model.lora_attn_modules": f"[{','.join(lora.lora_attn_modules)}]",
    }


def _dataset(dataset: TorchTuneInstructDataset | None, path: str, *, own: bool) -> Mapping[str, Any]:
    """Arguments for the dataset; without a word on it, parquet files with instructions as in the stock runtimes.

    TorchTune's own default would fetch another dataset from the Hub.
    """
    location = literal(f"{WORKSPACE}/dataset/{path}".rstrip("/"))
    where = "dataset.data_files" if "." in path.rpartition("/")[2].strip(".") else "dataset.data_dir"
    if own:
        return {where: location}
    dataset = dataset or TorchTuneInstructDataset()
    return {
        "dataset": "torchtune.datasets.instruct_dataset",
        "dataset.source": dataset.source.value if dataset.source else "parquet",
        where: location,
        "dataset.split": _text(dataset.split),
        "dataset.train_on_input": dataset.train_on_input,
        "dataset.new_system_prompt": _text(dataset.new_system_prompt),
        "dataset.column_map": _columns(dataset.column_map),
    }


def _text(value: str | None) -> str | None:
    """A person's text as a value: TorchTune reads values as YAML with OmegaConf's `${...}` (torchtune 0.6.1)."""
    if value is None or (_PLAIN.fullmatch(value) and ": " not in value and not _WORDS.fullmatch(value)):
        return value
    return _quoted(value)


def _columns(names: Mapping[str, str] | None) -> str | None:
    if names is None or all(_PLAIN.fullmatch(name) and "'" not in name for name in names.values()):
        return None if names is None else str(dict(names))
    return f"{{{', '.join(f'{ours}: {_quoted(theirs)}' for ours, theirs in names.items())}}}"


def _quoted(value: str) -> str:
    # A backslash takes its meaning from `${`; those in front of it are doubled.
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return literal(json.dumps(escaped, ensure_ascii=False))


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={getattr(value, 'value', value)}" for key, value in values.items() if value is not None]
