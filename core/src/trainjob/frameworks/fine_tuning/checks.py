"""Checks of a model's folder and of installed packages, before torch is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.durable_files import read_object

__all__ = [
    "check_model",
    "check_package",
    "get_version",
    "has_chat_template",
    "lacks_padding",
    "list_versions",
]

# Classes of tokenizers without special tokens of their own (transformers 5.23, tokenization_utils_tokenizers.py).
_PLAIN_TOKENIZERS = ("PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend")


def check_model(folder: Path, field: str) -> None:
    """Refuse a folder that contains no model.

    Args:
        folder: the folder.
        field: field of the request that names the folder.

    Raises:
        InvalidSpec: the folder does not exist or has no configuration of a model.
    """
    if not (folder / "config.json").is_file():
        parent = folder if folder.is_dir() else folder.parent
        names = ", ".join(sorted(path.name for path in parent.iterdir())[:12]) if parent.is_dir() else "nothing"
        rule = f"it must be the folder of a model with config.json; {parent} contains {names or 'nothing'}"
        raise InvalidSpec(Problem(field, str(folder), rule))


def check_package(framework: str, title: str, version: str, advice: str, reported: Sequence[str]) -> None:
    """Refuse an image without a framework's version, and print the versions in it.

    Args:
        framework: name of the framework and of its package.
        title: name of the framework for messages.
        version: the version that the request was checked for.
        advice: the rule for an image without the framework.
        reported: names of the packages to print.

    Raises:
        InvalidSpec: the image has another version, or none.
    """
    found = get_version(framework)
    if not found:
        raise InvalidSpec(Problem("image", "the image of this pod", advice))
    if found != version:
        rule = f"the image has {title} {found}: use an image with {title} {version}"
        raise InvalidSpec(Problem(f"config.{framework}_version", repr(version), rule))
    print(f"{framework}: the image contains {list_versions(*reported)}", flush=True)


def has_chat_template(model: Path) -> bool:
    """Return whether the tokenizer in a model's folder has a chat template."""
    if any((model / name).exists() for name in ("chat_template.jinja", "chat_template.json", "chat_templates")):
        return True
    return bool(read_object(model / "tokenizer_config.json").get("chat_template"))


def lacks_padding(model: Path) -> bool:
    """Return whether a model's tokenizer has no token for padding, and none for the end."""
    known = {**read_object(model / "special_tokens_map.json"), **read_object(model / "tokenizer_config.json")}
    is_plain = known.get("tokenizer_class") in _PLAIN_TOKENIZERS
    return is_plain and not (known.get("pad_token") or known.get("eos_token"))


def get_version(package: str) -> str:
    """Return the version of an installed package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def list_versions(*packages: str) -> str:
    """Return the names and versions of those packages that are installed, for the log."""
    return ", ".join(f"{name} {found}" for name in packages if (found := get_version(name)))
