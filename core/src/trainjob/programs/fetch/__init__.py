"""Fetch: bring a dataset or a model from a store into the workspace, whole, checked, and not twice.

It runs as a step of its own, packed into a pod's command, in upstream's initializer images, in place of their program:
that one can't pin a revision, fetches what is there already, and checks nothing (Trainer 2.3 pkg/initializers). So
everything below this package is the standard library, and `huggingface_hub` and `opendal` are imported where a store
needs them.
"""

from __future__ import annotations

from trainjob.programs.fetch.program import Fetch, fetch, main

__all__ = ["Fetch", "fetch", "main"]
