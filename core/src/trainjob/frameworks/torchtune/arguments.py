"""The command line of TorchTune.

Recipe and configuration come from `recipes`, the same table as the Trainer's torch plugin uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.frameworks.torchtune.config import LoraConfig, TorchTuneConfig
from trainjob.frameworks.torchtune.datasets import (
    TorchTuneChatDataset,
    TorchTuneDataset,
    TorchTuneInstructDataset,
    TorchTunePreferenceDataset,
)
from trainjob.frameworks.torchtune.methods import Quantization
from trainjob.frameworks.torchtune.models import TEACHERS, Model
from trainjob.frameworks.torchtune.recipes import select_recipe
from trainjob.spec.trainers import escape_expansion
from trainjob.spec.volumes import WORKSPACE

# torchrun reads nodes, processes and rank from PET_ variables, which the Trainer sets. Kubernetes expands the variables
# here, so that the arguments do not depend on the TrainJob's name.
_RENDEZVOUS = "--rdzv_endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)"

# Texts that YAML reads unchanged.
_PLAIN_TEXT = re.compile(r"[A-Za-z]([\w .,!?'()/%\[\]:-]*[\w.!?)%\]])?", re.ASCII)
_WORDS = re.compile(r"y|n|yes|no|on|off|true|false|null|none", re.IGNORECASE)


@dataclass(frozen=True)
class WorkspacePaths:
    """Input and output paths of a training in a workspace, as written in container arguments.

    Attributes:
        dataset: the folder or file with the rows of the dataset.
        model: the folder with the model.
        output: the folder for the checkpoints.
    """

    dataset: str
    model: str
    output: str


def build_tune_arguments(model: Model, config: TorchTuneConfig, paths: WorkspacePaths) -> list[str]:
    """Return the arguments after `tune` for a training in a workspace.

    Args:
        model: the model to train.
        config: the configuration, checked by [trainjob.frameworks.torchtune.recipes.check_recipe][].
        paths: the input and output paths.
    """
    recipe, configuration = select_recipe(model, config)
    if config.quantization:
        words = _pairs(_quantization_values(model, config, config.quantization, paths))
        return ["run", recipe, "--config", configuration, *words, *config.overrides]
    layout = {
        "output_dir": paths.output,
        "tokenizer.path": f"{paths.model}/{model.tokenizer}",
        "tokenizer.merges_file": f"{paths.model}/{model.merges_file}" if model.merges_file else None,
        "checkpointer.checkpoint_dir": paths.model,
    }
    distributed = [_RENDEZVOUS] if recipe.endswith("_distributed") else []
    arguments = [*_pairs(_method_values(model, config, paths)), *recipe_arguments(config, paths.dataset)]
    return ["run", *distributed, recipe, "--config", configuration, *_pairs(layout), *arguments]


def recipe_arguments(config: TorchTuneConfig, dataset: str) -> list[str]:
    """Return the `key=value` arguments for a configuration.

    The fields of the Kubeflow SDK come first, in its order, then our own fields, then the overrides.

    Args:
        config: the configuration.
        dataset: the folder or file with the rows, as an argument of a container.
    """
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
        *_pairs(_dataset(_dataset_config(config), dataset, has_override=own_dataset)),
        *_pairs(more),
        *config.overrides,
    ]


def _quantization_values(
    model: Model, config: TorchTuneConfig, quantization: Quantization, paths: WorkspacePaths
) -> Mapping[str, Any]:
    """Return all values that the quantize recipe reads.

    After quantization-aware training, the recipe's quantizer computes the same numbers as the quantizer of that
    training. The recipe writes a file that TorchTune's other recipes load (torchtune 0.6.1, recipes/quantize.py,
    generate.py).
    """
    return {
        "output_dir": paths.output,
        "checkpointer.checkpoint_dir": paths.model,
        "model": model.get_builder_name(lora=False),
        **_weights("checkpointer", model),
        "dtype": config.dtype,
        "quantizer.groupsize": quantization.group_size,
    }


def _method_values(model: Model, config: TorchTuneConfig, paths: WorkspacePaths) -> Mapping[str, Any]:
    """Return the values that adapt a method's configuration to this model, and its options.

    The method's stock configuration is for another model. The result is empty without a method.
    """
    if not config.methods:
        return {}
    found = {
        "model": model.get_builder_name(lora=config.peft_config is not None),
        "tokenizer": f"torchtune.models.{model.tokenizer_builder}",
        "checkpointer": "torchtune.training.FullModelHFCheckpointer",
        **_weights("checkpointer", model),
    }
    if pairs := config.preference_tuning:
        found |= {"loss.beta": pairs.beta, "loss.label_smoothing": pairs.label_smoothing}
        if config.peft_config is None:  # without adapters to disable, the reference is a second model in memory
            found |= {"ref_checkpointer.checkpoint_dir": paths.model, **_weights("ref_checkpointer", model)}
    if distillation := config.distillation:
        teacher = TEACHERS[distillation.teacher]
        found |= {
            "teacher_model": teacher.get_builder_name(lora=False),
            "teacher_checkpointer.checkpoint_dir": escape_expansion(f"{WORKSPACE}/{distillation.teacher_path}"),
            **_weights("teacher_checkpointer", teacher),
            "kd_ratio": distillation.ratio,
        }
    if aware := config.quantization_aware:
        found["quantizer.groupsize"] = aware.group_size
        if model.has_tied_embeddings:
            # The configuration shards embedding and output separately. An output that shares the embedding's weights
            # then fails at the first step (torchtune 0.6.1, recipes/configs/llama3/8B_qat_full.yaml).
            found["custom_sharded_layers"] = "[]"
    return found


def _weights(checkpointer: str, model: Model) -> dict[str, Any]:
    files = {f"{checkpointer}.checkpoint_files": f"[{','.join(model.files)}]"}
    return {**files, f"{checkpointer}.model_type": model.model_type}


def _lora(lora: LoraConfig | None) -> Mapping[str, Any]:
    if lora is None:
        return {}
    # `model.lora_attn_modules` makes the plugin choose a LoRA recipe. False flags are left out, because any
    # `model.quantize_base` chose QLoRA up to Trainer 2.2.
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


def _dataset_config(config: TorchTuneConfig) -> TorchTuneDataset:
    """Return the configured kind of rows, or the kind that the recipe reads.

    TorchTune's own default would fetch another dataset from the Hub.
    """
    usual = TorchTunePreferenceDataset if config.preference_tuning else TorchTuneInstructDataset
    return config.dataset_preprocess_config or usual()


def _dataset(dataset: TorchTuneDataset, path: str, *, has_override: bool) -> Mapping[str, Any]:
    """Return the arguments for the dataset.

    Without a source type, the files are parquet files, as in the stock runtimes.
    """
    where = "dataset.data_files" if "." in path.rpartition("/")[2].strip(".") else "dataset.data_dir"
    if has_override:
        return {where: path}
    return {
        "dataset": f"torchtune.datasets.{dataset.kind}_dataset",
        "dataset.source": dataset.source.value if dataset.source else "parquet",
        where: path,
        "dataset.split": _quote_if_needed(dataset.split),
        "dataset.train_on_input": dataset.train_on_input,
        "dataset.new_system_prompt": _quote_if_needed(dataset.new_system_prompt),
        **(
            {"dataset.column_map": _columns(dataset.column_map)}
            if not isinstance(dataset, TorchTuneChatDataset)
            else {
                "dataset.conversation_column": _quote_if_needed(dataset.conversation_column),
                "dataset.conversation_style": dataset.conversation_style,
            }
        ),
    }


def _quote_if_needed(value: str | None) -> str | None:
    """Return a user's text as an argument's value, quoted if necessary.

    TorchTune reads values as YAML with OmegaConf's `${...}` (torchtune 0.6.1).
    """
    if value is None or (_PLAIN_TEXT.fullmatch(value) and ": " not in value and not _WORDS.fullmatch(value)):
        return value
    return _quote(value)


def _columns(names: Mapping[str, str] | None) -> str | None:
    if names is None or all(_PLAIN_TEXT.fullmatch(name) and "'" not in name for name in names.values()):
        return None if names is None else str(dict(names))
    return f"{{{', '.join(f'{ours}: {_quote(theirs)}' for ours, theirs in names.items())}}}"


def _quote(value: str) -> str:
    # A backslash is special only before `${`; the backslashes in front of it are doubled.
    escaped = re.sub(r"(?<!\\)(\\*)\$\{", r"\1\1\\${", value)
    return escape_expansion(json.dumps(escaped, ensure_ascii=False))


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={getattr(value, 'value', value)}" for key, value in values.items() if value is not None]
