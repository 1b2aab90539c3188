"""Choice of TorchTune's recipe and configuration for a request.

Combinations without a recipe are refused. The Trainer's torch plugin uses the same table (Trainer 2.3,
pkg/runtime/framework/plugins/torch/torchtune.go). A request that its webhook or a recipe would refuse is therefore
refused before anything is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.frameworks.torchtune.config import TorchTuneConfig
from trainjob.frameworks.torchtune.models import MODELS, TEACHERS, Model, get_model
from trainjob.spec.base import invalid_field
from trainjob.spec.resources import count_gpus


@dataclass(frozen=True)
class _Recipe:
    """A recipe and a configuration of it, by their names.

    A configuration names everything that depends on its own model.

    Attributes:
        name: name of the recipe for any number of processes, or for several.
        config: name of its configuration.
        single_device: the recipe for one process and its configuration, if they differ.
    """

    name: str
    config: str
    single_device: tuple[str, str] | None = None


# Recipes by the method's field and whether LoRA is trained; from the registry of torchtune 0.6.1, `tune ls`.
_RECIPES = {
    ("preference_tuning", True): _Recipe(
        "lora_dpo_distributed",
        "llama3_1/8B_lora_dpo",
        ("lora_dpo_single_device", "llama3_1/8B_lora_dpo_single_device"),
    ),
    ("preference_tuning", False): _Recipe("full_dpo_distributed", "llama3_1/8B_full_dpo"),
    ("distillation", True): _Recipe(
        "knowledge_distillation_distributed",
        "llama3_2/8B_to_1B_KD_lora_distributed",
        ("knowledge_distillation_single_device", "llama3_2/8B_to_1B_KD_lora_single_device"),
    ),
    ("quantization_aware", False): _Recipe("qat_distributed", "llama3/8B_qat_full"),
    ("quantization", False): _Recipe("quantize", "quantization"),
}
# Reasons for the combinations without a recipe. TorchTune's LoRA requires a class that torchao, in the version of the
# Trainer's image, no longer creates (torchtune 0.6.1, modules/peft/lora.py; Trainer 2.3,
# cmd/trainers/torchtune/requirements.txt).
_WITHOUT_RECIPE = {
    "distillation": "distillation trains LoRA only: give peft_config=LoraConfig()",
    "quantization_aware": "omit it: TorchTune 0.6.1 with torchao 0.15 (the Trainer's image) trains all weights only",
    "quantization": "quantization trains nothing: omit it",
}
# Fields of a training that a quantization does not use.
_TRAINING_FIELDS = (
    "batch_size",
    "epochs",
    "loss",
    "dataset_preprocess_config",
    "seed",
    "learning_rate",
    "max_steps_per_epoch",
    "gradient_accumulation_steps",
)


def check_recipe(model_name: str, config: TorchTuneConfig, *, field: str = "config", builtin: bool = False) -> None:
    """Refuse a configuration for which TorchTune has no recipe.

    Args:
        model_name: name of the model.
        config: the configuration.
        field: name of the configuration's field, for the error.
        builtin: whether the Trainer chooses the recipe. A TorchTune runtime then has two GPUs itself, and without
            GPUs the Trainer assumes several processes (Trainer 2.3, plugins/torch/torchtune.go, getRecipeAndConfig).

    Raises:
        InvalidSpec: the error names the field and the rule.
    """
    model, nodes, lora = get_model(model_name), config.max_nodes or 1, config.peft_config
    _check_dataset(config, field)
    if config.methods:
        _check_method(model, config, field, builtin=builtin)
    if nodes > 1:
        _check_nodes(model, config, field)
    if lora and lora.is_qlora and not model.has_qlora:
        able = ", ".join(other.name for other in MODELS.values() if other.has_qlora)
        quantized = f"{field}.peft_config.quantize_base"
        raise invalid_field(quantized, True, f"there is no QLoRA recipe for {model.name}; QLoRA: {able}")
    single = _has_one_gpu(config) if builtin else config.processes_per_node == 1
    if lora and lora.is_qlora and model.has_single_device_config and not single:
        rule = "QLoRA runs in one process on one GPU: give resources_per_node={'gpu': 1} or num_proc_per_node=1"
        raise invalid_field(f"{field}.peft_config.quantize_base", True, rule)
    if nodes == 1 and single and not model.has_single_device_config and not config.quantization:
        rule = f"{model.name} needs several processes: give resources_per_node={{'gpu': 8}} or num_proc_per_node"
        raise invalid_field(f"{field}.num_proc_per_node", config.processes_per_node, rule)


def _check_dataset(config: TorchTuneConfig, field: str) -> None:
    """Refuse a kind of dataset that the recipe does not read.

    DPO's recipes read pairs, the others read answers (torchtune 0.6.1, data/_collate.py).
    """
    dataset, pairs = config.dataset_preprocess_config, config.preference_tuning is not None
    if dataset is not None and (dataset.kind == "preference") != pairs:
        rule = "preference_tuning needs a TorchTunePreferenceDataset, and no other training accepts one"
        raise invalid_field(f"{field}.dataset_preprocess_config", type(dataset).__name__, rule)


def _check_method(model: Model, config: TorchTuneConfig, field: str, *, builtin: bool) -> None:
    method, *others = config.methods
    given, name = getattr(config, method), f"{field}.{method}"
    if others:
        raise invalid_field(f"{field}.{others[0]}", getattr(config, others[0]), f"give only one of it and {method}")
    if builtin:
        raise invalid_field(
            name, given, "the recipes that the Trainer chooses do not support it; use FineTune(workspace=...)"
        )
    if (config.max_nodes or 1) > 1:
        raise invalid_field(f"{field}.num_nodes", config.max_nodes, f"{method} runs on one node")
    if config.quantization:
        _check_quantization(config, field)
    if config.loss is not None and config.preference_tuning:
        raise invalid_field(f"{field}.loss", config.loss.value, "preference_tuning has its own loss: omit it")
    if (method, config.peft_config is not None) not in _RECIPES:
        raise invalid_field(f"{field}.peft_config", config.peft_config, _WITHOUT_RECIPE[method])
    if config.distillation:
        _check_teacher(model, config.distillation.teacher, name)


def _check_quantization(config: TorchTuneConfig, field: str) -> None:
    """Refuse several processes and the fields of a training.

    The recipe uses neither (torchtune 0.6.1, recipes/quantize.py).
    """
    for name in _TRAINING_FIELDS:
        if (given := getattr(config, name)) is not None:
            raise invalid_field(f"{field}.{name}", given, "quantization trains nothing: omit it")
    if config.processes_per_node > 1:
        rule = "quantization runs in one process: give at most one GPU, or num_proc_per_node=1"
        raise invalid_field(f"{field}.num_proc_per_node", config.processes_per_node, rule)


def _check_teacher(model: Model, name: str, field: str) -> None:
    able = [teacher.name for teacher in TEACHERS.values() if teacher.tokenizer_builder == model.tokenizer_builder]
    if name not in able:
        raise invalid_field(
            f"{field}.teacher", name, f"the teacher of {model.name} must have the same vocabulary: {', '.join(able)}"
        )


def _has_one_gpu(config: TorchTuneConfig) -> bool:
    return config.num_proc_per_node == 1 or count_gpus(config.resources_per_node) == 1


def _check_nodes(model: Model, config: TorchTuneConfig, field: str) -> None:
    nodes = f"{field}.num_nodes"
    if config.peft_config:
        rule = "LoRA runs on one node only: set num_nodes=1 or omit peft_config"
        raise invalid_field(nodes, config.max_nodes, rule)
    if not model.multinode:
        able = ", ".join(other.name for other in MODELS.values() if other.multinode)
        raise invalid_field(nodes, config.max_nodes, f"{model.name} trains on one node; several nodes: {able}")


def select_recipe(model: Model, config: TorchTuneConfig) -> tuple[str, str]:
    """Return the names for `tune run RECIPE --config CONFIG`.

    Args:
        model: the model to train.
        config: the configuration, checked by [check_recipe][].
    """
    lora = config.peft_config
    for method in config.methods:
        found = _RECIPES[method, lora is not None]
        return (
            found.single_device
            if found.single_device and config.processes_per_node == 1
            else (found.name, found.config)
        )
    if (config.max_nodes or 1) > 1:
        return "full_finetune_distributed", f"{model.config}_full_multinode"
    single = config.processes_per_node == 1
    kind = ("qlora" if lora.is_qlora else "lora") if lora else "full"
    recipe = "lora_finetune" if lora else "full_finetune"
    if single:
        return f"{recipe}_single_device", f"{model.config}_{kind}_single_device"
    return f"{recipe}_distributed", f"{model.config}_{kind}"
