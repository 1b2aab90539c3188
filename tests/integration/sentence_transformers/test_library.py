"""The package's tables and lock agree with the library of the environment."""

from __future__ import annotations

import json
import re

import pytest
from packaging.requirements import Requirement

from tests.integration.sentence_transformers.conftest import run_program
from tests.support.training_fixtures import ROOT


@pytest.mark.sentence_transformers
@pytest.mark.slow
def test_the_library_has_all_arguments_and_losses():
    from trainjob_sentence_transformers.argument_names import ARGUMENTS
    from trainjob_sentence_transformers.pod.losses import LOSSES

    known = json.loads(run_program("library_names.py"))
    assert {*ARGUMENTS} <= {*known["arguments"]}
    for name, loss in LOSSES.items():
        assert loss.arguments.keys() <= {*known["losses"][name]}


def test_the_configuration_names_each_loss():
    from typing import get_args

    from trainjob_sentence_transformers import SentenceTransformersConfig
    from trainjob_sentence_transformers.pod.losses import LOSSES

    assert get_args(SentenceTransformersConfig.model_fields["loss"].annotation) == tuple(LOSSES)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_lock_has_the_tested_versions(python):
    from trainjob_sentence_transformers.argument_names import VERSIONS
    from trainjob_sentence_transformers.pod.lock_6_2_0 import REQUIREMENTS

    text = (ROOT / "requirements" / "sentence_transformers.txt").read_text()
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    found = [Requirement(line.partition(" --hash=")[0]) for line in REQUIREMENTS]
    used = [each for each in found if not each.marker or each.marker.evaluate(environment)]
    names = [each.name for each in used]
    assert len(names) == len({*names})
    assert {"sentence-transformers", "transformers", "accelerate", "datasets"} <= {*names}
    assert "torch" not in names
    tested = {*re.findall(r"^([\w.-]+==\S+)", text, re.MULTILINE)}
    assert {f"{each.name}{each.specifier}" for each in used} <= tested
    assert f"sentence-transformers=={VERSIONS[-1]}" in tested
