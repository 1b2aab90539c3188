"""Each distribution promises the Pythons that `make versions` runs its tests on, and no others."""

from __future__ import annotations

import pytest
import tomllib
from versions import DISTRIBUTIONS, PYTHONS, ROOT, promised_pythons


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda distribution: distribution.name)
def test_requires_python_is_the_lowest_classifier(distribution):
    promised = promised_pythons(distribution)
    assert promised == list(PYTHONS[PYTHONS.index(promised[0]) :])
    text = (ROOT / distribution.folder / "pyproject.toml").read_text("utf-8")
    assert tomllib.loads(text)["project"]["requires-python"] == f">={promised[0]}"
