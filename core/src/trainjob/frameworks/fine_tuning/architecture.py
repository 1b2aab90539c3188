"""Checks of a model's architecture, quantization and tokenizer, from its files, before torch is loaded."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.training_run import TrainingRun

__all__ = ["check_architecture"]

# Ends of the names of classes that generate text (transformers 5.23, models/auto/modeling_auto.py).
_GENERATES_TEXT = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForImageTextToText")
_CLASSIFIES = ("ForSequenceClassification",)
# transformers loads these weights in 16 bits if it cannot compute with them (5.23, quantizers/quantizer_mxfp4.py).
_DEQUANTIZED = ("mxfp4",)
_IMAGE_PACKAGES = {"PIL": "pillow", "torchvision": "torchvision"}


def check_architecture(run: TrainingRun) -> None:
    """Refuse a model that the method cannot train, or whose adapter cannot be merged.

    Args:
        run: the request; the model's folder contains `config.json`.

    Raises:
        InvalidSpec: the model is of another kind, is quantized, or needs packages that the image lacks.
    """
    path = run.model / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise InvalidSpec(Problem("model_path", str(path), "it is not a JSON object: fetch the model again"))
    if problems := [
        *_find_other_kinds(run, config),
        *_find_quantization(run, config),
        *_find_packages(config),
        *_find_tokens(run, config),
    ]:
        raise InvalidSpec(problems)


def _find_other_kinds(run: TrainingRun, config: Mapping[str, Any]) -> Iterator[Problem]:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or config.get("auto_map"):  # the model's own code says what it is
        return
    allowed = _GENERATES_TEXT + (_CLASSIFIES if run.method == "reward" else ())
    if config.get("is_encoder_decoder"):
        rule = f"{run.method} trains decoders; this model has an encoder and a decoder"
    elif not name.endswith(allowed):
        rule = f"{run.method} trains models that generate text, such as LlamaForCausalLM"
    else:
        return
    yield Problem("model_path", f"a {name}", rule)


def _find_quantization(run: TrainingRun, config: Mapping[str, Any]) -> Iterator[Problem]:
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    if not method or method in _DEQUANTIZED:
        return
    if not run.uses_lora:
        rule = "quantized weights cannot be trained: give peft_config, or train the model that is not quantized"
        yield Problem("model_path", f"a model quantized with {method}", rule)
    elif run.merge:
        rule = (
            f"an adapter cannot be merged into weights that are quantized with {method}: set merge=False and export "
            'with adapter="keep", or train the model that is not quantized'
        )
        yield Problem("config.peft_config.merge", "True", rule)


def _find_packages(config: Mapping[str, Any]) -> Iterator[Problem]:
    if not isinstance(config.get("vision_config"), Mapping):
        return
    missing = [package for module, package in _IMAGE_PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        rule = f"the model reads images, and its processor needs {' and '.join(missing)}: give an image with them"
        yield Problem("image", "the image of this pod", rule)


def _find_tokens(run: TrainingRun, config: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problem of a tokenizer with more tokens than the model has embeddings.

    Such a token ends a training on a GPU with an assertion of the device.
    """
    text = config.get("text_config")
    sizes = [part.get("vocab_size") for part in (config, text) if isinstance(part, Mapping)]
    size = next((each for each in sizes if isinstance(each, int)), None)
    if size is None or run.resizes_vocabulary:
        return
    if beyond := sorted(token for token, number in _read_added_tokens(run).items() if number >= size):
        rule = (
            f"its tokenizer has {len(beyond)} tokens that the model has no embedding for, such as {beyond[0]!r}: use "
            f"the model's tokenizer with its {size} tokens, or resize the model's embeddings before the training"
        )
        yield Problem("model_path", str(run.model), rule)


def _read_added_tokens(run: TrainingRun) -> dict[str, int]:
    """Return the numbers of the tokens that were added to the tokenizer's vocabulary."""
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        tokens = json.loads((run.model / "tokenizer.json").read_bytes())["added_tokens"]
        return {str(token["content"]): int(token["id"]) for token in tokens}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return dict(json.loads((run.model / "added_tokens.json").read_bytes()).items())
    return {}
