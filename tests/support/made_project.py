"""A project of the shape of a public training repository: 170 files, a submodule, links, names in other scripts."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

_PACKAGES, _MODULES = 12, 8
MODULE = "acme.train"
"""Module of the project that checks what has arrived."""
_TRAIN = '''"""Check that all packages can be imported, and report what has arrived."""

import hashlib
import importlib
import os
import pathlib
import sys

import yaml_free.settings
from . import stage0

names = [f"acme.stage{number}.part{part}" for number in range(12) for part in range(8)]
total = sum(importlib.import_module(name).VALUE for name in names)
lines = []
for path in sorted(pathlib.Path().rglob("*"), key=lambda each: os.fsencode(each)):
    if "__pycache__" in path.parts or not (path.is_symlink() or path.is_file()):
        continue
    content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
    mode = "link" if path.is_symlink() else "x" if os.access(path, os.X_OK) else "-"
    lines.append(f"{path}|{mode}|{hashlib.sha256(content).hexdigest()}")
digest = hashlib.sha256("\\n".join(lines).encode()).hexdigest()
print(f"project {total} {len(lines)} files {digest} {yaml_free.settings.read('7')} {sys.argv[1:]}", flush=True)
'''


def make_project(folder: Path) -> str:
    """Create the project as a repository of git, and return what its module prints.

    That is one line for the arguments `--lr 1`, from the files that should arrive. Files that git ignores, and those of
    `.trainjobignore`, do not travel.
    """
    files = {
        ".gitignore": "*.ckpt\nruns/\n",
        ".trainjobignore": "docs/\n",
        "README.md": "# acme\n",
        "acme/__init__.py": "",
        "acme/train.py": _TRAIN,
        "yaml_free/__init__.py": "",
        "yaml_free/settings.py": "import pathlib\n\n\ndef read(name):\n"
        "    return (pathlib.Path(__file__).parent.parent / 'conf' / f'{name}.yaml').read_text().strip()\n",
        "数据/词汇表.txt": "一\n二\n",
        "models/naïve ☕/config.json": "{}",
        "scripts/run all.sh": "#!/bin/sh\nexec python -m acme.train\n",
        **{f"conf/{number}.yaml": f"lr: {number}\n" for number in range(30)},
        **{f"tests/data/{'deep/' * 30}{number}.json": "[]" for number in range(8)},
    }
    for stage in range(_PACKAGES):
        files[f"acme/stage{stage}/__init__.py"] = ""
        for part in range(_MODULES):
            before = f"from .part{part - 1} import VALUE as BEFORE\n" if part else "BEFORE = 0\n"
            files[f"acme/stage{stage}/part{part}.py"] = f"{before}VALUE = BEFORE + {stage}\n"
    left_out = {"last.ckpt": "x", "runs/events": "x", "docs/index.md": "# Docs\n"}
    _write(folder, {**files, **left_out})
    (folder / "scripts/run all.sh").chmod(0o755)
    (folder / "conf" / "latest.yaml").symlink_to("7.yaml")
    tools = {f"tool{number}.py": f"NUMBER = {number}\n" for number in range(12)}
    _write(folder.parent / "tools", tools)
    for repository in (folder.parent / "tools", folder):
        _git(repository, "init", "-q", "-b", "main")
        if repository == folder:
            _git(folder, "submodule", "--quiet", "add", str(folder.parent / "tools"), "third_party/tools")
        _git(repository, "add", "--all")
        _git(repository, "commit", "-qm", "first")
    files |= {f"third_party/tools/{name}": text for name, text in tools.items()}
    files[".gitmodules"] = (folder / ".gitmodules").read_text()
    return _describe(files)


def _describe(files: dict[str, str]) -> str:
    rows = {name: ("x" if name == "scripts/run all.sh" else "-", text) for name, text in files.items()}
    rows["conf/latest.yaml"] = ("link", "7.yaml")
    lines = [
        f"{name}|{mode}|{hashlib.sha256(text.encode()).hexdigest()}"
        for name, (mode, text) in sorted(rows.items(), key=lambda row: row[0].encode())
    ]
    total = sum(stage * (part + 1) for stage in range(_PACKAGES) for part in range(_MODULES))
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"project {total} {len(lines)} files {digest} lr: 7 ['--lr', '1']"


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def _git(folder: Path, *arguments: str) -> None:
    settings = ("user.name=me", "user.email=me@example.org", "protocol.file.allow=always")
    options = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(["git", "-C", folder, *options, *arguments], check=True)
