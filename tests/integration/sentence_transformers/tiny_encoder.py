"""Tiny encoders from scratch, in the forms of repositories; run with the libraries of the environment.

python tiny_encoder.py FOLDER < TEXTS    create a folder of each form; the tokenizer knows the words of TEXTS
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

HIDDEN, EMBEDDING = 32, 16
# No dropout, so that two trainings in one process give the same weights.
SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
OLD_TYPES = "sentence_transformers.models"
OLD_POOLING = {
    "word_embedding_dimension": HIDDEN,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
}


def make_bert(folder: Path, texts: list[str]) -> None:
    """Create a BERT, as transformers saves it."""
    trained = BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(texts, vocab_size=200, min_frequency=1, show_progress=False)
    special = {name: f"[{name[:3].upper()}]" for name in ("pad_token", "unk_token", "cls_token", "sep_token")}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, mask_token="[MASK]", model_max_length=64, **special
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    BertModel(BertConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder)


def make_model(folder: Path, bert: Path, *, dense: bool = False) -> None:
    """Create a model with mean pooling, a layer on request, and vectors of length 1."""
    torch.manual_seed(2)
    layers = [Dense(HIDDEN, EMBEDDING)] if dense else []
    modules = [Transformer(str(bert)), Pooling(HIDDEN, "mean"), *layers, Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)


def make_older(folder: Path, source: Path) -> None:
    """Create a form of older releases: the transformer has a folder of its own."""
    shutil.copytree(source, folder)
    (folder / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(folder / "0_Transformer" / name)
    settings = {"max_seq_length": 32, "do_lower_case": False}
    (folder / "sentence_bert_config.json").unlink()
    (folder / "0_Transformer" / "sentence_bert_config.json").write_text(json.dumps(settings))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(OLD_POOLING))
    shutil.rmtree(folder / "2_Normalize")  # Git has no empty folders
    modules = json.loads((folder / "modules.json").read_text())
    for each in modules:
        each["type"] = f"{OLD_TYPES}.{each['type'].rpartition('.')[2]}"
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"__version__": {"sentence_transformers": "2.0.0", "transformers": "4.7.0", "pytorch": "1.9.0"}})
    )


def main(folder: Path) -> None:
    make_bert(folder / "plain", sys.stdin.read().splitlines())
    make_model(folder / "modules", folder / "plain")
    make_model(folder / "dense", folder / "plain", dense=True)
    make_older(folder / "older", folder / "modules")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
