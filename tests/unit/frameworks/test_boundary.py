"""Everything of a framework is in its package: the rest of the core names none."""

from __future__ import annotations

import re
from pathlib import Path

import trainjob
from trainjob.framework_modules import list_own_frameworks

CORE = Path(trainjob.__file__).parent
NAMES = re.compile(r"torch_?tune|(?<![a-z])trl(?![a-z])|llama-?_?factory|unsloth", re.IGNORECASE)
# The public names of the package.
EXEMPT = ("__init__.py",)


def test_the_frameworks_are_those_of_the_pattern():
    assert list_own_frameworks() == ("llamafactory", "torchtune", "trl", "unsloth")
    assert all(map(NAMES.search, list_own_frameworks()))


def test_no_other_module_names_a_framework():
    own = [CORE / "frameworks" / name for name in list_own_frameworks()]
    files = [path for path in CORE.rglob("*.py") if not any(path.is_relative_to(folder) for folder in own)]
    assert len(files) > 200
    found = [
        f"{path.relative_to(CORE)}:{number}: {line.strip()}"
        for path in sorted(files)
        if path.relative_to(CORE).as_posix() not in EXEMPT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NAMES.search(line)
    ]
    assert not found, "\n".join(found)
