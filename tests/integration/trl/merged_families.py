"""Merges of adapters into tiny models of many families, run with the libraries of the environment `trl`.

python merged_families.py TOKENIZER FOLDER     print for each case: name, largest difference of logits, or the error
"""
# The environment in which types are checked has none of these libraries.
# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import contextlib
import gc
import io
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from trainjob.errors import MergeError
from trainjob.frameworks.fine_tuning import layer_merging, merging
from trainjob.frameworks.trl.pod.lora_arguments import choose_lora_arguments
from trainjob.frameworks.trl.pod.run_arguments import RunArguments, parse_run_arguments

_SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
_LATENT_ATTENTION = {
    "head_dim": 4,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {}),
    "qwen3 tied": ("Qwen3", {"tie_word_embeddings": True}),
    "gemma2 tied": ("Gemma2", {"tie_word_embeddings": True}),
    "gemma3 text tied": ("Gemma3Text", {"tie_word_embeddings": True}),
    "phi3": ("Phi3", {}),
    "olmo2": ("Olmo2", {}),
    "smollm3 tied": ("SmolLM3", {"tie_word_embeddings": True}),
    "granite": ("Granite", {}),
    "mistral": ("Mistral", {}),
    "gpt2 tied": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "gpt-neox": ("GPTNeoX", {}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3 experts": ("Qwen3Moe", {"num_experts": 4, **_EXPERTS}),
    "deepseek": ("DeepseekV3", {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, **_EXPERTS, **_LATENT_ATTENTION}),
}
"""Family: the prefix of its configuration's class, and the values that differ from `_SMALL`."""
_VISION = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "image_size": 28, "patch_size": 14}
_SIGLIP = {**_VISION, "model_type": "siglip_vision_model", "num_hidden_layers": 2}
_QWEN_VISION = {"depth": 2, "hidden_size": 32, "num_heads": 4, "patch_size": 14}
_QWEN_TEXT = {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}}
VISION_FAMILIES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "llava": ("Llava", "llama", {}, {**_SIGLIP, "model_type": "clip_vision_model"}, {"image_token_index": 3}),
    "qwen2-vl": ("Qwen2VL", "qwen2_vl_text", _QWEN_TEXT, {**_QWEN_VISION, "embed_dim": 32}, {"image_token_id": 3}),
    "qwen2.5-vl": (
        *("Qwen2_5_VL", "qwen2_5_vl_text", _QWEN_TEXT),
        {**_QWEN_VISION, "out_hidden_size": 32, "intermediate_size": 48},
        {"image_token_id": 3},
    ),
    "gemma3": ("Gemma3", "gemma3_text", {}, _SIGLIP, {"image_token_index": 3, "mm_tokens_per_image": 4}),
    "mistral3": ("Mistral3", "mistral", {}, {**_VISION, "model_type": "pixtral", "head_dim": 8}, {}),
    "idefics3": ("Idefics3", "llama", {}, _VISION, {"image_token_id": 3, "scale_factor": 2}),
    "paligemma": (
        *("PaliGemma", "gemma", {}, {**_SIGLIP, "projection_dim": 32}),
        {"image_token_index": 3, "projection_dim": 32, "hidden_size": 32},
    ),
}
"""Family: the prefix of its classes, its kind of text model, and values of text model, vision model and both."""
ADAPTERS: dict[str, dict[str, Any]] = {
    "embeddings": {"target_modules": ["q_proj", "embed_tokens"]},
    "head": {"target_modules": ["q_proj", "lm_head"]},
    "embeddings and head": {"target_modules": ["q_proj", "embed_tokens", "lm_head"]},
    "saved head": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "saved embeddings": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "rank-stabilized": {"target_modules": ["q_proj"], "use_rslora": True},
    "DoRA": {"target_modules": ["q_proj"], "use_dora": True},
    "trained biases": {"target_modules": ["q_proj"], "bias": "all"},
    "trained tokens": {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [1, 2, 3]}},
}
"""Adapters of the tied families."""
_CODE = """from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""
_TOKENS = torch.arange(5, 25)[None]


def build_model(family: str, vocabulary: int) -> Any:
    prefix, values = FAMILIES[family]
    config = getattr(transformers, f"{prefix}Config")(**{**_SMALL, **values, "vocab_size": vocabulary})
    name = "Gemma3ForCausalLM" if prefix == "Gemma3Text" else f"{prefix}ForCausalLM"
    for suffix in ("", "LMHeadModel"):
        if kind := getattr(transformers, f"{prefix}{suffix}" if suffix else name, None):
            return kind(config)
    raise LookupError(name)


def build_vision_model(family: str, vocabulary: int) -> Any:
    prefix, kind, text, vision, values = VISION_FAMILIES[family]
    language = {**_SMALL, "model_type": kind, "vocab_size": vocabulary, **text}
    config = getattr(transformers, f"{prefix}Config")(text_config=language, vision_config=vision, **values)
    return getattr(transformers, f"{prefix}ForConditionalGeneration")(config)


def build_own_model(folder: Path, vocabulary: int) -> None:
    """Save a model whose code is in its folder."""
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**_SMALL, vocab_size=vocabulary)).save_pretrained(folder)
    (folder / "modeling_own.py").write_text(_CODE)
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    config |= {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))


def make_run(folder: Path, *, trust: bool = False, method: str = "sft") -> RunArguments:
    paths = ("--model", f"{folder}/base", "--dataset", "-", "--output", f"{folder}/output", "--trl-version", "1.16.0")
    return parse_run_arguments([*paths, "--merge", method, "--use_peft=true", *(["--trust_remote_code=true"] * trust)])


def train_adapter(run: RunArguments, tokenizer: Any, **options: Any) -> Any:
    """Save an adapter with random weights, and return the logits of base model and adapter."""
    torch.manual_seed(0)
    model = merging._load_model(run, run.model)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    config = LoraConfig(**{"task_type": "CAUSAL_LM", "r": 4, "init_lora_weights": False, **options})
    peft_model = get_peft_model(model, config)
    for _, weight in peft_model.named_parameters():
        if weight.requires_grad:
            weight.data.add_(torch.randn_like(weight) * 0.05)
    peft_model.save_pretrained(run.output)
    tokenizer.save_pretrained(run.output)
    return _compute(peft_model)


def _compute(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=_TOKENS).logits.float()


def merge(run: RunArguments, tokenizer: Any, **options: Any) -> dict[str, Any]:
    """Return the largest difference of the logits, and that between base model and adapter."""
    expected = train_adapter(run, tokenizer, **options)
    base = _compute(merging._load_model(run, run.model))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        merging.merge_adapter(run)
    found = _compute(merging._load_model(run, run.output / "merged"))
    files = sorted(path.name for path in (run.output / "merged").iterdir())
    effect = (base - expected).abs().max().item() if base.shape == expected.shape else None
    difference = (found - expected).abs().max().item()
    return {"difference": difference, "effect": effect, "files": files, "printed": printed.getvalue()}


def run_case(folder: Path, tokenizer: Any, family: str, adapter: str, dtype: str) -> dict[str, Any]:
    """Run one case; the weights of every second family are in several files."""
    run = make_run(folder, trust=family == "own code")
    if family == "own code":
        build_own_model(run.model, len(tokenizer))
    else:
        build = build_model if family in FAMILIES else build_vision_model
        shards = {"max_shard_size": "40KB"} if [*FAMILIES, *VISION_FAMILIES].index(family) % 2 else {}
        build(family, len(tokenizer)).to(getattr(torch, dtype)).save_pretrained(run.model, **shards)
    tokenizer.save_pretrained(run.model)
    config = json.loads((run.model / "config.json").read_text())
    chosen = list(choose_lora_arguments(config, {}, ()))
    given = ADAPTERS.get(adapter) or {"target_modules": "all-linear"}
    dropout = 0.0 if "--lora_dropout=0.0" in chosen else 0.05
    return merge(run, tokenizer, lora_dropout=dropout, **given)


def merge_wrongly(folder: Path, tokenizer: Any) -> dict[str, Any]:
    """Merge an adapter of tied embeddings without separating them."""
    try:
        with mock.patch.object(layer_merging, "_find_tied", return_value={}):
            return run_case(folder, tokenizer, "llama tied", "embeddings", "float32")
    finally:
        assert not (folder / "output" / "merged").exists()


def merge_added_tokens(folder: Path, tokenizer: Any) -> dict[str, Any]:
    """Merge an adapter of a training that added embeddings for two tokens."""
    run = make_run(folder, trust=False)
    build_model("llama", len(tokenizer)).save_pretrained(run.model)
    tokenizer.save_pretrained(run.model)
    larger = transformers.AutoTokenizer.from_pretrained(run.model)
    larger.add_tokens(["<one>", "<two>"])
    return merge(run, larger, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])


def merge_reward_model(folder: Path, tokenizer: Any) -> dict[str, Any]:
    """Merge an adapter of a reward model, whose head the base model's files lack."""
    run = make_run(folder, method="reward")
    build_model("llama", len(tokenizer)).save_pretrained(run.model)
    tokenizer.save_pretrained(run.model)
    return merge(run, tokenizer, task_type="SEQ_CLS", target_modules="all-linear")


