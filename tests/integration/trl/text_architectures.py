"""SFT with LoRA, and the merge of an adapter, for tiny models of every text architecture of transformers.

python text_architectures.py TOKENIZER ROWS FOLDER PART/PARTS  print each type's difference of logits
"""
# The environment in which types are checked has none of these libraries.
# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.integration.trl.merged_families import _compute, make_run, merge
from trainjob.frameworks.fine_tuning.start import Start
from trainjob.frameworks.trl.pod import training
from trainjob.frameworks.trl.pod.lora_arguments import choose_lora_arguments
from trainjob.frameworks.trl.pod.model_arguments import is_untrainable
from trainjob.frameworks.trl.pod.run_arguments import RunArguments

_MAX_PARAMETERS = 20_000_000
_OF_OTHER_INPUT = ("trocr", "whisper")
_SIZES = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "embed_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"), 24),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "v_head_dim", "head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 128),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LATENT_ATTENTION = {"num_key_value_heads": 4, "head_dim": 4}
_GROUPS = {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 2}
_TWO_KINDS = {"layer_types": ["sliding_attention", "full_attention"]}
# Values for types whose configuration needs others, such as a number of layers with one of each kind; None leaves the
# configuration's own value.
_VALUES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("axk1", "axk2", "glm4_moe_lite", "glm_moe_dsa", "longcat_flash", "youtu"), _LATENT_ATTENTION),
    **{key: {**_LATENT_ATTENTION, **_GROUPS} for key in ("deepseek_v2", "deepseek_v3", "deepseek_v32")},
    **{key: {"num_hidden_layers": 4} for key in ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "lfm3")},
    **{key: {"head_dim": 8} for key in ("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral")},
    **{key: {"rotary_dim": 4} for key in ("gptj", "codegen")},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "attn_layer_indices": [1]},
    "dots1": {"num_local_experts": 4, "n_routed_experts": 4, "n_shared_experts": 1, **_GROUPS},
    "falcon": {"head_dim": None},
    "gemma3n_text": {"num_kv_shared_layers": 0, "vocab_size_per_layer_input": 520, **_TWO_KINDS},
    "gemma4_text": {"head_dim": None, "vocab_size_per_layer_input": 520, **_TWO_KINDS},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_head": 8, "layer_types": ["mamba", "attention"]},
    "jamba": {"num_hidden_layers": 8, "attn_layer_period": 4, "attn_layer_offset": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "zaya": {"num_experts_per_tok": 1},
}


def build_model(kind: str, vocabulary: int) -> Any:
    """Return a tiny model of a type.

    Raises:
        Exception: the type cannot be built in this size, or does not compute with text alone.
    """
    if kind in _OF_OTHER_INPUT:
        raise ValueError("its processor reads images or sound")
    torch.manual_seed(0)
    own, default = _VALUES.get(kind, {}), transformers.CONFIG_MAPPING[kind]()
    known = default.to_dict()
    known |= {name: known.get(other) for name, other in default.attribute_map.items()}
    values: dict[str, Any] = {name: size for name, size in _SIZES.items() if type(known.get(name)) is int}
    values |= {"pad_token_id": 0, "vocab_size": vocabulary, **own}
    values = {name: value for name, value in values.items() if value is not None}
    build, config = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]), type(default)(**values)
    with torch.device("meta"):
        size = sum(weight.numel() for weight in build(config).parameters())
    if size > _MAX_PARAMETERS:
        raise ValueError(f"{size / 1e6:.0f} million parameters in this size")
    model = build(config)
    _compute(model)
    return model


def run_type(kind: str, tokenizer: Any, rows: Path, folder: Path) -> dict[str, Any]:
    """Return the differences of the logits and the chosen layers, or why there are none."""
    run = make_run(folder, trust=False)
    try:
        build_model(kind, len(tokenizer)).save_pretrained(run.model)
    except Exception as error:  # noqa: BLE001 - a configuration that does not fit these sizes
        return {"not_built": f"{type(error).__name__}: {error}"}
    tokenizer.save_pretrained(run.model)
    config = json.loads((run.model / "config.json").read_bytes())
    chosen = list(choose_lora_arguments(config, {}, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING))
    layers = [word for word in chosen if not word.startswith("--")]
    options: dict[str, Any] = {"lora_dropout": 0.0 if "--lora_dropout=0.0" in chosen else 0.05}
    if "--lora_target_modules=all-linear" in chosen:
        options["target_modules"] = "all-linear"
    elif layers:
        options["target_modules"] = layers if len(layers) > 1 else layers[0]
    try:
        merged = merge(run, tokenizer, **options)
        if is_untrainable(kind, "sft"):
            return {"untrainable": True}
        train(run, rows)
    except Exception as error:  # noqa: BLE001 - the test shows it
        return {"error": f"{type(error).__name__}: {error}"}
    return {"difference": merged["difference"], "effect": merged["effect"], "layers": layers}


def train(run: RunArguments, rows: Path) -> None:
    """Run a training of two steps as the pod does, and merge its adapter."""
    words = ("--max_steps=2", "--per_device_train_batch_size=4", "--save_strategy=no", "--report_to=none")
    training.train(replace(run, dataset=rows, trl_arguments=(*run.trl_arguments, *words)), Start("", "", ""))
    assert json.loads((run.output / "trainjob_run.json").read_bytes())["step"] == 2


def main() -> None:
    """Print one line of JSON for each type.

    Each has its own process, because some leave torch's defaults changed.
    """
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    tokenizer, folder = transformers.AutoTokenizer.from_pretrained(sys.argv[1]), Path(sys.argv[3])
    part, parts = map(int, sys.argv[4].split("/"))
    for kind in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)[part::parts]:
        if not (child := os.fork()):
            with contextlib.redirect_stdout(sys.stderr):
                result = run_type(kind, tokenizer, Path(sys.argv[2]), folder)
            print(json.dumps({"type": kind, **result}), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, kind
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
