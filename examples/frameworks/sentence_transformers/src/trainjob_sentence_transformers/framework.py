"""Implementation of `trainjob.spec.framework.Framework` for sentence-transformers."""

from __future__ import annotations

from trainjob.frameworks.workspace_framework import WorkspaceFramework
from trainjob.spec.framework import Framework
from trainjob_sentence_transformers.arguments import build_program_arguments
from trainjob_sentence_transformers.config import SentenceTransformersConfig

FRAMEWORK: Framework = WorkspaceFramework(
    "sentence-transformers",
    SentenceTransformersConfig,
    "trainjob_sentence_transformers.pod",
    build_program_arguments,
)
