"""Output folders like those of TorchTune 0.6.1 and TRL 1.16, with weights of a few bytes."""

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


def make_trl_run(
    output: Path,
    *,
    adapter: bool = False,
    merged: bool = False,
    shards: int = 1,
    base: str = "/workspace/model",
    **record: object,
) -> Path:
    """Create the output of a finished TRL run, with checkpoints and files about the training.

    Args:
        output: the output folder.
        adapter: whether the run trained an adapter instead of all weights.
        merged: whether an adapter run saved the merged model, too.
        shards: number of weights files of the model.
        base: base model that the adapter names.
        **record: values of `trainjob_run.json` that replace the usual ones.
    """
    for step in (20, 44):
        write(output / f"checkpoint-{step}" / "model.safetensors", safetensors({"w": b"step"}))
        write(output / f"checkpoint-{step}" / "optimizer.pt", "optimizer")
    for name in ("runs/events.out.tfevents", "logs/rank-0.txt", "other-run/config.json", "completions/1.parquet"):
        write(output / name, "about the training")
    for name in ("training_args.bin", "trainer_state.json", "train_results.json", "README.md"):
        write(output / name, "about the training")
    if adapter:
        write(output / "adapter_model.safetensors", safetensors({"lora": b"lora" * 4}))
        write(output / "adapter_config.json", json.dumps({"r": 8, "base_model_name_or_path": base}))
        _write_trl_tokenizer(output)
    if not adapter or merged:
        make_trl_model(output / "merged" if adapter else output, shards=shards)
    write_trl_record(output, adapter=adapter, **record)
    return output


def make_trl_model(folder: Path, *, shards: int = 1) -> None:
    """Create a model as `save_pretrained` of transformers 5 writes it."""
    write(folder / "config.json", json.dumps({"model_type": "llama", "dtype": "float32"}))
    write(folder / "generation_config.json", "saved generation_config.json")
    _write_trl_tokenizer(folder)
    if shards == 1:
        write(folder / "model.safetensors", safetensors({"w": b"tune" * 4}))
        return
    names = [f"model-{shard:05}-of-{shards:05}.safetensors" for shard in range(1, shards + 1)]
    for name in names:
        write(folder / name, safetensors({name: b"tune" * 4}))
    index = {"metadata": {}, "weight_map": {name: name for name in names}}
    write(folder / "model.safetensors.index.json", json.dumps(index))


def _write_trl_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        write(folder / name, f"saved {name}")


def write_trl_record(output: Path, **values: object) -> None:
    usual = {
        "framework": "trl",
        "framework_version": "1.16.0",
        "method": "sft",
        "model": "tiny",
        "owner": "c0ffee",
        "complete": True,
        "parameters": {"learning_rate": 2e-5, "max_length": None, "model_name_or_path": "/workspace/model"},
        "metrics": {"loss": 0.56, "train_runtime": 9.8},
        "step": 44,
        "epoch": 4.0,
        "adapter": False,
    }
    write(output / "trainjob_run.json", json.dumps({**usual, **values}))


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, by relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
