"""Export: find the final checkpoint of a TorchTune run, make it one loadable Hugging Face folder, send it.

It runs as a step of its own, packed into a pod's command, in upstream's model-initializer image; so everything below
this package is the standard library, and `huggingface_hub` and `opendal` are imported where a destination needs them.
"""

from __future__ import annotations

from trainjob.programs.export.program import Export, export_model, main
from trainjob.programs.export.receipt import Receipt

__all__ = ["Export", "Receipt", "export_model", "main"]
