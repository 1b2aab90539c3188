"""Preparation of a dataset's rows for training, with the library `datasets`.

The fetched files are read as `load_dataset` reads them. The rows are written as JSON Lines, which every framework
reads.
"""

from __future__ import annotations

from trainjob.programs.fetch.rows.prepare import prepare_rows

__all__ = ["prepare_rows"]
