"""Files and configuration of popular model repositories on the Hugging Face hub.

These are names and values only. The public source of a row is the repository's page, https://huggingface.co/NAME. The
rows were written from general knowledge and not compared with that page, so `compared` is False for each of them now. A
repository may have other files today; the shapes are what the tests need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MODEL = ".gitattributes README.md config.json generation_config.json"
_TOKENIZER = "tokenizer.json tokenizer_config.json"
_GPT_TOKENIZER = f"{_TOKENIZER} vocab.json merges.txt"
_SPECIAL = "special_tokens_map.json"


def _shards(count: int, ending: str = "safetensors", name: str = "model") -> str:
    numbered = (f"{name}-{number:05}-of-{count:05}.{ending}" for number in range(1, count + 1))
    return " ".join([*numbered, f"{name}.{ending}.index.json"])


@dataclass(frozen=True)
class ModelRepository:
    """A repository.

    Attributes:
        name: `org/name` on the hub.
        family: family or kind of the model.
        loaded: files that a fetch must take, separated by blanks.
        left_out: weights in other formats, separated by blanks.
        config: values of `config.json` that a training depends on.
        compared: whether the row was compared with the public source.
    """

    name: str
    family: str
    loaded: str
    left_out: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    compared: bool = False

    @property
    def files(self) -> list[str]:
        """All files of the repository."""
        return sorted([*self.loaded.split(), *self.left_out.split()])


def _causal(prefix: str, model_type: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [f"{prefix}ForCausalLM"], "model_type": model_type, **more}


REPOSITORIES = (
    ModelRepository(
        "meta-llama/Llama-3.1-8B-Instruct",
        "Llama",
        f"{_MODEL} LICENSE USE_POLICY.md {_shards(4)} {_TOKENIZER} {_SPECIAL} "
        "original/params.json original/tokenizer.model",
        "original/consolidated.00.pth",
        _causal("Llama", "llama", tie_word_embeddings=False),
    ),
    ModelRepository(
        "meta-llama/Llama-3.2-1B-Instruct",
        "Llama",
        f"{_MODEL} LICENSE.txt USE_POLICY.md model.safetensors {_TOKENIZER} {_SPECIAL} "
        "original/params.json original/tokenizer.model",
        "original/consolidated.00.pth",
        _causal("Llama", "llama", tie_word_embeddings=True),
    ),
    ModelRepository(
        "Qwen/Qwen2.5-0.5B-Instruct",
        "Qwen",
        f"{_MODEL} LICENSE model.safetensors {_GPT_TOKENIZER}",
        config=_causal("Qwen2", "qwen2", tie_word_embeddings=True),
    ),
    ModelRepository(
        "Qwen/Qwen3-8B",
        "Qwen",
        f"{_MODEL} LICENSE {_shards(5)} {_GPT_TOKENIZER}",
        config=_causal("Qwen3", "qwen3", tie_word_embeddings=False),
    ),
    ModelRepository(
        "Qwen/Qwen3-30B-A3B",
        "Qwen, experts",
        f"{_MODEL} LICENSE {_shards(16)} {_GPT_TOKENIZER}",
        config=_causal("Qwen3Moe", "qwen3_moe", num_experts=128),
    ),
    ModelRepository(
        "google/gemma-2-2b-it",
        "Gemma",
        f"{_MODEL} {_shards(2)} {_TOKENIZER} {_SPECIAL} tokenizer.model",
        config=_causal("Gemma2", "gemma2", tie_word_embeddings=True),
    ),
    ModelRepository(
        "google/gemma-3-4b-it",
        "Gemma, vision",
        f"{_MODEL} added_tokens.json chat_template.json {_shards(2)} preprocessor_config.json processor_config.json "
        f"{_TOKENIZER} {_SPECIAL} tokenizer.model",
        config={"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "vision_config": {}},
    ),
    ModelRepository(
        "microsoft/Phi-3-mini-4k-instruct",
        "Phi, own code",
        f"{_MODEL} CODE_OF_CONDUCT.md LICENSE NOTICE.md SECURITY.md added_tokens.json configuration_phi3.py "
        f"modeling_phi3.py sample_finetune.py {_shards(2)} {_TOKENIZER} {_SPECIAL} tokenizer.model",
        config=_causal("Phi3", "phi3", auto_map={"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}),
    ),
    ModelRepository(
        "microsoft/phi-2",
        "Phi",
        f"{_MODEL} CODE_OF_CONDUCT.md LICENSE NOTICE.md SECURITY.md added_tokens.json {_shards(2)} {_GPT_TOKENIZER} "
        f"{_SPECIAL}",
        config=_causal("Phi", "phi"),
    ),
    ModelRepository(
        "mistralai/Mistral-7B-Instruct-v0.3",
        "Mistral",
        f"{_MODEL} params.json {_shards(3)} {_TOKENIZER} {_SPECIAL} tokenizer.model tokenizer.model.v3",
        "consolidated.safetensors",
        _causal("Mistral", "mistral"),
    ),
    ModelRepository(
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "Mixtral, experts",
        f"{_MODEL} {_shards(19)} {_TOKENIZER} {_SPECIAL} tokenizer.model",
        " ".join(f"consolidated.{number:02}.pt" for number in range(8)),
        _causal("Mixtral", "mixtral", num_local_experts=8),
    ),
    ModelRepository(
        "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        "Mistral, vision",
        f"{_MODEL} SYSTEM_PROMPT.txt params.json tekken.json chat_template.jinja {_shards(10)}",
        "consolidated.safetensors",
        {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "vision_config": {}},
    ),
    ModelRepository(
        "openai-community/gpt2",
        "GPT-2",
        f"{_MODEL} model.safetensors {_GPT_TOKENIZER}",
        "64-8bits.tflite 64-fp16.tflite 64.tflite flax_model.msgpack onnx/decoder_model.onnx "
        "onnx/decoder_with_past_model.onnx pytorch_model.bin rust_model.ot tf_model.h5",
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
    ),
    ModelRepository(
        "EleutherAI/pythia-160m",
        "GPT-NeoX",
        f".gitattributes README.md config.json model.safetensors {_TOKENIZER} {_SPECIAL}",
        "pytorch_model.bin",
        _causal("GPTNeoX", "gpt_neox"),
    ),
    ModelRepository(
        "bigscience/bloom-560m",
        "BLOOM",
        f".gitattributes README.md config.json model.safetensors {_TOKENIZER} {_SPECIAL}",
        "flax_model.msgpack onnx/decoder_model_merged.onnx pytorch_model.bin",
        _causal("Bloom", "bloom"),
    ),
    ModelRepository(
        "facebook/opt-125m",
        "OPT",
        f"{_MODEL} LICENSE.md tokenizer_config.json vocab.json merges.txt {_SPECIAL} pytorch_model.bin",
        "flax_model.msgpack tf_model.h5",
        _causal("OPT", "opt"),
    ),
    ModelRepository(
        "allenai/OLMo-2-1124-7B-Instruct",
        "OLMo",
        f"{_MODEL} {_shards(3)} {_GPT_TOKENIZER} {_SPECIAL}",
        config=_causal("Olmo2", "olmo2"),
    ),
    ModelRepository(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "SmolLM",
        f"{_MODEL} all_results.json eval_results.json instructions_function_calling.md model.safetensors "
        f"{_GPT_TOKENIZER} {_SPECIAL} train_results.json trainer_state.json training_args.bin",
        "onnx/model.onnx onnx/model_fp16.onnx onnx/model_q4.onnx onnx/model.onnx_data",
        _causal("Llama", "llama", tie_word_embeddings=True),
    ),
    ModelRepository(
        "HuggingFaceTB/SmolLM3-3B",
        "SmolLM",
        f"{_MODEL} chat_template.jinja {_shards(2)} {_TOKENIZER} {_SPECIAL}",
        config=_causal("SmolLM3", "smollm3", tie_word_embeddings=True),
    ),
    ModelRepository(
        "deepseek-ai/DeepSeek-V3",
        "DeepSeek, experts, own code",
        ".gitattributes LICENSE-CODE LICENSE-MODEL README.md README_WEIGHTS.md config.json configuration_deepseek.py "
        "figures/benchmark.png figures/niah.png inference/configs/config_16B.json inference/convert.py "
        "inference/generate.py inference/kernel.py inference/model.py modeling_deepseek.py "
        f"{_shards(163)} {_TOKENIZER}",
        config=_causal(
            "DeepseekV3",
            "deepseek_v3",
            n_routed_experts=256,
            auto_map={"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"},
            quantization_config={"quant_method": "fp8"},
        ),
    ),
    ModelRepository(
        "ibm-granite/granite-3.3-2b-instruct",
        "Granite",
        f"{_MODEL} added_tokens.json {_shards(2)} {_GPT_TOKENIZER} {_SPECIAL}",
        config=_causal("Granite", "granite"),
    ),
    ModelRepository(
        "openai/gpt-oss-20b",
        "GPT-OSS, experts",
        f"{_MODEL} LICENSE USAGE_POLICY chat_template.jinja {_shards(3)} original/config.json original/dtypes.json "
        f"{_TOKENIZER} {_SPECIAL}",
        "metal/model.bin original/model.safetensors",
        _causal("GptOss", "gpt_oss", num_local_experts=32, quantization_config={"quant_method": "mxfp4"}),
    ),
    ModelRepository(
        "LiquidAI/LFM2-1.2B",
        "LFM",
        f"{_MODEL} LICENSE chat_template.jinja model.safetensors {_TOKENIZER} {_SPECIAL}",
        config=_causal("Lfm2", "lfm2"),
    ),
    ModelRepository(
        "CohereLabs/aya-expanse-8b",
        "Cohere, several templates",
        f"{_MODEL} additional_chat_templates/rag.jinja additional_chat_templates/tool_use.jinja chat_template.jinja "
        f"{_shards(4)} {_TOKENIZER} {_SPECIAL}",
        config=_causal("Cohere", "cohere"),
    ),
    ModelRepository(
        "Qwen/Qwen-7B",
        "Qwen, own code",
        f".gitattributes LICENSE NOTICE README.md assets/logo.jpg cache_autogptq_cuda_256.cpp config.json "
        f"configuration_qwen.py cpp_kernels.py generation_config.json {_shards(8)} modeling_qwen.py "
        "qwen.tiktoken qwen_generation_utils.py tokenization_qwen.py tokenizer_config.json",
        config={
            "architectures": ["QWenLMHeadModel"],
            "model_type": "qwen",
            "auto_map": {"AutoConfig": "configuration_qwen.QWenConfig"},
        },
    ),
    ModelRepository(
        "Qwen/Qwen2-VL-2B-Instruct",
        "Qwen, vision",
        f"{_MODEL} LICENSE chat_template.json {_shards(2)} preprocessor_config.json {_GPT_TOKENIZER}",
        config={"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "vision_config": {}},
    ),
    ModelRepository(
        "llava-hf/llava-1.5-7b-hf",
        "Llava, vision",
        f"{_MODEL} added_tokens.json chat_template.jinja chat_template.json {_shards(3)} preprocessor_config.json "
        f"processor_config.json {_TOKENIZER} {_SPECIAL} tokenizer.model",
        config={"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "vision_config": {}},
    ),
    ModelRepository(
        "sentence-transformers/all-MiniLM-L6-v2",
        "embedding",
        ".gitattributes README.md 1_Pooling/config.json config.json config_sentence_transformers.json data_config.json "
        f"model.safetensors modules.json openvino/openvino_model.xml sentence_bert_config.json {_TOKENIZER} {_SPECIAL} "
        "train_script.py vocab.txt",
        "onnx/model.onnx onnx/model_O4.onnx openvino/openvino_model.bin pytorch_model.bin rust_model.ot tf_model.h5",
        {"architectures": ["BertModel"], "model_type": "bert"},
    ),
    ModelRepository(
        "google/flan-t5-base",
        "encoder-decoder",
        f"{_MODEL} model.safetensors spiece.model {_TOKENIZER} {_SPECIAL}",
        "flax_model.msgpack pytorch_model.bin tf_model.h5",
        {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": True},
    ),
    ModelRepository(
        "facebook/bart-base",
        "encoder-decoder",
        ".gitattributes README.md config.json model.safetensors tokenizer.json vocab.json merges.txt",
        "flax_model.msgpack pytorch_model.bin rust_model.ot tf_model.h5",
        {"architectures": ["BartModel"], "model_type": "bart", "is_encoder_decoder": True},
    ),
    ModelRepository(
        "TheBloke/Llama-2-7B-Chat-GPTQ",
        "Llama, quantized",
        f"{_MODEL} LICENSE.txt Notice USE_POLICY.md model.safetensors quantize_config.json {_TOKENIZER} {_SPECIAL} "
        "tokenizer.model",
        config=_causal("Llama", "llama", quantization_config={"quant_method": "gptq", "bits": 4}),
    ),
    ModelRepository(
        "Qwen/Qwen2.5-7B-Instruct-AWQ",
        "Qwen, quantized",
        f"{_MODEL} LICENSE {_shards(2)} {_GPT_TOKENIZER}",
        config=_causal("Qwen2", "qwen2", quantization_config={"quant_method": "awq", "bits": 4}),
    ),
    ModelRepository(
        "tloen/alpaca-lora-7b",
        "adapter",
        ".gitattributes README.md adapter_config.json adapter_model.bin",
    ),
)
"""The repositories with weights that transformers reads."""

WITHOUT_WEIGHTS = {
    "Qwen/Qwen2.5-0.5B-Instruct-GGUF": [
        "README.md",
        "qwen2.5-0.5b-instruct-q4_0.gguf",
        "qwen2.5-0.5b-instruct-q8_0.gguf",
    ],
    "meta-llama/Llama-2-7b": ["README.md", "consolidated.00.pth", "params.json", "tokenizer.model"],
    "an empty draft": ["README.md", "config.json"],
}
"""Files of repositories that transformers cannot load."""
