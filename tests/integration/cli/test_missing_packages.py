"""Errors about packages that are not installed: each names the package and the page that shows how to install it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainjob.installation import INSTALLATION_PAGE

PROGRAMS = {
    "the command without its extra": (
        "typer",
        "import sys; from trainjob.cli import main; sys.argv = ['trainjob', '--help']; main()",
        "the extra `cli`",
    ),
    "the laptop cluster": ("trainjob_local", "import trainjob.local", "needs the package trainjob-local"),
}


@pytest.mark.parametrize(("missing", "program", "words"), PROGRAMS.values(), ids=PROGRAMS)
def test_the_error_names_the_package_and_the_page(missing, program, words):
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {missing!r}: raise ModuleNotFoundError('No module named ' + name, name=name)\n"
        f"sys.meta_path.insert(0, Missing())\n{program}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert words in done.stderr
    assert INSTALLATION_PAGE in done.stderr
