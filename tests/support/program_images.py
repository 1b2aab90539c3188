"""Images that contain `trainjob`, as environments of a laptop cluster."""

from __future__ import annotations

import shutil
from pathlib import Path

from trainjob_local.images import Image

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = "registry.example"


def create_program_images(folder: Path) -> tuple[Image, ...]:
    """Return images for the environments of the steps, with `trainjob` in a folder.

    The image `registry.example/ENVIRONMENT:1` has the packages of the environment and `trainjob`, but none of the
    packages that `trainjob` needs to submit. The image `registry.example/plain:1` lacks `trainjob`.
    """
    shutil.copytree(ROOT / "core" / "src" / "trainjob", folder / "trainjob")
    env = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false", "TIKTOKEN_CACHE_DIR": ""}
    names = ("initializer", "torchtune", "trl", "llamafactory")
    return (
        Image(match=rf"^{REGISTRY}/plain:1$", environment=ROOT / ".venv" / "initializer"),
        *(
            Image(match=rf"^{REGISTRY}/{name}:1$", environment=ROOT / ".venv" / name, env=env, python_path=(folder,))
            for name in names
        ),
    )
