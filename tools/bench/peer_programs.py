"""Programs that the benchmarks of stores are compared with, in versions that are pinned here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / ".cache" / "bench" / "programs"
_GO_PROGRAMS = {
    "s5cmd": ("github.com/peak/s5cmd/v2", "v2.3.0", ""),
    "versitygw": ("github.com/versity/versitygw", "v1.8.0", "/cmd/versitygw"),
}
_AWS_CLI = "1.46.3"


def find_program(name: str) -> Path:
    """Return the path of `s5cmd`, `versitygw` or `aws`; build or install it if needed."""
    found = _FOLDER / name if name in _GO_PROGRAMS else _FOLDER / "aws-cli" / "bin" / "aws"
    if found.exists():
        return found
    _FOLDER.mkdir(parents=True, exist_ok=True)
    if name in _GO_PROGRAMS:
        _build(found, *_GO_PROGRAMS[name])
    else:
        subprocess.run([sys.executable, "-m", "venv", _FOLDER / "aws-cli"], check=True)
        subprocess.run([found.with_name("pip"), "install", "-q", f"awscli=={_AWS_CLI}"], check=True)
    return found


def _build(program: Path, module: str, version: str, package: str) -> None:
    if not shutil.which("go"):
        sys.exit("this part needs Go: see https://go.dev/doc/install")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "go.mod").write_text(f"module bench\n\ngo 1.25\n\nrequire {module} {version}\n")
        command = ["go", "build", "-o", str(program), f"{module}{package}"]
        subprocess.run(command, cwd=folder, env={**os.environ, "GOFLAGS": "-mod=mod"}, check=True)
