"""Settings of the examples for a tiny model on a machine without GPU.

Remove them all for a real model.
"""

from __future__ import annotations

DATASET, MODEL = "hf://demo/tickets", "hf://demo/tiny-llama"
CPU = ("device=cpu", "optimizer=torch.optim.AdamW")
# The shape of the demo's model. The recipe's default is the shape of Llama 3.2 1B.
TINY = (
    "model=torchtune.models.llama3_2.llama3_2",
    "model.vocab_size=576",
    "model.num_layers=2",
    "model.num_heads=4",
    "model.num_kv_heads=2",
    "model.embed_dim=64",
    "model.intermediate_dim=128",
    "model.max_seq_len=2048",
    "tokenizer.special_tokens_path=/workspace/model/tokenizer.json",
)
EXPORT = "/workspace/export"  # on a real cluster, use a URI such as s3://models/tickets, and secret="s3"
