"""Source distributions: each archive can be extracted safely, and contains only its licence and sources."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MEMBERS = ("core", "laptop", "migrate", "demo", "providers/airflow", "components/kfp")
OTHER_FILES = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}


@pytest.fixture(scope="module", params=MEMBERS)
def member(request):
    """Return the folder of a distribution, relative to the repository's root."""
    return request.param


@pytest.fixture(scope="module")
def extracted_sources(member, tmp_path_factory):
    """Return the folder into which the source distribution was extracted, as by pip."""
    out = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", out]
    subprocess.run(command, cwd=ROOT / member, check=True, timeout=300)
    [archive] = out.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        # Refuses links that leave the archive. Python 3.11.3 and 3.10.11 have no filters yet.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(out)  # noqa: S202 - with this filter
    [folder] = [path for path in out.iterdir() if path.is_dir()]
    return folder


def test_licence_is_a_regular_file(extracted_sources):
    licence = extracted_sources / "LICENSE"
    assert not licence.is_symlink()
    assert licence.read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")


def test_metadata_names_licence_and_readme(extracted_sources):
    metadata = HeaderParser().parsestr((extracted_sources / "PKG-INFO").read_text("utf-8"))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (extracted_sources / "README.md").read_text("utf-8")


def test_readme_has_no_relative_links(extracted_sources):
    """A package index shows the README without the other files of the repository."""
    links = re.findall(r"\]\(([^)]+)\)", (extracted_sources / "README.md").read_text("utf-8"))
    assert [link for link in links if not link.startswith("https://")] == []


def test_archive_contains_only_sources(extracted_sources, member):
    assert [path for path in extracted_sources.rglob("*") if path.is_symlink()] == []
    found = {path.relative_to(extracted_sources).as_posix() for path in extracted_sources.rglob("*") if path.is_file()}
    files = (path for path in (ROOT / member / "src").rglob("*") if path.is_file())
    sources = (path for path in files if "__pycache__" not in path.parts)
    others = {path for path in found if not path.startswith("src/")}
    assert found - others == {path.relative_to(ROOT / member).as_posix() for path in sources}
    assert others - {"Containerfile"} == OTHER_FILES
