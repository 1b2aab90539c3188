"""Property tests of MPIJobs, XGBoostJobs and JAXJobs, valid or not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.migrate.test_properties import ANYTHING, DIALECTS, SECRET, SLOW_DATA, jobs
from tests.unit.migrate.v1_jobs import every_field
from trainjob_migrate import FieldResult, convert
from trainjob_migrate.field_records import format_path, get_value, iterate_leaves

SENSIBLE, WILD = jobs(wild=False), jobs(wild=True)
KINDS = {
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", {}),
    "JAXJob": ("jaxReplicaSpecs", "jax", {}),
    "MPIJob": ("mpiReplicaSpecs", "pytorch", {"Master": "Launcher"}),
}
MPI = {
    "slotsPerWorker": st.integers(0, 4),
    "cleanPodPolicy": st.sampled_from(["None", "Running", "All"]),
    "mainContainer": st.sampled_from(["pytorch", "beside", ""]),
    "sshAuthMountPath": st.just("/home/mpiuser/.ssh"),
    "mpiImplementation": st.sampled_from(["OpenMPI", "Intel", "MPICH"]),
    "runLauncherAsWorker": st.booleans(),
    "launcherCreationPolicy": st.sampled_from(["AtStartup", "WaitForWorkersReady"]),
}


def convert_kind(job, kind, more):
    """Return the same job as another kind, with the names of its replicas and containers."""
    field, container, roles = KINDS[kind]
    spec = json.loads(json.dumps(job["spec"]).replace('"name": "pytorch"', f'"name": "{container}"'))
    if isinstance(spec, dict):
        specs = spec.pop("pytorchReplicaSpecs", {})
        spec[field] = {roles.get(role, role): one for role, one in specs.items()} if isinstance(specs, dict) else specs
        spec |= more
    return {**job, "kind": kind, "spec": spec}


@st.composite
def job_of_kind(draw, kind):
    """Generate a job of a kind, derived from a PyTorchJob."""
    is_wild = draw(st.booleans())
    job = draw(WILD if is_wild else SENSIBLE)
    options = {name: st.one_of(value, ANYTHING) if is_wild else value for name, value in MPI.items()}
    more = draw(st.fixed_dictionaries({}, optional=options)) if kind == "MPIJob" else {}
    document = convert_kind(job, kind, more)
    if not is_wild:
        for field in ("elasticPolicy", "nprocPerNode"):
            document["spec"].pop(field, None)
    if kind == "MPIJob" and draw(st.booleans()):
        document["apiVersion"] = "kubeflow.org/v2beta1"
    return document


@pytest.mark.parametrize("kind", KINDS)
def test_each_leaf_is_in_exactly_one_record(kind):
    @settings(max_examples=50, suppress_health_check=SLOW_DATA)
    @given(job_of_kind(kind), DIALECTS)
    def holds(job, dialect):
        found = convert(job, dialect=dialect)
        paths = [record.path for record in found.fields]
        assert len(set(paths)) == len(paths)
        for leaf in iterate_leaves(job):
            above = {format_path(leaf[:length]) for length in range(len(leaf) + 1)}
            assert len(above.intersection(paths)) == 1, leaf
        assert (found.train_job is None) == bool(found.blockers)
        assert found.runtime is None or found.train_job
        assert all(
            record.reason for record in found.fields if record.result in (FieldResult.REFUSED, FieldResult.DROPPED)
        )
        assert all(
            record.target for record in found.fields if record.result in (FieldResult.CONVERTED, FieldResult.MOVED)
        )
        assert SECRET not in json.dumps(found.to_dict())
        assert found == convert(json.loads(json.dumps(job)), dialect=dialect)

    holds()


@pytest.mark.parametrize(
    ("kind", "version"), [*((kind, "kubeflow.org/v1") for kind in KINDS), ("MPIJob", "kubeflow.org/v2beta1")]
)
def test_no_value_is_lost(kind, version):
    """The new objects have the values of all converted and moved fields of a job with every field."""
    more = {"slotsPerWorker": 5, "sshAuthMountPath": "/home/of/keys"} if kind == "MPIJob" else {}
    job = convert_kind(every_field(), kind, more)
    job["apiVersion"] = version
    replicas = job["spec"][KINDS[kind][0]]
    for name in ("elasticPolicy", "nprocPerNode"):
        del job["spec"][name]
    if kind == "JAXJob":
        del replicas["Master"]
    if kind == "MPIJob":
        for one in replicas.values():
            one["restartPolicy"] = "OnFailure"
        replicas["Worker"]["template"]["spec"]["containers"][0]["command"] = ["/usr/sbin/sshd", "-De"]
        if version == "kubeflow.org/v1":
            del job["spec"]["sshAuthMountPath"]
    found = convert(job)
    assert [record.path for record in found.blockers] == []
    text = json.dumps([found.train_job, found.runtime])
    kept = [record.path for record in found.fields if record.result in (FieldResult.CONVERTED, FieldResult.MOVED)]
    same = () if kind == "MPIJob" else ("spec.xgbReplicaSpecs.Master",)
    elsewhere = (*same, "apiVersion", "kind", "spec.runPolicy.managedBy")
    for leaf in iterate_leaves(found.source):
        path = format_path(leaf)
        changed = path.endswith(("restartPolicy", ".name", "replicas")) or path.startswith(elsewhere)
        if not changed and any(path.startswith(prefix) for prefix in kept):
            assert json.dumps(get_value(found.source, leaf)) in text, path
