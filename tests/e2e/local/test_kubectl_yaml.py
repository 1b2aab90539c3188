"""The recorded answers of kubectl to unusual YAML are those of the real kubectl."""

from __future__ import annotations

from tests.support.yaml_corpus import read_with_kubectl, recorded_answers


def test_the_recorded_answers_are_those_of_kubectl(kubectl_program):
    assert read_with_kubectl(kubectl_program, list(recorded_answers())) == recorded_answers()
