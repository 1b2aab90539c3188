"""Write the demo's base model: Llama 3.2's architecture with random weights.

    python make_model.py ROOT      ROOT/models/demo/tiny-llama, in the layout of a Hugging Face repository, 0.5 MB

The model has 110,912 weights and a vocabulary of 576. The tokenizer is a byte-level BPE trained on the tickets.
TorchTune reads it from original/tokenizer.model, transformers from tokenizer.json. TorchTune needs
`tokenizer.special_tokens_path`, because the special tokens' ids are not Llama's own.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import regex
import torch
from make_data import make_tickets
from safetensors.torch import save_file

WIDTH, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 64, 2, 4, 2, 128
MERGES = 246
# Llama 3's rule for splitting text into words.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SPECIAL_TOKENS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    "<|image|>",
)
CHAT_TEMPLATE = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
Pair = tuple[bytes, bytes]


def train_bpe(texts: list[str]) -> list[Pair]:
    """Merge the most frequent pair into one token, MERGES times, and return the pairs."""
    words = Counter(
        tuple(bytes([byte]) for byte in word.encode()) for text in texts for word in regex.findall(WORDS, text)
    )
    merges: list[Pair] = []
    while len(merges) < MERGES:
        pairs = Counter[Pair]()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = max(sorted(pairs), key=pairs.__getitem__, default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(best)
        words = Counter({merge(word, best): count for word, count in words.items()})
    return merges


def merge(word: tuple[bytes, ...], pair: Pair) -> tuple[bytes, ...]:
    merged: list[bytes] = []
    for token in word:
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return tuple(merged)


def byte_spellings() -> dict[int, str]:
    """Return GPT-2's spelling of bytes as printable characters, which tokenizer.json uses."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def tokenizer_json(ranks: dict[bytes, int], merges: list[Pair], special: dict[str, int]) -> dict[str, object]:
    letters = byte_spellings()

    def spell(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": token, **flags} for token, number in special.items()],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            # The special tokens are included, because the library would renumber them otherwise.
            "vocab": {**{spell(token): rank for token, rank in ranks.items()}, **special},
            "merges": [[spell(left), spell(right)] for left, right in merges],
        },
    }


def model_config(special: dict[str, int], vocabulary: int) -> dict[str, object]:
    ends = [special[token] for token in ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")]
    rope = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": special["<|begin_of_text|>"],
        "eos_token_id": ends,
        "pad_token_id": special["<|finetune_right_pad_id|>"],
        "vocab_size": vocabulary,
        "hidden_size": WIDTH,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": WIDTH // HEADS,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072,
        # TorchTune has these values built in.
        "rope_theta": 500000.0,
        "rope_scaling": {**rope, "original_max_position_embeddings": 8192},
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def random_weights(vocabulary: int) -> dict[str, torch.Tensor]:
    """Return random weights from which a training learns the tickets in 4 epochs.

    Llama's own N(0, 0.02) is too small for this width.
    """
    generator = torch.Generator().manual_seed(2)

    def linear(outputs: int, inputs: int) -> torch.Tensor:
        return torch.randn(outputs, inputs, generator=generator) / math.sqrt(inputs)

    kv_width = WIDTH // HEADS * KV_HEADS
    tensors = {
        "model.embed_tokens.weight": torch.randn(vocabulary, WIDTH, generator=generator) * 0.1,
        "model.norm.weight": torch.ones(WIDTH),
    }
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        tensors |= {
            f"{name}.self_attn.q_proj.weight": linear(WIDTH, WIDTH),
            f"{name}.self_attn.k_proj.weight": linear(kv_width, WIDTH),
            f"{name}.self_attn.v_proj.weight": linear(kv_width, WIDTH),
            f"{name}.self_attn.o_proj.weight": linear(WIDTH, WIDTH),
            f"{name}.mlp.gate_proj.weight": linear(FEED_FORWARD, WIDTH),
            f"{name}.mlp.up_proj.weight": linear(FEED_FORWARD, WIDTH),
            f"{name}.mlp.down_proj.weight": linear(WIDTH, FEED_FORWARD),
            f"{name}.input_layernorm.weight": torch.ones(WIDTH),
            f"{name}.post_attention_layernorm.weight": torch.ones(WIDTH),
        }
    return tensors


def main(root: Path) -> None:
    folder = root / "models" / "demo" / "tiny-llama"
    (folder / "original").mkdir(parents=True, exist_ok=True)

    texts = [text for row in make_tickets() for text in row] + ["user", "assistant", "system"] * 60
    merges = train_bpe(texts)
    ranks = {bytes([byte]): byte for byte in range(256)}
    for left, right in merges:
        ranks.setdefault(left + right, len(ranks))
    special = {token: len(ranks) + i for i, token in enumerate(SPECIAL_TOKENS)}
    vocabulary = math.ceil((len(ranks) + len(special)) / 64) * 64
    ids = model_config(special, vocabulary)
    names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>"}
    texts_by_name = {
        "config.json": ids,
        "generation_config.json": {key: ids[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        "tokenizer.json": tokenizer_json(ranks, merges, special),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": CHAT_TEMPLATE,
            "model_max_length": 2048,
            **names,
        },
        "special_tokens_map.json": names,
    }
    for name, value in texts_by_name.items():
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    (folder / "original" / "tokenizer.model").write_text("".join(lines))
    tensors = random_weights(vocabulary)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    print(f"{folder}: vocabulary {vocabulary}, {sum(tensor.numel() for tensor in tensors.values())} weights")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
