"""Download the wheels of TRL's lock for a machine without network whose Python has torch.

Usage: wheels.py PYTHON VERSION FOLDER [NAME...]. PYTHON is an interpreter with pip, VERSION the minor version of the
machine's Python, such as 3.12, and FOLDER must not exist yet. The packages with these NAMEs are left out, because the
machine has them.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainjob.frameworks.trl.argument_table import TRL_VERSIONS

MAX_MIB = 60  # that are copied to the machine
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014", "manylinux1")


def select_requirements(lines: Collection[str], version: str, left_out: Collection[str]) -> Iterator[str]:
    """Yield the lines of a lock for a version of Python, without markers.

    pip evaluates markers for its own Python (pip 26.3), so that they would be wrong for another one.

    Args:
        lines: lines of a requirements file with hashes.
        version: the minor version, such as 3.12.
        left_out: normalized names of packages to leave out.
    """
    environment = {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
    }
    for line in lines:
        text, *hashes = line.split(" --hash=")
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) in left_out:
            continue
        if not requirement.marker or requirement.marker.evaluate(environment):
            yield " ".join([f"{requirement.name}{requirement.specifier}", *(f"--hash={each}" for each in hashes)])


def download(python: str, version: str, folder: Path, left_out: Collection[str]) -> None:
    """Download the wheels into a folder, and print their size.

    Raises:
        SystemExit: pip failed, or the wheels are too large.
    """
    lock = importlib.import_module(f"trainjob.frameworks.trl.pod.lock_{TRL_VERSIONS[-1].replace('.', '_')}")
    folder.mkdir(parents=True)
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(select_requirements(lock.REQUIREMENTS, version, left_out)), encoding="utf-8")
    platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_x86_64")]
    options = [
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--implementation=cp",
        "--python-version",
        version,
    ]
    command = [python, "-m", "pip", "download", "-q", *options, *platforms, "-d", str(folder), "-r", str(requirements)]
    if subprocess.run(command).returncode:
        raise SystemExit("pip failed: see its message above")
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.whl")}
    total = sum(sizes.values()) / 2**20
    print(
        f"{folder}: {len(sizes)} wheels for Python {version}, {total:.1f} MiB; left out: {', '.join(left_out) or '-'}"
    )
    if total > MAX_MIB:
        largest = ", ".join(sorted(sizes, key=sizes.__getitem__)[-4:])
        raise SystemExit(f"more than {MAX_MIB} MiB; the largest are {largest}")


if __name__ == "__main__":
    _python, _version, _folder, *_names = sys.argv[1:]
    download(_python, _version, Path(_folder), [canonicalize_name(name) for name in _names])
