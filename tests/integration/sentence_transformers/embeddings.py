"""Embeddings of texts by the models in folders, as a user loads them; run with the libraries of the environment.

python embeddings.py FOLDER... < TEXTS    print a JSON object with the names of the modules and the vectors, by folder
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

from sentence_transformers import SentenceTransformer


def main(*folders: str) -> None:
    texts = sys.stdin.read().splitlines()
    found = {}
    for folder in folders:
        model = SentenceTransformer(folder, device="cpu", local_files_only=True)
        modules = [type(module).__name__ for module in model]
        found[folder] = {"modules": modules, "vectors": model.encode(texts).tolist(), "length": model.max_seq_length}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
