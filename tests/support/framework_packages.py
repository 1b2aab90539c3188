"""The example framework `line_framework`, as an installed package with an entry point."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.uv import UV
from trainjob.framework_modules import list_modules, load_modules
from trainjob.frameworks.log_parser import _broken, _list_parsers
from trainjob.packing import pack_sources
from trainjob.spec import framework_packages

__all__ = [
    "SOURCE",
    "forget_frameworks",
    "install_line_framework",
    "install_package",
    "line_framework",
    "line_framework_folder",
]

SOURCE = Path(__file__).with_name("line_framework")


def install_line_framework(folder: Path) -> Path:
    """Install the example package, and return the folder for `sys.path`."""
    return install_package(SOURCE, folder)


def install_package(source: Path, folder: Path) -> Path:
    """Install a package without its dependencies, and return the folder for `sys.path`."""
    command = [UV, "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def forget_frameworks() -> None:
    """Make this process look for the frameworks of other packages again."""
    for function in (framework_packages.load_framework, list_modules, load_modules, _list_parsers, pack_sources):
        function.cache_clear()
    _broken.clear()


@pytest.fixture(scope="module")
def line_framework_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the package is installed."""
    return install_line_framework(tmp_path_factory.mktemp("packages"))


@pytest.fixture
def line_framework(line_framework_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the package to this process during a test."""
    monkeypatch.syspath_prepend(str(line_framework_folder))
    forget_frameworks()
    yield
    forget_frameworks()
    for name in [name for name in sys.modules if name.partition(".")[0] == "line_framework"]:
        monkeypatch.delitem(sys.modules, name)
