"""Checks of trained models, in one process that loads torch once.

It reads requests from its standard input and prints an answer for each: a line with a JSON object. A request has
`action`, which is the name of a function below, and its arguments. An answer with `error` means that the check raised.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import torch
import transformers
from peft import PeftModel
from safetensors import safe_open

_TEXT = "My invoice is wrong. Route to billing.\nThe router does not work. Route to network.\n"
_PROMPT = "The router does not work."


def compare(base: str, adapter: str, merged: str) -> dict[str, Any]:
    """Return how much the logits differ from those of base model and adapter.

    The values are the root mean squares of the differences of merged model and base model, relative to the logits'.
    """
    expected = _compute_logits(PeftModel.from_pretrained(_load(base), adapter), base)
    found, unadapted = (_compute_logits(_load(folder), base) for folder in (merged, base))
    scale = expected.square().mean().sqrt()
    differences = [((each - expected).square().mean().sqrt() / scale).item() for each in (found, unadapted)]
    return {"merged": differences[0], "base": differences[1]}


def load(folder: str) -> dict[str, Any]:
    """Return whether the logits of a model are finite, and the device that computed them."""
    logits = _compute_logits(_load(folder), folder)
    return {"finite": bool(logits.isfinite().all()), "device": logits.device.type}


def generate(folder: str) -> dict[str, Any]:
    """Return the text that a model generates, and the device."""
    model, tokenizer = _load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(_PROMPT, return_tensors="pt").to(model.device)
    tokens = model.generate(**inputs, max_new_tokens=16, do_sample=False)[0][inputs.input_ids.shape[1] :]
    return {"text": tokenizer.decode(tokens), "tokens": len(tokens), "device": model.device.type}


def read_types(file: str) -> dict[str, Any]:
    """Return the data types of the tensors in a file of weights."""
    with safe_open(file, "pt") as weights:
        return {"types": sorted({weights.get_slice(name).get_dtype() for name in weights.keys()})}  # noqa: SIM118


def count_changes(one: str, other: str) -> dict[str, Any]:
    """Return the number of tensors that differ between two models."""
    before, after = (_load(folder, torch.float32).state_dict() for folder in (one, other))
    return {"changed": sum(not torch.equal(before[name], after[name]) for name in before)}


def _load(folder: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def _compute_logits(model: Any, tokenizer: str) -> Any:
    tokens = transformers.AutoTokenizer.from_pretrained(tokenizer)(_TEXT, return_tensors="pt").input_ids
    with torch.no_grad():
        return model(input_ids=tokens.to(model.device)).logits.float()


def main() -> None:
    """Answer requests until the standard input ends."""
    actions = {each.__name__: each for each in (compare, load, generate, read_types, count_changes)}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = actions[request.pop("action")](**request)
        except Exception as error:  # noqa: BLE001 - it is a result
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # the next training's memory is measured
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
