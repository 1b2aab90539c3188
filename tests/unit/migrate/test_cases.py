"""Tests of published jobs, whose reviewed expected results are in files beside them."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.migrate.expected_results import CASES, expected_path, load_source, summarize
from trainjob.manifest import Dialect
from trainjob_migrate import Launch, Readiness, convert


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_its_expected_result(name):
    assert summarize(name) == yaml.safe_load(expected_path(name).read_text("utf-8"))


def test_the_published_examples_of_each_kind_are_cases():
    """The sources are training-operator 1.9, its notebooks and end-to-end tests, mpi-operator, and guides."""
    kinds = [load_source(name)["kind"] for name in CASES]
    published = [name for name, path in CASES.items() if path.read_text("utf-8").startswith("# kubeflow/")]
    assert len(published) >= 45
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "PyTorchJob": 31,
        "MPIJob": 13,
        "XGBoostJob": 9,
        "JAXJob": 5,
        "TFJob": 1,
        "PaddleJob": 1,
    }


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("launch", Launch)
def test_each_case_is_converted_or_refused_with_a_reason(dialect, launch):
    """The result is either a TrainJob or blockers with reasons, for each Trainer version and way to start it."""
    for name in CASES:
        found = convert(load_source(name), dialect=dialect, launch=launch)
        assert (found.train_job is None) == bool(found.blockers), name
        assert all(record.reason for record in found.blockers), name
        if found.train_job is None:
            assert found.runtime is None, name
            continue
        reference = found.train_job["spec"]["runtimeRef"]
        assert (reference["kind"] == "TrainingRuntime") == bool(found.runtime), name
        assert not found.runtime or reference["name"] == found.runtime["metadata"]["name"], name


@pytest.mark.parametrize(
    ("name", "readiness"),
    [("simple", Readiness.SIMPLE), ("standard", Readiness.STANDARD), ("complex", Readiness.COMPLEX)],
)
def test_the_readiness_of_one_case_per_class(name, readiness):
    assert convert(load_source(f"pytorch/class-{name}")).readiness is readiness
