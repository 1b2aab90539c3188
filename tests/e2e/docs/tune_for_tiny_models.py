"""`tune` for the laptop cluster: it runs the real one with the shape of the demo's tiny model, on the CPU.

    tune_for_tiny_models.py TUNE ARGUMENT...

The pages train models of the Hugging Face Hub on GPUs. The tests' hub has a tiny Llama under these names.
"""

from __future__ import annotations

import os
import re
import sys

SHAPE = (
    "model.vocab_size=576",
    "model.num_layers=2",
    "model.num_heads=4",
    "model.num_kv_heads=2",
    "model.embed_dim=64",
    "model.intermediate_dim=128",
    "model.max_seq_len=2048",
)


def overrides(arguments: list[str]) -> list[str]:
    """Return the arguments that follow those of a `tune run`."""
    text = " ".join(arguments)
    builder = "lora_llama3_2" if "lora" in text else "llama3_2"
    found = [
        "device=cpu",
        "dtype=fp32",
        "optimizer=torch.optim.AdamW",
        f"model=torchtune.models.llama3_2.{builder}",
        *SHAPE,
    ]
    if tokenizer := re.search(r"tokenizer\.path=(\S+)/original/tokenizer\.model", text):
        found.append(f"tokenizer.special_tokens_path={tokenizer[1]}/tokenizer.json")
    return found


if __name__ == "__main__":
    program, *given = sys.argv[1:]
    more = overrides(given) if given[:1] == ["run"] and any("=" in one for one in given) else []
    os.execv(program, [program, *given, *more])  # noqa: S606 - the program of the environment
