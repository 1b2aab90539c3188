"""Fetch of a dataset or a model from a store into the workspace: complete and checked.

It does not fetch files again that the workspace already has. It runs as a separate step, by default packed into a pod's
command, in the Trainer's initializer images, and replaces their program. That program cannot pin a revision, fetches
existing files again, and checks nothing (Trainer 2.3 pkg/initializers). The modules of this package use the standard
library only. They import `huggingface_hub` and `opendal` only if a store needs them.
"""

from __future__ import annotations

from trainjob.programs.fetch.program import Fetch, fetch, main

__all__ = ["Fetch", "fetch", "main"]
