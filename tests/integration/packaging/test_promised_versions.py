"""Metadata of each distribution: it lists the Python versions with which `make versions` runs its tests."""

from __future__ import annotations

import pytest
import tomllib

from tests.integration.packaging.versions import DISTRIBUTIONS, PYTHONS, ROOT, promised_pythons


@pytest.mark.parametrize("folder", [folder for distribution in DISTRIBUTIONS for folder in distribution.folders])
def test_requires_python_is_the_lowest_classifier(folder):
    promised = promised_pythons(folder)
    assert promised == list(PYTHONS[PYTHONS.index(promised[0]) :])
    text = (ROOT / folder / "pyproject.toml").read_text("utf-8")
    assert tomllib.loads(text)["project"]["requires-python"] == f">={promised[0]}"
