"""Identity of a training's input files by their content, for the owner of its checkpoints.

The same files have the same identity on another volume, and after they are fetched again. A digest is read from, in
this order: the file `trainjob_inputs.json` in the output folder, if the size and modification time of the file are
the same as when it was read; the record of a fetch, if the file has not changed after it; and the file itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainjob.frameworks.durable_files import read_object, write_text
from trainjob.programs.fetch.record import RECORD_FILE, read_record

__all__ = ["DIGESTS_FILE", "identify_inputs"]

DIGESTS_FILE = "trainjob_inputs.json"
"""File in an output folder with size, modification time and SHA-256 of each input file, by its path."""
_WORKERS = 4
_BLOCK = 1 << 20  # bytes


def identify_inputs(inputs: Sequence[Path], output: Path) -> dict[str, str]:
    """Return a digest of each input's files, names and contents, by `files of NAME`.

    Hidden files and folders do not count.

    Args:
        inputs: folders or files that the training reads.
        output: folder of the training, which keeps the digests; it is created.

    Raises:
        OSError: a file cannot be read, or the folder cannot be written.
    """
    files = {root: sorted(_list_files(root)) for root in inputs}
    known, recorded = read_object(output / DIGESTS_FILE), _read_records(inputs)

    def digest(path: Path) -> tuple[str, list[object]]:
        found = path.stat()
        state = [found.st_size, found.st_mtime_ns]
        kept = known.get(str(path))
        if isinstance(kept, list) and kept[:2] == state and len(kept) == 3:
            return str(path), kept
        size, written, sha256 = recorded.get(path, (-1, 0, ""))
        is_recorded = size == found.st_size and found.st_ctime_ns <= written
        return str(path), [*state, sha256 if is_recorded else _hash_file(path)]

    with ThreadPoolExecutor(_WORKERS) as workers:
        digests = dict(workers.map(digest, {path for paths in files.values() for path in paths}))
    if digests != known:
        output.mkdir(parents=True, exist_ok=True)
        write_text(output / DIGESTS_FILE, json.dumps(digests, indent=1, sort_keys=True))
    return {f"files of {root.name}": _hash_names(root, paths, digests) for root, paths in files.items()}


def _hash_names(root: Path, paths: Sequence[Path], digests: Mapping[str, list[object]]) -> str:
    lines = [f"{path.relative_to(root)}\0{digests[str(path)][2]}\0" for path in paths]
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]


def _read_records(inputs: Sequence[Path]) -> dict[Path, tuple[int, int, str]]:
    """Return size, time of the record in ns, and SHA-256 of the files in records."""
    found = {}
    for folder in {folder for root in inputs for folder in (root, *root.parents)}:
        with contextlib.suppress(OSError):
            written = (folder / RECORD_FILE).stat().st_mtime_ns
            record = read_record(folder)
            for file in record.files.values() if record.complete else ():
                found[folder / file.path] = (file.size, written, file.sha256)
    return {path: entry for path, entry in found.items() if entry[2]}


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _list_files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".")]
        yield from (path for name in names if not name.startswith(".") and (path := Path(folder, name)).is_file())
