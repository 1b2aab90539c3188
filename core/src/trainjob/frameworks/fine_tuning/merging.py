"""The merged model of a LoRA training."""

from __future__ import annotations

import shutil
from pathlib import Path

from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

__all__ = ["save_merged_model"]

MERGED_FOLDER = "merged"


def save_merged_model(base: Path, output: Path, method: str) -> Path:
    """Merge the adapter in `output` into a copy of the base model.

    The copy is written to the folder `merged` below `output`. The base model is loaded again in its own data type,
    because a quantized or sharded one cannot be merged.

    Args:
        base: folder of the base model.
        output: folder of the adapter and the tokenizer.
        method: the method; `reward` trains a classifier with one output.

    Returns:
        The folder `merged`.

    Raises:
        OSError: a folder cannot be read or written.
    """
    kind, options = (
        (AutoModelForSequenceClassification, {"num_labels": 1})
        if method == "reward"
        else (
            AutoModelForCausalLM,
            {},
        )
    )
    tokenizer = AutoTokenizer.from_pretrained(output)
    model = kind.from_pretrained(base, dtype="auto", **options)
    if model.get_input_embeddings().num_embeddings < len(tokenizer):
        model.resize_token_embeddings(len(tokenizer))
    merged = PeftModel.from_pretrained(model, output).merge_and_unload()
    folder, written = output / MERGED_FOLDER, output / f"{MERGED_FOLDER}.new"
    shutil.rmtree(written, ignore_errors=True)
    merged.save_pretrained(written)
    tokenizer.save_pretrained(written)
    shutil.rmtree(folder, ignore_errors=True)
    written.rename(folder)
    return folder
