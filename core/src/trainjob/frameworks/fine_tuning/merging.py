"""The merged model of a LoRA training.

It replaces an earlier one only after a check: it is loaded again, and must compute the same logits as the base model
with the adapter. One model is in memory at a time, or one layer if there is no memory for a model.
"""

from __future__ import annotations

import gc
import resource
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open

from trainjob.errors import MergeError
from trainjob.frameworks.fine_tuning.adapter_loading import load_adapter
from trainjob.frameworks.fine_tuning.available_memory import measure_available_memory
from trainjob.frameworks.fine_tuning.training_run import TrainingRun

__all__ = ["merge_adapter"]

MERGED_FOLDER = "merged"
_TEXT = "A merged model must give the answers of its base model and adapter: 1, 2, 3."
# Largest relative difference of the logits (root mean square). A merge in 16 bits rounds each weight to 8 or 11 bits.
_TOLERANCE, _TOLERANCE_16_BITS = 1e-3, 1e-1
_MEMORY_OF_CHECK = 1 << 30  # bytes for libraries and activations, beside the model
_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")


def merge_adapter(run: TrainingRun) -> str:
    """Save a copy of the base model, with the adapter merged, in the folder `merged`.

    The base model is read again in its own data type, because a quantized or sharded one cannot be merged.

    Args:
        run: the request.

    Returns:
        A sentence about the merged model for the log.

    Raises:
        MergeError: the merged model differs from base model and adapter, or is not finite.
        OSError: a folder cannot be read or written.
    """
    folder, written = run.output / MERGED_FOLDER, run.output / f"{MERGED_FOLDER}.new"
    processor = _load_processor(run, run.output)
    tokens = _get_tokenizer(processor)(_TEXT, return_tensors="pt").input_ids
    changed = _merge_layers(run, processor, written)
    needed = sum(path.stat().st_size for path in written.glob("*.safetensors")) + _MEMORY_OF_CHECK
    available = measure_available_memory()
    if not changed:
        checked = _check(run, _merge_model(run, processor, tokens, written), tokens, written)
    elif needed <= available:
        checked = _check(run, _compute_logits(_load_adapted(run, processor), tokens), tokens, written)
    else:
        checked = (
            f"each of its {changed} changed tensors is that of base model and adapter; logits were not compared, which "
            f"needs {needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are available"
        )
    processor.save_pretrained(written)
    shutil.rmtree(folder, ignore_errors=True)
    written.rename(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kB on Linux
    return f"{folder} contains the merged model; {checked}, peak memory {peak:.1f} GB"


def _merge_layers(run: TrainingRun, processor: Any, written: Path) -> int:
    """Merge one layer at a time, and return the number of changed tensors.

    It is 0 if the merge needs the whole model. The log says why.
    """
    _make_empty(written)
    try:
        from trainjob.frameworks.fine_tuning.layer_merging import merge_layers  # transformers 4 lacks a part

        model = _load_model(run, run.model, device_map="meta")
        if _count_tokens(run, processor) > model.get_input_embeddings().num_embeddings:
            raise LookupError("the training added embeddings")
        print("merging the adapter into a copy of the base model, one layer at a time", flush=True)
        changed = merge_layers(model, run.output, run.model, written)
    except (MergeError, OSError):
        raise
    except Exception as reason:  # noqa: BLE001 - the forms of weights in files are many, and internals of libraries
        print(f"the merge loads the whole base model: {reason}", flush=True)
        return 0
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(written)
    own_code = run.model.rglob("*.py") if getattr(model.config, "auto_map", None) else ()
    for path in (*run.model.glob("generation_config.json"), *own_code):
        target = written / path.relative_to(run.model)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return changed


def _merge_model(run: TrainingRun, processor: Any, tokens: Any, written: Path) -> Any:
    """Merge all layers at once, and return the logits of base model and adapter."""
    _make_empty(written)
    adapted = _load_adapted(run, processor)
    expected = _compute_logits(adapted, tokens)
    adapted.merge_and_unload(safe_merge=True).save_pretrained(written)
    return expected


def _load_adapted(run: TrainingRun, processor: Any) -> Any:
    return load_adapter(_load_base_model(run, processor), run.output)


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _check(run: TrainingRun, expected: Any, tokens: Any, written: Path) -> str:
    """Compare the logits of the merged model, and return the result for the log."""
    gc.collect()
    merged = _load_model(run, written)
    difference = _compare(expected, _compute_logits(merged, tokens), merged.dtype)
    return f"its logits differ by {difference:.1e}"


def _count_tokens(run: TrainingRun, processor: Any) -> int:
    """Return the number of tokens of the trained model; 0 if the training added none."""
    vocabulary, of_base = (len(_get_tokenizer(each)) for each in (processor, _load_processor(run, run.model)))
    return vocabulary if vocabulary > of_base else 0


def _load_base_model(run: TrainingRun, processor: Any) -> Any:
    """Return the base model, with an embedding for each token that the training added.

    If the adapter changes one of two tied layers, they are separated, because the training did not change the other.
    """
    model = _load_model(run, run.model)
    if (vocabulary := _count_tokens(run, processor)) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(vocabulary)
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is not None and head.weight is embeddings.weight:
        names = [name for name, module in model.named_modules() if module in (embeddings, head)]
        if _has_lora_of(run.output, names):
            head.weight = torch.nn.Parameter(head.weight.detach().clone())
            for config in (model.config, model.config.get_text_config()):
                config.tie_word_embeddings = False
    return model


def _load_model(run: TrainingRun, folder: Path, **more: Any) -> Any:
    """Return the model in a folder.

    It is of the class that was trained.
    """
    options: dict[str, Any] = {"dtype": "auto", "trust_remote_code": run.trusts_remote_code, **more}
    if run.method == "reward":
        return transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, **options)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=run.trusts_remote_code)
    kind = getattr(transformers, (config.architectures or [""])[0], None)
    if kind is None:  # the model's own code
        name = "AutoModelForImageTextToText"
        known = getattr(config, "auto_map", None) or {}
        kind = getattr(transformers, name if name in known else "AutoModelForCausalLM")
    return kind.from_pretrained(folder, **options)


