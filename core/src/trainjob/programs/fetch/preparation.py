"""Request to prepare a dataset's rows for training, and the places of the files.

The program [trainjob.programs.fetch.rows][] does the work. It is packed only for a step that prepares rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from trainjob.programs.fetch.record import RECORD_FOLDER, RecordedFile

__all__ = ["EVAL_FILE", "SOURCE_FOLDER", "TRAIN_FILE", "WORK_FOLDER", "Preparation", "add_options", "parse_options"]

SOURCE_FOLDER = "source"
"""Folder of the fetched files, if their rows are prepared."""
WORK_FOLDER = f"{RECORD_FOLDER}/rows"
"""Folder of temporary files while rows are prepared, on the same volume as the files."""
TRAIN_FILE, EVAL_FILE = "data/train.jsonl", "eval/eval.jsonl"
"""Files with the prepared rows."""
_OPTIONS = {
    "subset": "configuration in the README.md of the dataset",
    "split": "rows for training, in the notation of datasets; by default train, or the only split",
    "eval_split": "rows for evaluation, in the same notation",
}
_VERSION = 1  # changes if the same request gives other files


@dataclass(frozen=True)
class Preparation:
    """Request to write rows as JSON Lines.

    Attributes:
        subset: configuration in the dataset's README.md; empty means the default.
        split: rows for training, in the notation of `datasets`; empty means `train`, or the only split.
        eval_split: rows for evaluation, in the same notation; may be empty.
        eval_fraction: share of the rows for training that is held out for evaluation; may be 0.
        columns: names of the dataset's columns by their new names.
    """

    subset: str = ""
    split: str = ""
    eval_split: str = ""
    eval_fraction: float = 0.0
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files with prepared rows."""
        return (TRAIN_FILE, EVAL_FILE) if self.eval_split or self.eval_fraction else (TRAIN_FILE,)

    def compute_mark(self, sources: Iterable[RecordedFile]) -> str:
        """Return the mark of the files that this request makes of the fetched files."""
        files = sorted((file.path, file.sha256) for file in sources)
        text = json.dumps([_VERSION, asdict(self), files], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a preparation to a program."""
    for name, text in _OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default="", help=text)
    parser.add_argument(
        "--eval-fraction", type=float, default=0.0, help="share of the rows for training that is held out instead"
    )
    parser.add_argument(
        "--columns", type=json.loads, default={}, help="JSON object with the dataset's columns by their new names"
    )


def parse_options(given: argparse.Namespace) -> Preparation | None:
    """Return the preparation that a program's options request; None without any of them."""
    request = Preparation(given.subset, given.split, given.eval_split, given.eval_fraction, given.columns)
    return request if request != Preparation() else None
