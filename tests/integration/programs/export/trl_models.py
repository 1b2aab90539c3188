"""Trainings with TRL's own scripts, and comparisons of models, run with the libraries of the environment `trl`.

python trl_models.py train METHOD BASE DATASET OUTPUT lora|full [merge]    a training of three steps, and its record
python trl_models.py merge BASE ADAPTER FOLDER SHARD_SIZE                  save the merged model in shards
python trl_models.py compare BASE ONE OTHER                                print the differences of the scores as JSON
"""
# The environment in which types are checked has none of these libraries.
# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXTS = ("I have a question about my invoice.", "The router does not work.", "Urgent: parcel")


def train(method: str, base: str, dataset: str, output: str, kind: str, merge: str = "") -> None:
    """Run a script of TRL, and write the record and the merged model as the training pod does."""
    lora = ["--use_peft", "true", "--lora_r", "8"] if kind == "lora" else []
    if lora and method == "reward":
        lora += ["--lora_task_type", "SEQ_CLS"]
    sys.argv = [
        f"trl.scripts.{method}",
        *("--model_name_or_path", base, "--dataset_name", dataset, "--output_dir", output, "--max_steps", "3"),
        *("--bf16", "false", "--use_cpu", "true", "--report_to", "none", "--learning_rate", "0.01"),
        *("--save_steps", "2", "--logging_steps", "1", *lora),
    ]
    runpy.run_module(f"trl.scripts.{method}", run_name="__main__", alter_sys=True)
    if merge:
        merge_adapter(base, output, f"{output}/merged", "5GB")
    write_record(Path(output), method, adapter=bool(lora))


def write_record(output: Path, method: str, *, adapter: bool) -> None:
    import trl

    state = json.loads(max(output.glob("checkpoint-*/trainer_state.json")).read_text())
    record = {
        "framework": "trl",
        "framework_version": trl.__version__,
        "method": method,
        "complete": True,
        "parameters": {"learning_rate": 0.01, "max_steps": 3},
        "metrics": {name: value for entry in state["log_history"] for name, value in entry.items()},
        "step": state["global_step"],
        "epoch": state["epoch"],
        "adapter": adapter,
    }
    (output / "trainjob_run.json").write_text(json.dumps(record))


def merge_adapter(base: str, adapter: str, folder: str, shard_size: str) -> None:
    from transformers import AutoTokenizer

    load(base, adapter).merge_and_unload().save_pretrained(folder, max_shard_size=shard_size)
    AutoTokenizer.from_pretrained(adapter).save_pretrained(folder)


def load(base: str, folder: str) -> Any:
    """Return the model in a folder, or the base model with the adapter in the folder."""
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    is_adapter = not (Path(folder) / "config.json").is_file()
    source = base if is_adapter else folder
    scores = "ForSequenceClassification" in AutoConfig.from_pretrained(source).architectures[0]
    model = (AutoModelForSequenceClassification if scores else AutoModelForCausalLM).from_pretrained(source)
    return (PeftModel.from_pretrained(model, folder) if is_adapter else model).eval()


def compare(base: str, one: str, other: str) -> None:
    """Print how the logits of two models differ.

    `between` is the largest difference of the two, `from_base` that of the second and the base model. The text is
    tokenized with the second folder's tokenizer.
    """
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(other)
    models = [load(base, folder) for folder in (one, other, base)]

    def difference(first: Any, second: Any) -> float:
        found = []
        for text in TEXTS:
            inputs = tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                logits = [model(**inputs).logits for model in (first, second)]
            if logits[0].shape == logits[1].shape:
                found.append((logits[0] - logits[1]).abs().max().item())
        return max(found, default=float("inf"))  # a reward model and its base have other outputs

    def answer(model: Any) -> str:
        inputs = tokenizer(TEXTS[0], return_tensors="pt")
        return str(tokenizer.decode(model.generate(**inputs, max_new_tokens=8, do_sample=False)[0]))

    result = {
        "between": difference(models[0], models[1]),
        "from_base": difference(models[2], models[1]),
        "architecture": models[1].config.architectures[0],
        "template": tokenizer.chat_template or "",
        "answers": [answer(model) for model in models[:2] if model.can_generate()],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"train": train, "merge": merge_adapter, "compare": compare}
    programs[sys.argv[1]](*sys.argv[2:])