def _load_processor(run: TrainingRun, folder: Path) -> Any:
    """Return the processor in a folder; it is a tokenizer for models of text only."""
    is_multimodal = any((folder / name).is_file() for name in _PROCESSOR_FILES)
    kind = transformers.AutoProcessor if is_multimodal else transformers.AutoTokenizer
    return kind.from_pretrained(folder, trust_remote_code=run.trusts_remote_code)


def _get_tokenizer(processor: Any) -> Any:
    return getattr(processor, "tokenizer", processor)


def _has_lora_of(adapter: Path, names: list[str]) -> bool:
    """Return whether an adapter has a low-rank update of one of these layers."""
    with safe_open(adapter / "adapter_model.safetensors", "pt") as weights:
        return any(f".{name}.lora_" in key for key in weights.keys() for name in names)  # noqa: SIM118 - no dict


def _compute_logits(model: Any, tokens: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits.float()


def _compare(expected: Any, found: Any, dtype: torch.dtype) -> float:
    """Return the relative difference of two models' logits.

    Raises:
        MergeError: it is too large, or a logit is not finite.
    """
    difference: float = ((found - expected).square().mean().sqrt() / expected.square().mean().sqrt()).item()
    tolerance = _TOLERANCE_16_BITS if torch.finfo(dtype).bits <= 16 else _TOLERANCE
    if not difference <= tolerance:  # NaN, too
        raise MergeError(
            f"the logits of the merged model differ by {difference:.1e} of those of base model and adapter; "
            f"in {dtype} at most {tolerance:g} is allowed"
        )
    return difference
