"""Train a tiny model on tickets until it answers them.

python train_tiny.py MODEL ROWS TARGET
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from pyarrow.parquet import read_table
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(base: str, rows: str, target: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    [file] = Path(rows).glob("*.parquet")
    samples = []
    for row in read_table(file).to_pylist():
        chat = [{"role": "user", "content": row["input"]}]
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        answer = tokenizer(row["output"] + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        samples.append((ids + answer, [-100] * len(ids) + answer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(170):
        batch = [samples[(16 * step + each) % len(samples)] for each in range(16)]
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([one + [tokenizer.pad_token_id] * (longest - len(one)) for one, _ in batch])
        labels = torch.tensor([other + [-100] * (longest - len(other)) for _, other in batch])
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
