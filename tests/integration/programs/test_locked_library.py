"""A library whose import fails once is imported by the next try."""

from __future__ import annotations

import sys

import pytest

from trainjob.programs.locked_library import import_library

PARTLY = """
from . import first
import os
if not os.path.exists({mark!r}):
    open({mark!r}, "w").close()
    raise OSError("the temporary folder is not writable")
"""


def test_a_partial_import_is_forgotten(tmp_path, monkeypatch):
    package = tmp_path / "tracker_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text(PARTLY.format(mark=str(tmp_path / "mark")))
    (package / "first.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OSError, match="not writable"):
        import_library(package.name, "no.lock")
    assert [name for name in sys.modules if name.startswith(package.name)] == []
    assert import_library(package.name, "no.lock").first
