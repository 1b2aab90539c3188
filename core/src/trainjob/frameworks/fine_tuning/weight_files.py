"""Weights in the files of a model's folder (safetensors), read and replaced one tensor at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

__all__ = ["WeightFiles"]

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class WeightFiles:
    """The files with a model's weights.

    Attributes:
        folder: folder of the files.
        files: name of the file of each tensor, by the tensor's name.
    """

    folder: Path
    files: Mapping[str, str]

    @classmethod
    def find(cls, folder: Path) -> WeightFiles:
        """Return the weights in a folder.

        Raises:
            LookupError: there are none in this format.
            OSError: a file cannot be read.
        """
        if (folder / _SINGLE).is_file():
            with safe_open(folder / _SINGLE, "pt") as weights:
                return cls(folder, dict.fromkeys(weights.keys(), _SINGLE))
        if (folder / _INDEX).is_file():
            return cls(folder, json.loads((folder / _INDEX).read_bytes())["weight_map"])
        raise LookupError(f"{folder} contains neither {_SINGLE} nor {_INDEX}")

    def read(self, name: str) -> Any:
        """Return a tensor.

        Raises:
            LookupError: there is no such tensor.
        """
        with safe_open(self.folder / self.files[name], "pt") as weights:
            return weights.get_tensor(name)

    def copy(self, folder: Path) -> WeightFiles:
        """Return a copy of the files in another folder."""
        for name in {*self.files.values(), *([_INDEX] if (self.folder / _INDEX).is_file() else [])}:
            shutil.copyfile(self.folder / name, folder / name)
        return WeightFiles(folder, self.files)

    def replace(self, name: str, value: Any) -> None:
        """Replace a tensor by one of the same shape and data type, in its place in the file.

        Source: the format of safetensors: 8 bytes with the length of a JSON object, the object, the data.
        """
        with (self.folder / self.files[name]).open("r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            start, _ = json.loads(file.read(length))[name]["data_offsets"]
            file.seek(8 + length + start)
            file.write(value.contiguous().view(-1).view(torch.uint8).numpy().data)

    def add(self, tensors: Mapping[str, Any]) -> WeightFiles:
        """Return the files with further tensors, which are in a new file.

        All files get the names of transformers, because a folder with an index must have no `model.safetensors`.
        """
        names = sorted(set(self.files.values()))
        count = len(names) + 1
        new = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
        save_file(dict(tensors), self.folder / new[-1], metadata={"format": "pt"})
        renamed = dict(zip(names, new, strict=False))
        for name in reversed(names):  # a new name can be the old one of no later file
            (self.folder / name).rename(self.folder / renamed[name])
        files = {name: renamed[file] for name, file in self.files.items()} | dict.fromkeys(tensors, new[-1])
        size = sum((self.folder / name).stat().st_size for name in new)
        index = {"metadata": {"total_size": size}, "weight_map": files}
        (self.folder / _INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        return WeightFiles(self.folder, files)
