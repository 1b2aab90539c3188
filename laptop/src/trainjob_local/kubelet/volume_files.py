"""Files of a Secret's, a ConfigMap's or the downward API's volume, which all change at once.

Source: Kubernetes 1.36 `pkg/volume/util/atomic_writer.go`. Earlier files stay until the pod has ended. A real kubelet
removes them, but the mount of a subPath keeps its file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["replace_files"]

_DATA = "..data"  # link to the folder with the present files


def replace_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the files of a volume those that are given.

    Args:
        folder: folder of the volume.
        files: contents by path below the folder.
    """
    data = folder / _DATA
    if data.exists() and _read_files(data) == files:
        return
    version = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    for name, contents in files.items():
        target = version / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents)
    new = folder / "..data_tmp"
    new.symlink_to(version.name)
    new.replace(data)
    visible = {Path(name).parts[0] for name in files}
    for name in visible:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{_DATA}/{name}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in visible:
            entry.unlink()


def _read_files(top: Path) -> dict[str, bytes]:
    root = top.resolve()
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
