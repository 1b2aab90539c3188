"""Program that keeps the archives of projects in a workspace, for code that does not fit into a ConfigMap.

    python -m trainjob.programs.code_storage --sha256 DIGEST --folder /workspace/.trainjob/code [--parts FOLDER]

Without parts, the last line says whether the folder has the archive. The parts of an archive are the files of a mounted
volume, in the order of their names. The archive is complete when it appears under its name, so a killed program leaves
only a temporary file. Archives that were not requested for 30 days are removed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["EXISTS", "main"]

EXISTS = "code: the workspace has this code"
"""Line of the log if the folder has the archive."""
_VERSION_OPTION = "--trainjob-version"  # trainjob.version imports more than a packed program needs
_PIECE = 1 << 20
_DAY = 86_400.0  # seconds
_KEPT = 30 * _DAY
_PARTIAL = ".partial-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Find or store the archive, and return the exit code."""
    parser = argparse.ArgumentParser(description="Keep the archive of a project in a workspace.")
    parser.add_argument("--sha256", required=True, help="SHA-256 of the uncompressed archive")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the archives")
    parser.add_argument("--parts", type=Path, help="folder with the parts of the archive")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [_VERSION_OPTION]:
        from trainjob.version import check_version

        words = check_version(words)
    given = parser.parse_args(words)
    archive = given.folder / f"{given.sha256}.tar.gz"
    try:
        if _compute_digest([archive]) == given.sha256:
            os.utime(archive)  # it is in use
            print(EXISTS, flush=True)
            return 0
        if given.parts is None:
            print("code: the workspace does not have this code yet", flush=True)
            return 0
        size = _store(archive, sorted(given.parts.glob("[0-9]*")), given.sha256)
        print(f"code: stored {archive}, {size} bytes", flush=True)
        _remove_unused(given.folder)
    except OSError as error:
        print(f"code: failed: {archive} cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        return 1
    except ValueError as error:
        print(f"code: failed: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _store(archive: Path, parts: Sequence[Path], digest: str) -> int:
    """Write the parts to the archive, and return its size in bytes.

    Raises:
        ValueError: the parts are not those of the archive.
        OSError: the archive cannot be written.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    if _compute_digest(parts) != digest:
        raise ValueError("the parts of the archive are damaged: start the step again, which sends them again")
    handle, name = tempfile.mkstemp(prefix=_PARTIAL, dir=archive.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in _read(parts):
                file.write(piece)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        Path(name).rename(archive)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return archive.stat().st_size


def _compute_digest(files: Sequence[Path]) -> str:
    """Return the SHA-256 of an archive in files, uncompressed; empty if it is damaged."""
    digest, unpacking = hashlib.sha256(), zlib.decompressobj(wbits=31)
    try:
        for piece in _read(files):
            digest.update(unpacking.decompress(piece))
    except (FileNotFoundError, zlib.error):
        return ""
    return digest.hexdigest() if unpacking.eof else ""


def _read(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece


def _remove_unused(folder: Path) -> None:
    """Remove the archives that were not used for long, and what killed programs left."""
    now = time.time()
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < now - (_DAY if path.name.startswith(_PARTIAL) else _KEPT):
                path.unlink()


if __name__ == "__main__":
    sys.exit(main())
