"""Loading of an adapter, with a check that all of it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file

from trainjob.errors import MergeError

__all__ = ["load_adapter"]


def load_adapter(model: Any, folder: Path, **options: Any) -> Any:
    """Return a model with an adapter.

    peft only warns about tensors for which it finds no place, and begins their layers anew. With peft 0.21.2 and
    transformers 5.23 this happens to the shared experts of Laguna, whose names are changed twice.

    Args:
        model: the base model.
        folder: folder of the adapter.
        **options: options of `PeftModel.from_pretrained`.

    Raises:
        MergeError: a tensor of the adapter's file is not in the model.
        OSError: the file cannot be read.
    """
    adapted = PeftModel.from_pretrained(model, folder, **options)
    of_base = adapted.state_dict().keys()  # peft saves some weights of the base model, too
    saved = load_file(folder / "adapter_model.safetensors")
    expected = {name: value for name, value in saved.items() if name not in of_base}
    # peft may have rounded the tensors to the base model's data type before it enlarged them again.
    set_peft_model_state_dict(adapted, dict(expected))
    loaded = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    lost = [
        name
        for name, value in expected.items()
        # peft saves resized embeddings under a second name, which it does not load.
        if (not loaded[name].cpu().equal(value) if name in loaded else ".lora_" in name)
    ]
    if lost:
        raise MergeError(f"peft does not load {len(lost)} of the adapter's {len(expected)} tensors, such as {lost[0]}")
    return adapted