def merge_partly_loaded(folder: Path, tokenizer: Any) -> None:
    """Merge an adapter with tensors that have no place in the model."""
    run = make_run(folder)
    build_model("llama", len(tokenizer)).save_pretrained(run.model)
    tokenizer.save_pretrained(run.model)
    train_adapter(run, tokenizer, target_modules=["q_proj", "v_proj"])
    weights = load_file(run.output / "adapter_model.safetensors")
    moved = {name.replace("layers.1.self_attn.v", "layers.9.self_attn.v"): value for name, value in weights.items()}
    save_file(moved, run.output / "adapter_model.safetensors")
    merging.merge_adapter(run)


def merge_large(folder: Path, tokenizer: Any) -> dict[str, Any]:
    """Merge into a model of 1.6 GB in files of 0.3 GB, without memory to compare logits."""
    run, sizes = make_run(folder, trust=False), {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 6}
    values = {**_SMALL, **sizes, "num_attention_heads": 16, "head_dim": 128, "vocab_size": len(tokenizer)}
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**values)).save_pretrained(run.model, max_shard_size="300MB")
    tokenizer.save_pretrained(run.model)
    expected = train_adapter(run, tokenizer, target_modules="all-linear")
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (Linux, proc_pid_clear_refs)
    before = read_status("VmRSS")
    with mock.patch.object(merging, "measure_available_memory", return_value=0):
        printed = merging.merge_adapter(run)
    peak = read_status("VmHWM") - before
    found = _compute(merging._load_model(run, run.output / "merged"))
    difference = ((found - expected).square().mean() / expected.square().mean()).sqrt().item()
    weights = [path.stat().st_size for path in run.model.glob("*.safetensors")]
    shapes = {"peak": peak, "largest": max(weights), "all": sum(weights)}
    shutil.rmtree(folder)
    return {**shapes, "difference": difference, "printed": printed}


