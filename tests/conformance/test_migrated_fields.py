"""A PyTorchJob with every field, as a whole and in parts: its conversions are accepted, and get Jobs."""

from __future__ import annotations

import pytest

from tests.conformance.test_migrated import create_runtimes, list_warnings
from tests.support.polling import wait_until
from tests.unit.migrate.v1_jobs import CONTAINER, POD, every_field, pytorch_job
from trainjob.manifest import Dialect
from trainjob_migrate import convert

VOLUMES = {"volumes": POD["volumes"]}
COMMAND = ["python", "train.py"]


def jobs_by_field():
    """Return one job for each field of a pod and of a container.

    Another job has nearly all fields.
    """
    found = {f"pod {field}": pytorch_job(command=COMMAND, pod={field: value}) for field, value in POD.items()}
    for field, value in CONTAINER.items():
        pod = VOLUMES if field.startswith("volume") else None
        found[f"container {field}"] = pytorch_job(pod=pod, **{"command": COMMAND, field: value})
    every = every_field()
    every["spec"].pop("elasticPolicy")
    return {**found, "every field": every}


def test_every_field_is_accepted_after_conversion(client, namespace, target):
    """A PyTorchJob with any field of a pod or container is accepted after its conversion, and gets a Job."""
    dialect = Dialect.V2_2 if target.trainer >= (2, 2) else Dialect.V2_1
    conversions = {}
    for number, (name, job) in enumerate(jobs_by_field().items()):
        job["metadata"] = {**job["metadata"], "name": f"job-{number}", "namespace": namespace, "ownerReferences": None}
        conversions[name] = convert(job, dialect=dialect)
    assert [name for name, one in conversions.items() if one.blockers] == []
    create_runtimes(client, namespace, conversions.values())
    for conversion in conversions.values():
        job = conversion.train_job
        client.create({**job, "spec": {**job["spec"], "suspend": True}}, namespace, fieldValidation="Strict")
    names = {one.train_job["metadata"]["name"]: name for name, one in conversions.items()}

    def missing():
        found = {job["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for job in client.list("Job", namespace)}
        return {name: field for name, field in names.items() if name not in found}

    try:
        wait_until(lambda: not missing(), 300)
    except AssertionError:
        pytest.fail(str({field: list_warnings(client, namespace, name) for name, field in missing().items()}))
