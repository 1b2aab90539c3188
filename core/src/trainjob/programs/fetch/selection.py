"""Choice of the files of an address that a fetch takes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath

from trainjob.errors import FetchError
from trainjob.programs.fetch.names import join_names
from trainjob.programs.fetch.progress import format_size

__all__ = ["choose_files", "describe_choice", "is_weights"]

# transformers 5.23 reads safetensors, or without them pytorch_model*.bin and adapter_model.bin (modeling_utils.py).
_SAFETENSORS = (".safetensors", ".safetensors.index.json")
_PICKLED = re.compile(r"(?:diffusion_)?(?:pytorch|adapter)_model.*\.bin(?:\.index\.json)?")
# Weights for other programs, and states for resuming a training.
_OTHER_WEIGHTS = (
    *(".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".gguf", ".ggml", ".onnx", ".onnx_data", ".tflite"),
    *(".mlmodel", ".pdparams", ".nemo", ".npz", ".engine"),
)
_OTHER_BINARIES = re.compile(r"(?:model|optimizer|ggml.*)\.bin")  # CTranslate2, accelerate, whisper.cpp
# Folders that contain the same model for another program, also in safetensors. Their other files are fetched, such as
# original/tokenizer.model, which some frameworks read.
_OTHER_PROGRAMS = ("original", "metal", "onnx", "openvino", "coreml")
_ORIGINAL_OF_MISTRAL = "consolidated*.safetensors"


def choose_files(kind: str, paths: Collection[str], ignore_patterns: Sequence[str], origin: str) -> list[str]:
    """Return the paths of the files to fetch, in order.

    These are all files but those that match a pattern. Without patterns, a model's weights in other formats than
    safetensors are left out, in each folder that has safetensors.

    Args:
        kind: `dataset` or `model`.
        paths: the paths of all files.
        ignore_patterns: patterns of files to leave out, as of a shell; `*` matches `/`, too.
        origin: the address, for messages.

    Raises:
        FetchError: there is no file to fetch, or a model has no weights that transformers reads.
    """
    if ignore_patterns:
        chosen = [path for path in paths if not any(_matches(path, pattern) for pattern in ignore_patterns)]
    else:
        chosen = _leave_out_other_weights(paths, origin) if kind == "model" and paths else list(paths)
    if not chosen:
        raise FetchError(f"{origin} has no file to fetch; it has {join_names(sorted(paths)) or 'none'}")
    return sorted(chosen)


def describe_choice(kind: str, chosen: Collection[str], sizes: Mapping[str, int]) -> list[str]:
    """Return lines for the log about files that were left out, missing weights, and programs.

    Args:
        kind: `dataset` or `model`.
        chosen: the paths of the files to fetch.
        sizes: size of each file in bytes, also of those that are left out.
    """
    left_out, code = sorted(set(sizes) - set(chosen)), sorted(path for path in chosen if path.endswith(".py"))
    lines = []
    if left_out:
        size = format_size(sum(sizes[path] for path in left_out))
        lines.append(f"left out, {size}: {join_names(left_out)}")
    if kind == "model" and not any(map(_is_read, chosen)):
        lines.append("ignore_patterns leave no weights that transformers reads")
    if code:
        lines.append(f"the {kind} has its own code, which runs only if a step trusts it: {join_names(code)}")
    return lines


def is_weights(path: str) -> bool:
    """Return whether a file has weights, of any program, is their index, or a state."""
    path = path.removesuffix(".index.json")
    name = PurePosixPath(path).name
    in_other_program = path.endswith(".bin") and path.split("/")[0] in _OTHER_PROGRAMS
    return _is_read(path) or in_other_program or path.endswith(_OTHER_WEIGHTS) or bool(_OTHER_BINARIES.fullmatch(name))


def _matches(path: str, pattern: str) -> bool:
    return fnmatch.fnmatch(path, f"{pattern}*" if pattern.endswith("/") else pattern)


def _leave_out_other_weights(paths: Collection[str], origin: str) -> list[str]:
    usual = [path for path in paths if path.split("/")[0] not in _OTHER_PROGRAMS or not is_weights(path)]
    of_mistral = set(fnmatch.filter(usual, _ORIGINAL_OF_MISTRAL))
    if any(path.endswith(_SAFETENSORS[0]) for path in set(usual) - of_mistral):
        usual = [path for path in usual if path not in of_mistral]
    with_safetensors = {_folder(path) for path in usual if path.endswith(_SAFETENSORS[0])}
    chosen = [
        path
        for path in usual
        if path.endswith(_SAFETENSORS)
        or not is_weights(path)
        or (_is_read(path) and _folder(path) not in with_safetensors)
    ]
    if not any(map(_is_read, chosen)):
        weights = sorted(path for path in paths if is_weights(path))
        raise FetchError(
            f"{origin} has no weights that transformers reads; it has {join_names(weights or sorted(paths))}",
            hint="name a repository or folder with *.safetensors",
        )
    return chosen


def _is_read(path: str) -> bool:
    """Return whether transformers reads a file as weights."""
    return path.endswith(_SAFETENSORS) or bool(_PICKLED.fullmatch(PurePosixPath(path).name))


def _folder(path: str) -> PurePosixPath:
    return PurePosixPath(path).parent
