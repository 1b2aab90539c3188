"""Merge of an adapter into the files of its base model, one layer at a time.

peft computes each merged weight, in a model whose other weights are not loaded. So a model of any size needs memory
for one layer and the adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora.layer import ParamWrapper
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper, ModulesToSaveWrapper
from transformers.core_model_loading import revert_weight_conversion

from trainjob.errors import MergeError
from trainjob.frameworks.fine_tuning.adapter_loading import load_adapter
from trainjob.frameworks.fine_tuning.weight_files import WeightFiles

__all__ = ["merge_layers"]

_ADAPTER = "default"  # peft's name for an adapter that was loaded without one


def merge_layers(model: Any, adapter: Path, folder: Path, copy: Path) -> int:
    """Write a copy of a base model's weights, with the adapter merged.

    Each changed tensor is read again and compared after it was written.

    Args:
        model: the base model, with its weights on torch's device `meta`. Its configuration is changed if two weights
            were tied, and are not any more.
        adapter: folder of the adapter.
        folder: folder of the base model.
        copy: existing folder for the weights.

    Returns:
        The number of changed tensors.

    Raises:
        MergeError: a part of the adapter is not loaded, or a weight is not finite, or not in the file as it was
            written.
        LookupError: the files do not contain the weights in the model's form, or the adapter needs the whole model.
        OSError: a file cannot be read or written.
    """
    base, tied = WeightFiles.find(folder), _find_tied(model)
    for layer in model.modules():
        _unload(layer)
    adapted = load_adapter(model, adapter, torch_device="cpu", low_cpu_mem_usage=True)
    _check_adapter(adapted.peft_config[_ADAPTER])
    written, added, changed = base.copy(copy), {}, set()
    for name, value in _compute_weights(model, model, "", base, tied):
        if not value.isfinite().all():
            raise MergeError(f"the merged weight {name} is NaN or infinite")
        if name in base.files:
            _write(written, name, value, base.read(name))
        elif name in tied:
            added[name] = value.to(base.read(tied[name]).dtype).contiguous()
        else:  # the head of a reward model, or the files have names of an earlier release of the model
            raise LookupError(f"{name} is not in the files of the base model")
        changed.add(name)
    separated = _separate(tied, base, written, added, changed)
    if added:
        written.add(added)
    if separated:
        for config in (model.config, model.config.get_text_config()):
            config.tie_word_embeddings = False
    return len(changed)


def _check_adapter(config: Any) -> None:
    """Refuse adapters that are more than updates of layers.

    Raises:
        LookupError: the adapter is one of them.
    """
    if config.init_lora_weights not in (True, False, "gaussian"):
        raise LookupError("the adapter's first values were computed from the base model's weights")
    if config.bias != "none":
        raise LookupError("the training changed biases")
    if config.layer_replication:
        raise LookupError("the adapter repeats layers")


def _separate(
    tied: Mapping[str, str], base: WeightFiles, written: WeightFiles, added: dict[str, Any], changed: Set[str]
) -> bool:
    """Add each weight that was tied to one that has changed, unless they are still equal.

    Returns:
        Whether two weights are not tied any more.
    """
    for name, source in tied.items():
        if source in changed and name not in added:
            added[name] = base.read(source)
        if name in added and torch.equal(added[name], written.read(source)):
            del added[name]
    return not added.keys().isdisjoint(tied)


def _find_tied(model: Any) -> dict[str, str]:
    """Return the name in the files by the name of each weight that is tied to it."""
    names = {id(value): name for name, value in model.named_parameters()}
    return {
        _get_file_name(model, name, value): _get_file_name(model, names[id(value)], value)
        for name, value in model.named_parameters(remove_duplicate=False)
        if name != names[id(value)]
    }


def _unload(layer: Any) -> None:
    """Replace a layer's own weights by zeros that need no memory.

    peft would leave the adapter of a layer on the device `meta` there, without its values. The zeros have 32 bits,
    because peft loads the adapter in their data type, and a merge in it is rounded once.
    """
    for name, value in list(layer.named_parameters(recurse=False)):
        zeros = torch.zeros(1).expand(value.shape)
        setattr(layer, name, torch.nn.Parameter(zeros, requires_grad=False))


def _write(written: WeightFiles, name: str, value: Any, before: Any) -> None:
    """Replace a tensor by its merged value, and compare the file with it."""
    if value.shape != before.shape:
        raise LookupError(f"{name} has another size in the adapter")
    value = value.to(before.dtype)
    written.replace(name, value)
    if not torch.equal(written.read(name), value):
        raise MergeError(f"the merged weight {name} is not in its file as it was written")


def _compute_weights(
    model: Any, part: Any, prefix: str, base: WeightFiles, tied: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yield name in the files, and merged value, of each changed weight of a part."""
    for path, layer in _list_layers(part, prefix):
        if isinstance(layer, ParamWrapper):
            yield from _add_updates(model, path, layer, base, tied)
            continue
        if isinstance(layer, ModulesToSaveWrapper):
            merged = layer.modules_to_save[_ADAPTER]
        elif isinstance(layer, AuxiliaryTrainingWrapper):
            _load(model, path, _find_base_layer(layer), base, tied)
            merged = layer.unload_and_optionally_merge_module(merge=True, safe_merge=True, adapter_names=None)
        else:
            merged = layer.get_base_layer()
            _load(model, path, merged, base, tied)
            layer.merge(safe_merge=True)
        for name, value in merged.named_parameters():
            yield _get_file_name(model, f"{path}.{name}", value), value.detach()
        for each in merged.modules():
            _unload(each)


def _list_layers(module: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield name and layer of each layer that the adapter changes."""
    for name, child in module.named_children():
        if isinstance(child, BaseTunerLayer | AuxiliaryTrainingWrapper):
            yield f"{path}{name}", child
        else:
            yield from _list_layers(child, f"{path}{name}.")


def _find_base_layer(layer: Any) -> Any:
    while isinstance(layer, BaseTunerLayer | AuxiliaryTrainingWrapper):
        layer = layer.get_base_layer() if isinstance(layer, BaseTunerLayer) else layer.token_adapter
    return layer


def _load(model: Any, path: str, layer: Any, base: WeightFiles, tied: Mapping[str, str]) -> None:
    """Give a layer its weights."""
    for name, value in list(layer.named_parameters()):
        place = _get_file_name(model, f"{path}.{name}", value)
        loaded = base.read(tied.get(place, place)).to(value.dtype)
        owner, _, last = name.rpartition(".")
        setattr(layer.get_submodule(owner), last, torch.nn.Parameter(loaded, requires_grad=False))


def _add_updates(
    model: Any, path: str, layer: Any, base: WeightFiles, tied: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yield the merged weights of experts; one parameter is several tensors in the files."""
    while isinstance(layer, ParamWrapper):
        update = layer.get_delta_weight(_ADAPTER)
        for name, part in revert_weight_conversion(model, {f"{path}.{layer.parameter_name}": update}).items():
            yield name, base.read(name) + part
        layer = layer.base_layer
    yield from _compute_weights(model, layer, f"{path}.", base, tied)


def _get_file_name(model: Any, name: str, value: Any) -> str:
    """Return the name in the files of a weight of the model.

    Raises:
        LookupError: the files contain it in another form.
    """
    found = revert_weight_conversion(model, {name: value})
    if [*map(id, found.values())] != [id(value)]:
        raise LookupError(f"{name} is in the files in another form")
    return str(*found)
