"""Output folder of any training, which its command line identifies."""

from __future__ import annotations

from collections.abc import Sequence

from trainjob.spec.volumes import WORKSPACE

NAMES = "TorchTune, TRL, LLaMA-Factory or Unsloth"
"""Names of the frameworks whose output is known, for messages."""
_BUILTIN_COMMAND = ["tune", "run"]
_PROGRAMS = {f"trainjob.frameworks.{name}.pod" for name in ("trl", "llamafactory", "unsloth")}
_OPTION = "--output"
_TORCHTUNE_KEY = "output_dir="


def find_output_folder(words: Sequence[str]) -> str | None:
    """Return the output folder of a training, as its containers see it.

    Args:
        words: command and arguments of the trainer.

    Returns:
        The folder. It is empty if the runtime determines it, on a claim that belongs to the TrainJob alone. None means
        that the command is not that of a known framework.
    """
    if _PROGRAMS.intersection(words) and _OPTION in words:
        following = words[words.index(_OPTION) + 1 :]
        return following[0] if following else None
    if "tune" not in words:
        return None
    folders = [word.removeprefix(_TORCHTUNE_KEY) for word in words if word.startswith(_TORCHTUNE_KEY)]
    return folders[-1] if folders and list(words) != _BUILTIN_COMMAND else ""


def path_below_output(folder: str) -> str | None:
    """Return a folder's path below `/workspace/output`; None if it lies elsewhere."""
    root = f"{WORKSPACE}/output"
    if folder != root and not folder.startswith(f"{root}/"):
        return None
    return folder.removeprefix(root).strip("/")
