"""Local Python environments that replace container images.

The laptop cluster pulls no images. A container runs with the programs of a Python environment on this machine. These
environments replace the images of Kubeflow Trainer and its runtimes:

* `torchtune-trainer` (torch, torchtune, torchao): an environment with torchtune.
* `pytorch/pytorch` (torch): the environment with TRL if it is given, otherwise the one with torchtune. Both have torch.
* `dataset-initializer` and `model-initializer`: an environment with huggingface_hub and opendal, plus this package's
  `pkg.initializers`, which has the Trainer's module names, environment variables and folders.

Source: Trainer 2.3 `cmd/trainers/torchtune`, `cmd/initializers/{dataset,model}`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Image", "default_images", "find_image", "images_from_json", "images_to_json"]

_TORCHTUNE_ENV = {
    "TIKTOKEN_CACHE_DIR": "",  # tiktoken caches by path: a second model there would get the first model's tokenizer
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_TRL_ENV = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
_PLAIN_ENV = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_INITIALIZER_ENV = {"PYTHONUNBUFFERED": "1", "WORKSPACE": "/workspace"}


@dataclass(frozen=True)
class Image:
    """The local replacement of images whose name matches.

    Attributes:
        match: regular expression that is searched in the image's name.
        environment: folder whose `bin` comes first in PATH, such as a virtual environment; None for no folder.
        entrypoint: command of a container that has no command.
        env: environment variables; the container's own variables take precedence.
        python_path: folders that come first in PYTHONPATH.
        prefix: words before every command, such as `["nice"]`.
        missing: reason why containers of this image cannot start; empty if they can.
    """

    match: str
    environment: Path | None = None
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    prefix: tuple[str, ...] = ()
    missing: str = ""

    def problem(self) -> str:
        """Return the reason why containers of this image cannot start, or an empty string."""
        if self.missing or self.environment is None or (self.environment / "bin").is_dir():
            return self.missing
        return (
            f"the environment {self.environment} for images that match {self.match!r} has no folder bin; "
            "pass the folder of another environment"
        )


def find_image(images: Sequence[Image], name: str) -> Image:
    """Return the first replacement that matches an image's name, or an empty one if none does."""
    return next((image for image in images if re.search(image.match, name)), Image(match=""))


def default_images(environments: Mapping[str, Path] | None = None) -> tuple[Image, ...]:
    """Return the replacements of the Trainer's images and of images named by an environment.

    The environments `initializer` and `torchtune` replace the Trainer's images. If one of the two is not given, this
    interpreter's environment is used instead, provided that it has the packages. If it lacks them, containers of these
    images do not start, and the error names the packages to install. Containers of `pytorch` images still start, in
    this interpreter's environment.

    The environment `trl` replaces `pytorch` images and images with that word in their name. A training with TRL then
    installs no packages, because it finds TRL in its image. Without this environment, the environment `torchtune`
    replaces `pytorch` images. An environment with another name, such as `xgboost`, replaces images with that word in
    their name. This interpreter's environment replaces all other images.

    Args:
        environments: folders of environments by name.
    """
    given = dict(environments or {})
    initializer = given.pop("initializer", None) or _own_environment("huggingface_hub", "opendal")
    torchtune = given.pop("torchtune", None) or _own_environment("torch", "torchtune")
    trl = given.pop("trl", None)
    here = Path(sys.prefix)
    python_path = (Path(__file__).parent / "image_files",)
    return (
        *(
            Image(
                match=rf"\b{kind}-initializer\b",
                environment=initializer,
                entrypoint=("python", "-m", f"pkg.initializers.{kind}"),
                env=_INITIALIZER_ENV,
                python_path=python_path,
                missing="" if initializer else _missing_message("initializer", "huggingface_hub opendal"),
            )
            for kind in ("dataset", "model")
        ),
        Image(
            match=r"\btorchtune-trainer\b",
            environment=torchtune,
            env=_TORCHTUNE_ENV,
            missing="" if torchtune else _missing_message("torchtune", "torch torchtune torchao==0.15.0"),
        ),
        *([Image(match=r"\b(trl|pytorch)\b", environment=trl, env=_TRL_ENV)] if trl else []),
        # Most commands in this image need no torch. A command that needs it fails with its own message.
        Image(match=r"\bpytorch\b", environment=torchtune or here, env=_TORCHTUNE_ENV),
        *(Image(match=rf"\b{re.escape(name)}\b", environment=folder, env=_PLAIN_ENV) for name, folder in given.items()),
        Image(match="", environment=here),
    )


def images_to_json(images: Sequence[Image]) -> str:
    """Return descriptions of images as JSON, for another process."""
    return json.dumps([asdict(image) for image in images], default=str)


def images_from_json(text: str) -> tuple[Image, ...]:
    """Return the descriptions of images in a JSON text.

    Args:
        text: a list of objects with the fields of `Image`, of which only `match` is required.

    Raises:
        ValueError: the text is not such a list.
    """
    found = json.loads(text)
    if not isinstance(found, list):
        # The content of a file is wrong, not the type of an argument.
        raise ValueError("expected a JSON list of images")  # noqa: TRY004
    return tuple(_image_from_dict(one) for one in found)


def _image_from_dict(fields: dict[str, Any]) -> Image:
    unknown = set(fields) - set(Image.__dataclass_fields__)
    if unknown or "match" not in fields:
        raise ValueError(
            f"an image needs the field 'match' and may have {sorted(Image.__dataclass_fields__)}, got {sorted(fields)}"
        )
    environment = fields.get("environment")
    return Image(
        match=fields["match"],
        environment=Path(environment) if environment else None,
        entrypoint=tuple(fields.get("entrypoint", ())),
        env=fields.get("env", {}),
        python_path=tuple(Path(folder) for folder in fields.get("python_path", ())),
        prefix=tuple(fields.get("prefix", ())),
        missing=fields.get("missing", ""),
    )


def _own_environment(*packages: str) -> Path | None:
    return Path(sys.prefix) if all(importlib.util.find_spec(name) for name in packages) else None


def _missing_message(name: str, packages: str) -> str:
    return (
        f"no local environment stands for this image: create one (python -m venv DIR; DIR/bin/pip install {packages}) "
        f"and pass it when the cluster starts: environments={{'{name}': 'DIR'}} or --environment {name}=DIR"
    )
