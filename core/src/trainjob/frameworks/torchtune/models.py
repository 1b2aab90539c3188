"""Models for which TorchTune 0.6.1 and the Trainer have recipes."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.spec.base import invalid_field


@dataclass(frozen=True)
class Model:
    """A model for which TorchTune 0.6.1 and the Trainer have recipes.

    Attributes:
        name: the model's name in requests and in the names of runtimes, such as `llama3.2-1b`.
        config: folder and prefix of its configurations, such as `llama3_2/1B`.
        builder: function that builds it, below `torchtune.models`.
        tokenizer: path of its tokenizer's file in the model folder.
        merges_file: path of its tokenizer's merges file in the model folder; may be empty.
        has_runtime: whether the Trainer ships a runtime for it.
        has_qlora: whether a QLoRA configuration exists.
        has_single_device_config: whether it has configurations for one process. If False, all its configurations,
            including QLoRA's, are for several processes.
        multinode: whether a configuration for full fine-tuning on several nodes exists.
        shards: number of files with its weights.
        has_tied_embeddings: whether its output layer shares the weights of its embedding.
        model_type: value of `model_type` for TorchTune's checkpointers.
        tokenizer_builder: function that builds its tokenizer, below `torchtune.models`.
    """

    name: str
    config: str
    builder: str
    tokenizer: str = "original/tokenizer.model"
    merges_file: str = ""
    has_runtime: bool = True
    has_qlora: bool = True
    has_single_device_config: bool = True
    multinode: bool = False
    shards: int = 1
    has_tied_embeddings: bool = True
    model_type: str = "LLAMA3_2"
    tokenizer_builder: str = "llama3.llama3_tokenizer"

    def get_builder_name(self, *, lora: bool) -> str:
        """Return the name of the model's builder in TorchTune's configurations."""
        package, _, builder = self.builder.partition(".")
        return f"torchtune.models.{package}.{'lora_' if lora else ''}{builder}"

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the weight files in the model's folder, as on the Hub."""
        if self.shards == 1:
            return ("model.safetensors",)
        return tuple(f"model-{n:05}-of-{self.shards:05}.safetensors" for n in range(1, self.shards + 1))


# Builders, files and model types come from torchtune 0.6.1's configurations, recipes/configs.
MODELS = {
    model.name: model
    for model in (
        Model("llama3.2-1b", "llama3_2/1B", "llama3_2.llama3_2_1b"),
        Model("llama3.2-3b", "llama3_2/3B", "llama3_2.llama3_2_3b", shards=2),
        Model(
            "llama3.3-70b",
            "llama3_3/70B",
            "llama3_3.llama3_3_70b",
            has_runtime=False,
            has_single_device_config=False,
            multinode=True,
            shards=30,
            has_tied_embeddings=False,
            model_type="LLAMA3",
        ),
        Model(
            "qwen2.5-1.5b",
            "qwen2_5/1.5B",
            "qwen2_5.qwen2_5_1_5b_instruct",
            tokenizer="vocab.json",
            merges_file="merges.txt",
            has_qlora=False,
            model_type="QWEN2",
            tokenizer_builder="qwen2_5.qwen2_5_tokenizer",
        ),
    )
}
_LLAMA_8B = Model("llama3.1-8b", "llama3_1/8B", "llama3_1.llama3_1_8b", shards=4, model_type="LLAMA3")
TEACHERS = {**MODELS, _LLAMA_8B.name: _LLAMA_8B}


def get_model(name: str) -> Model:
    """Return the model of a name; the Trainer's spelling (`llama3_2/1B`) is accepted, too.

    Raises:
        InvalidSpec: no model has this name.
    """
    for model in MODELS.values():
        if name in (model.name, model.config):
            return model
    other = 'for another model give another framework, such as config={"framework": "trl", "method": "sft"}'
    raise invalid_field("", name, f"TorchTune trains {', '.join(MODELS)}; {other}")
