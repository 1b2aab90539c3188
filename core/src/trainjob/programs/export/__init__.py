"""Export of the final checkpoint of a training as a loadable Hugging Face folder.

It runs as a separate step, by default packed into a pod's command, in the Trainer's model-initializer image. The
modules of this package therefore use the standard library only. They import `huggingface_hub` and `opendal` only if a
destination needs them.
"""

from __future__ import annotations

from trainjob.programs.export.program import Export, export_model, main
from trainjob.programs.export.receipt import Receipt

__all__ = ["Export", "Receipt", "export_model", "main"]
