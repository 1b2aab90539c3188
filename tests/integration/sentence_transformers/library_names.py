"""Names of the library's arguments and losses, as JSON; run with the libraries of the environment."""

from __future__ import annotations

import dataclasses
import inspect
import json

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses

LOSSES = {name: getattr(losses, name) for name in losses.__all__ if name.endswith("Loss")}

if __name__ == "__main__":
    arguments = [field.name for field in dataclasses.fields(SentenceTransformerTrainingArguments)]
    of_losses = {name: list(inspect.signature(each.__init__).parameters) for name, each in LOSSES.items()}
    print(json.dumps({"arguments": arguments, "losses": of_losses}))
