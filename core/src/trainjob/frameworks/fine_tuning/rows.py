"""Rows for training and evaluation, as the library `datasets` reads them from the workspace."""

from __future__ import annotations

from pathlib import Path

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.dataset_files import LOADERS, get_suffix, is_saved_dataset
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

    In a folder, the names of files determine the split, such as train-00000-of-00001.parquet. The split `train` is
    taken, or the only one that exists.
    """
    if is_saved_dataset(path):
        found = load_from_disk(str(path))
    elif path.is_file():
        return load_dataset(LOADERS[get_suffix(path)], data_files=str(path), split="train")
    else:
        found = load_dataset(str(path))
    if isinstance(found, Dataset):
        return found
    if "train" in found:
        return found["train"]
    if len(found) == 1:
        return next(iter(found.values()))
    rule = f"it has the splits {', '.join(found)}, and none is train: name one file"
    raise InvalidSpec(Problem("dataset_path", str(path), rule))