def read_status(name: str) -> int:
    """Return a figure of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def main(tokenizer_folder: str, root: str) -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    cases = [(family, "all linear", "float32") for family in (*FAMILIES, *VISION_FAMILIES, "own code")]
    cases += [(family, "all linear", "bfloat16") for family in ("llama tied", "qwen3 tied")]
    cases += [("llama tied", name, "bfloat16") for name in ("embeddings", "saved head")]
    cases += [("qwen2", "trained biases", "float32")]
    cases += [(family, name, "float32") for family in ("llama tied", "gemma2 tied") for name in ADAPTERS]
    for number, case in enumerate(cases):
        try:
            result = run_case(Path(root) / str(number), tokenizer, *case)
        except Exception as error:  # noqa: BLE001 - each is a result
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": ", ".join(case), **result}), flush=True)
    for name, attempt in (("wrong", merge_wrongly), ("partly loaded", merge_partly_loaded)):
        try:
            attempt(Path(root) / name, tokenizer)
        except MergeError as refusal:
            print(json.dumps({"case": name, "error": str(refusal)}))
    print(json.dumps({"case": "reward", **merge_reward_model(Path(root) / "reward", tokenizer)}))
    print(json.dumps({"case": "added", **merge_added_tokens(Path(root) / "added", tokenizer)}))
    print(json.dumps({"case": "large", **merge_large(Path(root) / "large", tokenizer)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
