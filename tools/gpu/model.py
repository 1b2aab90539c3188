"""Write a hub with the tickets and a model of a size, with the libraries of TRL.

Usage: model.py ROOT small|tiny. ROOT then has `models/demo/llama` and `datasets/demo/tickets`, in the layout of a
Hugging Face repository. Run make_model.py and make_data.py of examples/tickets with the same ROOT first.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import torch
import transformers

# 189 million weights: enough that a GPU computes most of the time. Its vocabulary is that of the tiny model.
_SMALL = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
}
_TEXTS, _TICKETS_PER_TEXT = 1000, 150  # a text has more than 1,024 tokens, to which the trainings cut it


def write_model(tiny: Path, folder: Path, size: str) -> None:
    """Write a Llama with random weights in bf16, and the tokenizer of the tiny model."""
    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("original", "*.safetensors"))
    config = transformers.AutoConfig.from_pretrained(tiny, **(_SMALL if size == "small" else {}))
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(config)
    if size == "tiny":
        model = transformers.LlamaForCausalLM.from_pretrained(tiny)  # the default weights do not suit its width
    model.to(torch.bfloat16).save_pretrained(folder)
    print(f"{folder}: {model.num_parameters():,} weights", flush=True)


def write_texts(dataset: Path) -> None:
    """Write the subset `texts`: each row is a long text of many tickets and their answers."""
    tickets = pyarrow.parquet.read_table(dataset / "data").to_pylist()
    lines = [f"{row['input']} {row['output']}\n" for row in tickets]
    numbers = random.Random(7)  # noqa: S311 - no secret
    texts = ["".join(numbers.choices(lines, k=_TICKETS_PER_TEXT)) for _ in range(_TEXTS)]
    (dataset / "texts").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), dataset / "texts" / "train-00000-of-00001.parquet")


if __name__ == "__main__":
    _root = Path(sys.argv[1])
    write_model(_root / "models/demo/tiny-llama", _root / "models/demo/llama", sys.argv[2])
    write_texts(_root / "datasets/demo/tickets")
