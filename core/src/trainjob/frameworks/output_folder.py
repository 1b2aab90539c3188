"""Output folder of any training, which its command line identifies."""

from __future__ import annotations

from collections.abc import Sequence

from trainjob.framework_modules import list_modules, load_modules
from trainjob.spec.volumes import WORKSPACE

_OPTION = "--output"


def find_output_folder(words: Sequence[str]) -> str | None:
    """Return the output folder of a training, as its containers see it.

    The program of a framework is its package `pod`, with the option `--output`.

    Args:
        words: command and arguments of the trainer.

    Returns:
        The folder. It is empty if the runtime determines it, on a claim that belongs to the TrainJob alone. None means
        that the command is not that of a known framework.
    """
    if not {*list_modules("pod")}.isdisjoint(words) and _OPTION in words:
        following = words[words.index(_OPTION) + 1 :]
        return following[0] if following else None
    found = (module.find_output_folder(words) for module in load_modules("builtin_trainer"))
    return next((folder for folder in found if folder is not None), None)


def path_below_output(folder: str) -> str | None:
    """Return a folder's path below `/workspace/output`; None if it lies elsewhere."""
    root = f"{WORKSPACE}/output"
    if folder != root and not folder.startswith(f"{root}/"):
        return None
    return folder.removeprefix(root).strip("/")
