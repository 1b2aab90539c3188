"""Local Python environments that replace container images.

A container runs with the programs of a Python environment on this machine. The images of Kubeflow Trainer and its
runtimes have environments that are created on first use (`trainjob_local.environments`):

* `initializer` replaces `dataset-initializer` and `model-initializer`: huggingface_hub and opendal, plus this package's
  `pkg.initializers`, which has the Trainer's module names, environment variables and folders.
* `torchtune` replaces `torchtune-trainer`: torch, torchtune, torchao.
* `trl` replaces `pytorch/pytorch`: torch, transformers, TRL.
* `llamafactory` replaces `hiyouga/llamafactory`: torch, LLaMA-Factory and an older TRL.
* No environment replaces `unsloth/unsloth`, because Unsloth trains on GPUs only. Its containers do not start.
* `runtimes` replaces `xgboost-runtime`, `jax` and `deepspeed-runtime`: XGBoost, JAX, an mpirun.

Source: Trainer 2.3 `cmd/trainers/torchtune`, `cmd/initializers/{dataset,model}`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob_local.environments import EnvironmentLock, stock_locks

__all__ = ["Image", "default_images", "find_image", "images_from_json", "images_to_json"]

_TORCHTUNE_ENV = {
    "TIKTOKEN_CACHE_DIR": "",  # tiktoken caches by path: a second model there would get the first model's tokenizer
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_TRAINING_ENV = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
_PLAIN_ENV = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_INITIALIZER_ENV = {"PYTHONUNBUFFERED": "1", "WORKSPACE": "/workspace"}
_UNSLOTH_REFUSAL = (
    "the laptop cluster has no environment for Unsloth, which trains on GPUs only; on a machine with a GPU, name one: "
    "--environment unsloth=FOLDER"
)


@dataclass(frozen=True)
class Image:
    """The local replacement of images whose name matches.

    Attributes:
        match: regular expression that is searched in the image's name.
        environment: folder whose `bin` comes first in PATH, such as a virtual environment; None for no folder.
        lock: packages of the environment that is created on first use; ignored if `environment` is given.
        entrypoint: command of a container that has no command.
        env: environment variables; the container's own variables take precedence.
        python_path: folders that come first in PYTHONPATH.
        prefix: words before every command, such as `["nice"]`.
        refusal: reason why no container of such an image can start; empty if they can.
    """

    match: str
    environment: Path | None = None
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    prefix: tuple[str, ...] = ()
    lock: EnvironmentLock | None = None
    refusal: str = ""

    def problem(self) -> str:
        """Return the reason why containers of this image cannot start, or an empty string."""
        if self.refusal or self.environment is None or (self.environment / "bin").is_dir():
            return self.refusal
        return (
            f"the environment {self.environment} for images that match {self.match!r} has no folder bin; "
            "pass the folder of another environment"
        )


def find_image(images: Sequence[Image], name: str) -> Image:
    """Return the first replacement that matches an image's name, or an empty one if none does."""
    return next((image for image in images if re.search(image.match, name)), Image(match=""))


def default_images(environments: Mapping[str, Path] | None = None) -> tuple[Image, ...]:
    """Return the replacements of the stock images and of images named by an environment.

    Each stock image has an environment: the given one; otherwise this interpreter's, if it has the packages; otherwise
    one that is created on first use. The names are `initializer`, `torchtune`, `trl`, `llamafactory` and `runtimes`. If
    `torchtune` is given and `trl` is not, `torchtune` also replaces `pytorch` images.

    An environment with another name, such as `xgboost`, replaces images with that word in their name. This
    interpreter's environment replaces all other images.

    Args:
        environments: folders of environments by name.
    """
    given = dict(environments or {})
    torchtune = _Source("torchtune", given.pop("torchtune", None))
    initializer = _Source("initializer", given.pop("initializer", None))
    trl = _Source("trl", given.pop("trl", None))
    llamafactory = _Source("llamafactory", given.pop("llamafactory", None))
    runtimes = _Source("runtimes", given.pop("runtimes", None))
    python_path = (Path(__file__).parent / "image_files",)
    return (
        *(
            initializer.image(
                rf"\b{kind}-initializer\b",
                ("huggingface_hub", "opendal"),
                entrypoint=("python", "-m", f"pkg.initializers.{kind}"),
                env=_INITIALIZER_ENV,
                python_path=python_path,
            )
            for kind in ("dataset", "model")
        ),
        torchtune.image(r"\btorchtune-trainer\b", ("torch", "torchtune"), env=_TORCHTUNE_ENV),
        *(Image(match=rf"\b{re.escape(name)}\b", environment=folder, env=_PLAIN_ENV) for name, folder in given.items()),
        *([torchtune.image(r"\bpytorch\b", (), env=_TORCHTUNE_ENV)] if torchtune.given and not trl.given else []),
        trl.image(r"\bpytorch\b", ("torch",), env=_TRAINING_ENV),
        trl.image(r"\btrl\b", ("torch", "trl"), env=_TRAINING_ENV),
        llamafactory.image(r"\bllamafactory\b", ("torch", "llamafactory"), env=_TRAINING_ENV),
        Image(match=r"\bunsloth\b", refusal=_UNSLOTH_REFUSAL),
        runtimes.image(r"\bxgboost-runtime\b", ("xgboost",), env=_PLAIN_ENV),
        runtimes.image(r"\bjax\b", ("jax",), env=_PLAIN_ENV),
        runtimes.image(r"\bdeepspeed-runtime\b", ("mpi4py",), env=_PLAIN_ENV),
        Image(match="", environment=Path(sys.prefix)),
    )


@dataclass(frozen=True)
class _Source:
    """The environments that may replace a stock image.

    Attributes:
        name: name of the lock.
        given: folder of the environment that the user named; None if there is none.
    """

    name: str
    given: Path | None

    def image(self, match: str, packages: tuple[str, ...], **settings: Any) -> Image:
        """Return the replacement of the images whose name matches.

        Args:
            match: regular expression.
            packages: modules that this interpreter's environment must have to replace the image.
            settings: other fields of the image.
        """
        if self.given:
            return Image(match, self.given, **settings)
        if all(importlib.util.find_spec(name) for name in packages):
            return Image(match, Path(sys.prefix), **settings)
        return Image(match, lock=stock_locks()[self.name], **settings)


def images_to_json(images: Sequence[Image]) -> str:
    """Return descriptions of images as JSON, for another process."""
    return json.dumps([_image_to_dict(image) for image in images], default=str)


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


def _image_to_dict(image: Image) -> dict[str, Any]:
    fields = {name: getattr(image, name) for name in Image.__dataclass_fields__}
    return {**fields, "lock": image.lock.to_json() if image.lock else None}


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
        refusal=fields.get("refusal", ""),
        lock=EnvironmentLock.from_json(fields["lock"]) if fields.get("lock") else None,
    )
