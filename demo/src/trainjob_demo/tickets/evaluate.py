"""Score a model folder on held-out tickets, and print one line of JSON.

    python evaluate.py MODEL_DIR PARQUET

The line is `{"exact_match": "59/60", "loss": 0.017, …}`. exact_match counts the greedy answers that match exactly. loss
is the mean cross-entropy of the expected answers' tokens.

Imports take most of the run time. If MODEL_DIR is `-`, the program imports first and then reads folders from stdin, one
per line. It prints one line for each.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from pyarrow.parquet import ParquetFile
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

LONGEST_ANSWER = 12  # tokens


def pad(rows: list[list[int]], value: int, *, left: bool) -> torch.Tensor:
    """Pad the rows to one length, on the left (for generation) or on the right."""
    width = max(map(len, rows))
    gaps = ([value] * (width - len(row)) for row in rows)
    return torch.tensor([gap + row if left else row + gap for row, gap in zip(rows, gaps, strict=True)])


def main(folder: str, parquet: str) -> None:
    began = time.monotonic()
    torch.set_num_threads(1)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    model = LlamaForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    rows = ParquetFile(parquet).read().to_pylist()

    chats = [[{"role": "user", "content": row["input"]}] for row in rows]
    texts = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in chats]
    prompts = tokenizer(texts, add_special_tokens=False)["input_ids"]
    answers = tokenizer([row["output"] + tokenizer.eos_token for row in rows], add_special_tokens=False)["input_ids"]

    with torch.inference_mode():
        both = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
        ignored = [[-100] * len(prompt) + answer for prompt, answer in zip(prompts, answers, strict=True)]
        # Padding on the right cannot change the tokens before it, so it needs no mask.
        ids, labels = pad(both, tokenizer.pad_token_id, left=False), pad(ignored, -100, left=False)
        loss = model(input_ids=ids, labels=labels).loss.item()

        ids = pad(prompts, tokenizer.pad_token_id, left=True)
        mask = pad([[1] * len(prompt) for prompt in prompts], 0, left=True)
        tokens = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=LONGEST_ANSWER,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
        )
    generated = tokenizer.batch_decode(tokens[:, ids.shape[1] :], skip_special_tokens=True)
    right = sum(text == row["output"] for text, row in zip(generated, rows, strict=True))
    seconds = round(time.monotonic() - began, 2)
    score = {"exact_match": f"{right}/{len(rows)}", "loss": round(loss, 4), "seconds": seconds}
    print(json.dumps(score), flush=True)


if __name__ == "__main__":
    _, model_folder, held_out = sys.argv
    for line in sys.stdin if model_folder == "-" else [model_folder]:
        main(line.strip(), held_out)
