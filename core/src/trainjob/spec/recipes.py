"""Which recipe and configuration TorchTune needs for what is asked, and which combinations there are none for.

The same table as the Trainer's torch plugin uses (Trainer 2.3, pkg/runtime/framework/plugins/torch/torchtune.go), so
that what its webhook or the recipes would refuse is refused before anything is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.spec.base import refuse
from trainjob.spec.resources import gpus
from trainjob.spec.torchtune import TorchTuneConfig


@dataclass(frozen=True)
class Model:
    """A model that TorchTune 0.6.1 and the Trainer know.

    Attributes:
        name: as runtimes and people write it, such as `llama3.2-1b`.
        config: the folder and prefix of its configurations, such as `llama3_2/1B`.
        tokenizer: its tokenizer's file in the model folder.
        merges: its tokenizer's merges file in the model folder, or empty.
        runtime: whether the Trainer ships a runtime for it.
        qlora: whether there is a QLoRA configuration.
        single_device: whether its configurations are for one process; otherwise all are for several, QLoRA's too.
        multinode: whether there is a full fine-tuning for several nodes.
    """

    name: str
    config: str
    tokenizer: str = "original/tokenizer.model"
    merges: str = ""
    runtime: bool = True
    qlora: bool = True
    single_device: bool = True
    multinode: bool = False


MODELS = {
    model.name: model
    for model in (
        Model("llama3.2-1b", "llama3_2/1B"),
        Model("llama3.2-3b", "llama3_2/3B"),
        Model("llama3.3-70b", "llama3_3/70B", runtime=False, single_device=False, multinode=True),
        Model("qwen2.5-1.5b", "qwen2_5/1.5B", tokenizer="vocab.json", merges="merges.txt", qlora=False),
    )
}


def model_named(name: str) -> Model:
    """The model of this name, also in the Trainer's own spelling (`llama3_2/1B`).

    Raises:
        InvalidSpec: there is none.
    """
    for model in MODELS.values():
        if name in (model.name, model.config):
            return model
    raise refuse("model", name, f"allowed are {', '.join(MODELS)}")


def model_of_runtime(name: str) -> str:
    """The model that a TorchTune runtime is for, by its name `<word>-<model>-<size>`; empty for other runtimes.

    The Trainer reads it from there, too: three fields, no more (Trainer 2.3, plugins/torch/torchtune.go).
    """
    word, _, model = name.partition("-")
    return model if word and model in MODELS else ""


def processes(config: TorchTuneConfig) -> int:
    """Training processes on each node: as asked, or one for each GPU, or one."""
    return config.num_proc_per_node or max(1, gpus(config.resources_per_node))


def check_recipe(model_name: str, config: TorchTuneConfig, *, field: str = "config", builtin: bool = False) -> None:
    """Refuse what TorchTune has no recipe for.

    Args:
        model_name: what is trained.
        config: how.
        field: where the configuration stands, for the error.
        builtin: whether the Trainer chooses the recipe: a TorchTune runtime has two GPUs of its own, and without GPUs
            several processes are taken (Trainer 2.3, plugins/torch/torchtune.go, getRecipeAndConfig).

    Raises:
        InvalidSpec: naming the field and the rule.
    """
    model, nodes, lora = model_named(model_name), config.num_nodes or 1, config.peft_config
    if nodes > 1:
        _check_nodes(model, config, field)
    if lora and lora.qlora and not model.qlora:
        able = ", ".join(other.name for other in MODELS.values() if other.qlora)
        quantized = f"{field}.peft_config.quantize_base"
        raise refuse(quantized, True, f"there is no QLoRA recipe for {model.name}; QLoRA: {able}")
    single = _one_gpu(config) if builtin else processes(config) == 1
    if lora and lora.qlora and model.single_device and not single:
        rule = "QLoRA runs in one process on one GPU: give resources_per_node={'gpu': 1} or num_proc_per_node=1"
        raise refuse(f"{field}.peft_config.quantize_base", True, rule)
    if nodes == 1 and single and not model.single_device:
        rule = f"{model.name} needs several: give resources_per_node={{'gpu': 8}} or num_proc_per_node"
        raise refuse(f"{field}.num_proc_per_node", processes(config), rule)


def _one_gpu(config: TorchTuneConfig) -> bool:
    return config.num_proc_per_node == 1 or gpus(config.resources_per_node) == 1


def _check_nodes(model: Model, config: TorchTuneConfig, field: str) -> None:
    nodes = f"{field}.num_nodes"
    if config.peft_config:
        rule = "LoRA runs on one node only: set num_nodes=1 or leave peft_config out"
        raise refuse(nodes, config.num_nodes, rule)
    if not model.multinode:
        able = ", ".join(other.name for other in MODELS.values() if other.multinode)
        raise refuse(nodes, config.num_nodes, f"{model.name} trains on one node; several nodes: {able}")


def recipe_and_config(model: Model, config: TorchTuneConfig) -> tuple[str, str]:
    """The recipe and the configuration's name for `tune run RECIPE --config CONFIG`.

    Args:
        model: what is trained.
        config: checked by [check_recipe][].
    """
    lora = config.peft_config
    if (config.num_nodes or 1) > 1:
        return "full_finetune_distributed", f"{model.config}_full_multinode"
    single = processes(config) == 1
    kind = ("qlora" if lora.qlora else "lora") if lora else "full"
    recipe = "lora_finetune" if lora else "full_finetune"
    if single:
        return f"{recipe}_single_device", f"{model.config}_{kind}_single_device"
    return f"{recipe}_distributed", f"{model.config}_{kind}"
