"""Jobs as people publish them: what becomes of each stands beside it, and was looked at."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.migrate.expected_results import CASES, expected_path, load_source, summarize
from trainjob.manifest import Dialect
from trainjob_migrate import Launch, Readiness, convert


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_it(name):
    assert summarize(name) == yaml.safe_load(expected_path(name).read_text("utf-8"))


def test_all_that_is_published_is_here():
    """Each kind's public examples: training-operator 1.9, its notebooks and end-to-end tests, mpi-operator, guides."""
    kinds = [load_source(name)["kind"] for name in CASES]
    published = [name for name, path in CASES.items() if path.read_text("utf-8").startswith("# kubeflow/")]
    assert len(published) >= 45
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "PyTorchJob": 30,
        "MPIJob": 12,
        "XGBoostJob": 9,
        "JAXJob": 5,
        "TFJob": 1,
        "PaddleJob": 1,
    }


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("launch", Launch)
def test_each_is_made_or_refused_with_a_reason(dialect, launch):
    """For each Trainer and way to start it: a TrainJob, or lines that say why not; never both, never nothing."""
    for name in CASES:
        found = convert(load_source(name), dialect=dialect, launch=launch)
        assert (found.train_job is None) == bool(found.blockers), name
        assert all(line.reason for line in found.blockers), name
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
def test_the_classes(name, readiness):
    assert convert(load_source(f"pytorch/class-{name}")).readiness is readiness
