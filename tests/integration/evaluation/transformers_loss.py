"""Print the loss and the bits per byte of a model on rows, computed by transformers alone.

python transformers_loss.py MODEL ROWS
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def list_parts(tokenizer: Any, row: Any) -> Iterator[tuple[list[int], int, str]]:
    """Yield ids, number of the ids that are only a context, and the text whose bytes count."""
    if "messages" in row:
        for number, message in enumerate(row["messages"]):
            if message["role"] == "assistant":
                prompt = tokenizer.apply_chat_template(
                    row["messages"][:number], add_generation_prompt=True, return_dict=True
                )
                whole = tokenizer.apply_chat_template(row["messages"][: number + 1], return_dict=True)
                yield whole["input_ids"], len(prompt["input_ids"]), message["content"]
    elif "prompt" in row:
        ids = tokenizer(row["prompt"] + row["completion"])["input_ids"]
        yield [*ids, tokenizer.eos_token_id], len(tokenizer(row["prompt"])["input_ids"]), row["completion"]
    else:
        ids = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        yield [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id], 1, row["text"]


def main(folder: str, rows: str) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    torch.set_grad_enabled(False)
    total, tokens, size = 0.0, 0, 0
    for line in Path(rows).read_text().splitlines():
        for ids, begin, text in list_parts(tokenizer, json.loads(line)):
            labels = [-100] * begin + ids[begin:]
            count = len(ids) - begin
            total += model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss.item() * count
            tokens += count
            size += len(text.encode())
    print(json.dumps({"loss": total / tokens, "bits_per_byte": total / math.log(2) / size}))


if __name__ == "__main__":
    main(*sys.argv[1:])
