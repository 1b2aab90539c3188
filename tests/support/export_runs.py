"""Output folders like those of TorchTune 0.6.1, with weights of a few bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I8": 1}


def safetensors(tensors: dict[str, bytes], dtype: str = "F32") -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, data in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": [len(data) // SIZES[dtype]],
            "data_offsets": [end, end + len(data)],
        }
        end += len(data)
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + b"".join(tensors.values())


def make_model(folder: Path) -> Path:
    """Create a base model as the model initializer downloads it, and return its folder."""
    write(folder / "config.json", json.dumps({"model_type": "llama", "torch_dtype": "float32"}))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "original/tokenizer.model"):
        write(folder / name, f"content of {name}")
    write(folder / "model.safetensors", safetensors({"w": b"base" * 4}))
    write(folder / ".cache" / "huggingface" / "x.metadata", "cache")
    return folder


def make_epoch(
    output: Path,
    epoch: int,
    *,
    shards: int = 1,
    dtype: str = "F32",
    seed: str = "a",
    adapter: bool = False,
    size: int = 64,
) -> Path:
    """Create a complete epoch folder; `seed` and `epoch` make the weights differ."""
    folder = output / f"epoch_{epoch}"
    weight_map = {}
    for shard in range(1, shards + 1):
        name = f"model-{shard:05}-of-{shards:05}.safetensors"
        content = (f"{seed}{epoch}{shard}".encode() * size)[: size // 4 * 4]
        write(folder / name, safetensors({f"layer{shard}": content}, dtype))
        (folder / name).chmod(0o600)
        weight_map[f"layer{shard}"] = name
    write(folder / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": weight_map}))
    if adapter:
        make_adapter(folder)
    write(folder / "config.json", json.dumps({"model_type": "llama", "torch_dtype": "float32"}))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "original/tokenizer.model"):
        write(folder / name, f"content of {name}")
    return folder


def make_adapter(folder: Path) -> None:
    write(folder / "adapter_model.safetensors", safetensors({"lora": b"lora" * 4}, "BF16"))
    write(folder / "adapter_model.pt", "pickle")
    write(folder / "adapter_config.json", json.dumps({"r": 8, "peft_type": "LORA"}))


def make_run(output: Path, epochs: int = 2, **options: object) -> Path:
    """Create the output of a finished run.

    The configuration is written before the epochs, as TorchTune does.
    """
    write_config(output, epochs=epochs)
    for epoch in range(epochs):
        make_epoch(output, epoch, **options)  # type: ignore[arg-type]
    write(
        output / "logs" / "log_1700000000.txt", "Step 1 | loss:2.5 lr:0.1 \nStep 8 | loss:0.25 lr:0.1 grad_norm:nan \n"
    )
    write(output / "recipe_state" / "recipe_state.pt", "state")
    return output


def write_config(
    output: Path, *, epochs: int, adapter_only: bool = False, resumed: bool = False, modified_at: float = 0
) -> None:
    lines = ["output_dir: /workspace/output", "checkpointer:", "  epochs: 77", f"epochs: {epochs}"]
    lines += [
        f"save_adapter_weights_only: {str(adapter_only).lower()}",
        f"resume_from_checkpoint: {str(resumed).lower()}",
    ]
    path = output / "torchtune_config.yaml"
    write(path, "\n".join(lines) + "\n")
    if modified_at:
        os.utime(path, (modified_at, modified_at))


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, by relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
