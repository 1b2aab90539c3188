"""Check of Python's version and of the free disk before make creates environments, and a text that says what they cost.

make runs it with the user's Python in the folder of the Makefile, so it uses the standard library only, and Python 3.6
can read it.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Lowest Python, MB of the download and MB of disk of each environment, on Linux for x86_64, November 2026.
ENVIRONMENTS = {
    "core": ((3, 10), 130, 620),
    "initializer": ((3, 10), 120, 390),
    "torchtune": ((3, 10), 2860, 5300),
    "trl": ((3, 11), 2840, 5300),
    "llamafactory": ((3, 11), 3040, 5700),
    "lm_eval": ((3, 11), 2900, 5400),
    "sentence_transformers": ((3, 11), 2900, 5400),
    "runtimes": ((3, 10), 150, 600),
    "airflow": ((3, 11), 110, 600),
    "airflow-3.1": ((3, 11), 110, 600),
    "airflow-3.2": ((3, 11), 110, 600),
    "kfp": ((3, 10), 35, 230),
    "launcher": ((3, 10), 15, 120),
    "tracking": ((3, 10), 230, 900),
    "docs": ((3, 11), 30, 120),
    "dist": ((3, 10), 30, 120),
}


def main() -> None:
    """Print what the missing environments cost, or exit with why they can't be created."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", required=True, help="the user's command, for the texts")
    parser.add_argument("--python", required=True, help="the Python of the environments, as the user named it")
    parser.add_argument("names", nargs="+", help="the environments that the command needs")
    options = parser.parse_args()
    folder = Path.cwd() / ".venv"
    missing = [name for name in options.names if name in ENVIRONMENTS and not (folder / name / ".ready").exists()]
    if missing:
        cache = uv_cache()
        problem = find_python_problem(missing, options.command, options.python, sys.version_info[:3])
        problem = problem or find_disk_problem(missing, options.command, folder, cache)
        if problem:
            sys.exit(problem)
        print(describe_cost(missing, options.command, folder, cache), flush=True)


def find_python_problem(missing: "list[str]", command: str, python: str, version: "tuple[int, ...]") -> str:
    """Return why a Python is too old, and what to run instead; empty if it is not."""
    refusing = [name for name in missing if version < ENVIRONMENTS[name][0]]
    if not refusing:
        return ""
    lowest = max(ENVIRONMENTS[name][0] for name in refusing)
    installed = _find_python(lowest)
    lines = [
        f"{command} needs Python {lowest[0]}.{lowest[1]} or newer; {python} is {'.'.join(map(str, version))}",
        f"  -> {'use' if installed else 'install'} another one: {command} PYTHON={installed or 'python3.12'}",
    ]
    if refusing == ["airflow"] and command.startswith("make demo"):
        lines.append(f"  -> with Python {version[0]}.{version[1]}: {command.replace('demo', 'demo-kfp', 1)}")
    return "\n".join(lines)


def find_disk_problem(missing: "list[str]", command: str, folder: Path, cache: Path) -> str:
    """Return which disk has too little space for the environments; empty if none has.

    uv's cache has the files, too. On one file system, both have them as hard links. What the cache has is not
    downloaded again.
    """
    needed = sum(ENVIRONMENTS[name][2] for name in missing)
    places = {_device(place): place for place in (cache, folder)}
    for device, place in places.items():
        free = shutil.disk_usage(_existing(place)).free // 10**6
        cached = _megabytes_in(cache) if free < needed and device == _device(cache) else 0
        if free + cached < needed:
            return (
                f"{command} needs up to {format_size(needed)} of disk for {place}; {format_size(free)} are free\n"
                "  -> free some space; UV_CACHE_DIR selects another folder for the cache of downloaded packages"
            )
    return ""


def describe_cost(missing: "list[str]", command: str, folder: Path, cache: Path) -> str:
    """Return which environments will be created, where, and what they cost."""
    total = sum(ENVIRONMENTS[name][2] for name in missing)
    return "\n".join(
        [
            f"{command} creates these Python environments in {folder}, once:",
            *(f"  {name:<12} download of about {format_size(ENVIRONMENTS[name][1])}" for name in missing),
            f"They need up to {format_size(total)} of disk, with the packages that uv keeps in {cache}.",
            "To delete them: make clean",
        ]
    )


def uv_cache() -> Path:
    """Return the folder in which uv keeps downloaded packages."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("UV_CACHE_DIR") or Path(base) / "uv")


def format_size(megabytes: int) -> str:
    """Return a size in MB or GB."""
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes} MB"


def _find_python(lowest: "tuple[int, ...]") -> str:
    """Return the name of an installed Python of this version or newer; empty if there is none."""
    code = f"import sys; sys.exit(sys.version_info < {lowest})"
    for name in ("python3.13", "python3.12", "python3.11"):
        if shutil.which(name) and subprocess.call([name, "-c", code], stderr=subprocess.DEVNULL) == 0:
            return name
    return ""


def _device(place: Path) -> int:
    return _existing(place).stat().st_dev


def _existing(place: Path) -> Path:
    """Return a folder, or the nearest folder above it that exists."""
    return next(each for each in (place, *place.absolute().parents) if each.is_dir())


def _megabytes_in(folder: Path) -> int:
    """Return the size of a folder as `du` measures it, which counts a hard link once."""
    if not folder.is_dir():
        return 0
    done = subprocess.run(["du", "-sm", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return int(done.stdout.split()[0])


if __name__ == "__main__":
    main()
