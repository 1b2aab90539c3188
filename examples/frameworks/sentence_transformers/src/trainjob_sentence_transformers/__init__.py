"""sentence-transformers as a training framework.

The package `pod` contains the code that runs in the training's pod. Names are imported on first use, because an image
with `pod` needs no pydantic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainjob_sentence_transformers.config import SentenceTransformersConfig

__all__ = ["SentenceTransformersConfig"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("trainjob_sentence_transformers.config"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
