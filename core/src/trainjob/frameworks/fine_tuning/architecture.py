"""Checks of a model's architecture, quantization and tokenizer, from its files, before torch is loaded."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.fine_tuning.training_run import TrainingRun

__all__ = ["check_architecture"]

# Ends of the names of classes that generate text (transformers 5.23, models/auto/modeling_auto.py).
_GENERATES_TEXT = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForImageTextToText")
_CLASSIFIES = ("ForSequenceClassification",)
# transformers loads these weights in 16 bits if it cannot compute with them (5.23, quantizers/quantizer_mxfp4.py).
_DEQUANTIZED = ("mxfp4",)
_IMAGE_PACKAGES = {"PIL": "pillow", "torchvision": "torchvision"}
# Modules by method of quantization (transformers 5.23, quantizers/quantizer_*.py, validate_environment).
_QUANTIZATION_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "gptq": {"optimum": "optimum", "gptqmodel": "gptqmodel"},
    "awq": {"gptqmodel": "gptqmodel"},
    "bitsandbytes": {"bitsandbytes": "bitsandbytes"},
    "compressed-tensors": {"compressed_tensors": "compressed-tensors"},
    "torchao": {"torchao": "torchao"},
    "hqq": {"hqq": "hqq"},
    "aqlm": {"aqlm": "aqlm"},
    "auto-round": {"auto_round": "auto-round"},
}


def check_architecture(run: TrainingRun) -> None:
    """Refuse a model that the method cannot train, or whose adapter cannot be merged.

    Args:
        run: the request; the model's folder contains `config.json`.

    Raises:
        InvalidSpec: the model is of another kind, is quantized, needs packages that the image lacks, or runs code that
            the request does not trust.
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
        *_find_code(run, config),
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
    method = _get_quantization(config)
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


def _get_quantization(config: Mapping[str, Any]) -> str:
    """Return the method with which the weights are quantized; empty if they are not."""
    quantization = config.get("quantization_config")
    return str(quantization.get("quant_method") or "") if isinstance(quantization, Mapping) else ""


def _find_packages(config: Mapping[str, Any]) -> Iterator[Problem]:
    of_weights = _QUANTIZATION_PACKAGES.get(_get_quantization(config), {})
    of_images = _IMAGE_PACKAGES if isinstance(config.get("vision_config"), Mapping) else {}
    for what, packages in (("model reads images, and its processor", of_images), ("quantized model", of_weights)):
        missing = [package for module, package in packages.items() if importlib.util.find_spec(module) is None]
        if missing:
            rule = (
                f"the {what} needs {' and '.join(missing)}: give an image with {'it' if len(missing) == 1 else 'them'}"
            )
            yield Problem("image", "the image of this pod", rule)


def _find_code(run: TrainingRun, config: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problem of a model whose own code must run, but is not trusted."""
    found = importlib.util.find_spec("transformers")
    if run.trusts_remote_code or not config.get("auto_map") or found is None or not found.origin:
        return
    name = str(config.get("model_type", "")).replace("-", "_")
    if not (Path(found.origin).with_name("models") / name / "__init__.py").is_file():
        rule = "only its own code can load it: read the code, and set trust_remote_code=True in arguments"
        yield Problem("model_path", str(run.model), rule)


def _find_tokens(run: TrainingRun, config: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problem of a tokenizer with tokens that the model has no embedding for.

    Such a token ends a training on a GPU with an assertion of the device. An added one is a problem only if each text
    may contain it: Gemma 3 1B has one for images, which no text contains.
    """
    text = config.get("text_config")
    sizes = [part.get("vocab_size") for part in (config, text) if isinstance(part, Mapping)]
    size = next((each for each in sizes if isinstance(each, int)), None)
    if size is None or run.resizes_vocabulary:
        return
    vocabulary, added = ({each for each in part if part[each] >= size} for part in _read_tokens(run.model))
    used = " ".join(_read_settings(run.model))
    beyond = sorted((vocabulary - added) | {token for token in added if token in used})
    if beyond:
        rule = (
            f"its tokenizer has {len(beyond)} tokens that the model has no embedding for, such as {beyond[0]!r}: use "
            f"the model's tokenizer with its {size} tokens, or resize the model's embeddings before the training"
        )
        yield Problem("model_path", str(run.model), rule)
    elif added:
        print(f"the model has no embedding for the token {min(added)!r}, so no row may contain it", flush=True)


def _read_tokens(model: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of the tokens in the vocabulary, and of the added ones."""
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
        tokenizer = json.loads((model / "tokenizer.json").read_bytes())
        vocabulary = tokenizer.get("model", {}).get("vocab", {})
        if isinstance(vocabulary, list):  # pairs of token and score, in the order of their numbers
            vocabulary = {token: number for number, (token, _) in enumerate(vocabulary)}
        return vocabulary, {str(token["content"]): int(token["id"]) for token in tokenizer["added_tokens"]}
    return {}, read_object(model / "added_tokens.json")


def _read_settings(model: Path) -> Iterator[str]:
    """Yield the tokenizer's special tokens and its chat template."""
    known = read_object(model / "tokenizer_config.json")
    for name in ("bos_token", "eos_token", "pad_token", "chat_template"):
        yield json.dumps(known.get(name), ensure_ascii=False)
    with contextlib.suppress(OSError):
        yield (model / "chat_template.jinja").read_text("utf-8", errors="replace")
