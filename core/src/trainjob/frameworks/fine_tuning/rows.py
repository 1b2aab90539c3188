"""Rows for training and evaluation, as the library `datasets` reads them from the workspace."""

from __future__ import annotations

from pathlib import Path

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk

from trainjob.frameworks.fine_tuning.dataset_files import list_row_files
from trainjob.frameworks.fine_tuning.training_run import TrainingRun

__all__ = ["load_rows"]


def load_rows(run: TrainingRun) -> DatasetDict:
    """Return the rows with the method's names of columns, as the splits `train` and `test`.

    Raises:
        InvalidSpec: a folder has no rows for training.
    """
    paths = {"train": run.dataset, **({"test": run.eval_dataset} if run.eval_dataset else {})}
    renamed = {theirs: ours for ours, theirs in run.columns.items()}
    return DatasetDict({split: _load(path).rename_columns(renamed) for split, path in paths.items()})


def _load(path: Path) -> Dataset:
    """Return the rows of a file, a folder or a saved dataset.

    Only the files of the training's split are read, because another split may have other columns.
    """
    files = list_row_files(path)
    if not files[0].loader:
        return load_from_disk(str(files[0].path))
    return load_dataset(str(files[0].folder), data_files=[file.pattern for file in files], split="train")
