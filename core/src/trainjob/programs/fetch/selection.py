"""Choice of the files of an address that a fetch takes."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence

from trainjob.errors import FetchError

__all__ = ["choose_files", "describe_choice"]

# transformers 5.23 reads safetensors, or without them pytorch_model*.bin and adapter_model.bin (modeling_utils.py).
_SAFETENSORS = (".safetensors", ".safetensors.index.json")
_PICKLED = (".bin", ".bin.index.json")
# Weights for other programs, and states for resuming a training. A `.bin` beside safetensors is one of them, too.
_OTHER_WEIGHTS = (
    *(".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".gguf", ".ggml", ".onnx", ".onnx_data", ".tflite"),
    *(".mlmodel", ".pdparams", ".nemo", ".npz", ".engine"),
)
# Folders that contain the same model for another program, also in safetensors. Their other files are fetched: TorchTune
# reads original/tokenizer.model (torchtune 0.6.1).
_OTHER_PROGRAMS = ("original", "metal", "onnx", "openvino", "coreml")
_ORIGINAL_OF_MISTRAL = "consolidated*.safetensors"
_LONGEST_LIST = 6  # names in a line of the log


def choose_files(kind: str, paths: Collection[str], ignore_patterns: Sequence[str], origin: str) -> list[str]:
    """Return the paths of the files to fetch, in order.

    These are all files but those that match a pattern. Without patterns, a model's weights in other formats than
    safetensors are left out, if it has safetensors.

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
        raise FetchError(f"{origin} has no file to fetch; it has {_join(sorted(paths)) or 'none'}")
    return sorted(chosen)


def describe_choice(chosen: Collection[str], all_paths: Iterable[str]) -> list[str]:
    """Return lines for the log about files that were left out, and about programs."""
    left_out = sorted(set(all_paths) - set(chosen))
    code = sorted(path for path in chosen if path.endswith(".py"))
    lines = [f"{len(left_out)} files are left out: {_join(left_out)}"] if left_out else []
    return lines + ([f"the model has its own code, which runs only if a step trusts it: {_join(code)}"] if code else [])


def _matches(path: str, pattern: str) -> bool:
    return fnmatch.fnmatch(path, f"{pattern}*" if pattern.endswith("/") else pattern)


def _leave_out_other_weights(paths: Collection[str], origin: str) -> list[str]:
    usual = [path for path in paths if path.split("/")[0] not in _OTHER_PROGRAMS or not _is_weights(path)]
    safetensors = [path for path in usual if path.endswith(_SAFETENSORS)]
    of_mistral = fnmatch.filter(safetensors, _ORIGINAL_OF_MISTRAL)
    if len(of_mistral) < len(safetensors):
        usual = [path for path in usual if path not in of_mistral]
    read = _SAFETENSORS if safetensors else _PICKLED
    if not any(path.endswith(read[0]) for path in usual):
        weights = sorted(path for path in paths if _is_weights(path))
        raise FetchError(
            f"{origin} has no weights that transformers reads; it has {_join(weights or sorted(paths))}",
            hint="name a repository with *.safetensors; with ignore_patterns, all files but those are fetched",
        )
    return [path for path in usual if path.endswith(read) or not _is_weights(path)]


def _is_weights(path: str) -> bool:
    return path.endswith((*_SAFETENSORS, *_PICKLED, *_OTHER_WEIGHTS))


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LONGEST_LIST} more" if len(names) > _LONGEST_LIST else ""
    return ", ".join(names[:_LONGEST_LIST]) + more
