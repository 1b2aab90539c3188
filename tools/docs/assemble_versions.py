"""The published site: one folder for each minor release, `dev` for this checkout, and the list of them.

Usage: assemble_versions.py SITE FOLDER

SITE is the site of this checkout, as `make docs VERSIONED=1` builds it. Each release, a tag such as `v0.2.1`, is
checked out and built by its own `make docs`; of the releases of one minor version, only the newest is published. The
theme's selector reads `versions.json` (format of mike 2). The address without a version leads to the newest release, or
to `dev`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
_DEVELOPMENT = "dev"
_REDIRECT = """\
<!doctype html>
<meta charset="utf-8"><title>trainjob</title><meta http-equiv="refresh" content="0; url={}/">
"""


def find_newest_patches(tags: Iterable[str]) -> list[str]:
    """Return the newest release of each minor version; leave out other tags."""
    numbers = sorted(tuple(map(int, match.groups())) for tag in tags if (match := _RELEASE.fullmatch(tag)))
    newest = {number[:2]: number for number in numbers}
    return ["v" + ".".join(map(str, number)) for number in sorted(newest.values(), reverse=True)]


def describe_versions(releases: list[str]) -> list[dict[str, object]]:
    """Return the selector's entries for releases and the development version."""
    entries: list[dict[str, object]] = [
        {"version": _name_folder(release), "title": release.removeprefix("v"), "aliases": ["latest"] if first else []}
        for release, first in zip(releases, [True, *[False] * len(releases)], strict=False)
    ]
    return [*entries, {"version": _DEVELOPMENT, "title": "dev (not released)", "aliases": []}]


def _name_folder(release: str) -> str:
    return release.removeprefix("v").rpartition(".")[0]


def _build_release(release: str, target: Path) -> None:
    """Build the site of a release in a worktree, and copy it."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        subprocess.run(["git", "worktree", "add", "--detach", str(checkout), release], cwd=ROOT, check=True)
        try:
            subprocess.run(["make", "docs", "VERSIONED=1"], cwd=checkout, check=True)
            shutil.copytree(checkout / ".cache/site/html", target)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(checkout)], cwd=ROOT, check=True)


def main(site: Path, folder: Path) -> None:
    """Write the site to a folder, which must not exist."""
    tags = subprocess.run(["git", "tag", "--list"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    releases = find_newest_patches(tags)
    shutil.copytree(site, folder / _DEVELOPMENT)
    for release in releases:
        _build_release(release, folder / _name_folder(release))
    versions = describe_versions(releases)
    (folder / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
    (folder / "index.html").write_text(_REDIRECT.format(versions[0]["version"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
