"""Property tests of PyTorchJobs, valid or not: complete records, equal results, no secrets."""

from __future__ import annotations

import copy
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.migrate.v1_jobs import CONTAINER, ELASTIC, POD, RUN_POLICY
from trainjob import InvalidSpec
from trainjob.manifest import Dialect
from trainjob_migrate import FieldResult, Launch, convert
from trainjob_migrate.field_records import format_path, iterate_leaves

SECRET = "s3cretV4lue"  # occurs in no field name and in no drawn value
NAMES = st.sampled_from(["a", "b.c/d", "unheard", "name", "value", "", "x y", 'q"q', "spec", "training.kubeflow.org/a"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 130), st.sampled_from(["", "x", "$(RANK)", "job-worker-0", "Never", "{}"])
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=5,
)


WORDS = st.sampled_from(
    ["python", "torchrun", "-m", "torch.distributed.run", "train.py", "sh", "-c", "$RANK", "-u", "a b"]
)
LINES = st.one_of(st.lists(WORDS, max_size=4), st.just(["python", "t.py", "--api-key", SECRET, f"--password={SECRET}"]))
SECRETS = (
    {"name": "HF_TOKEN", "value": SECRET},
    {"name": "DB_PASSWORD", "value": SECRET},
    {"name": "STORE", "value": f"s3://me:{SECRET}@example.com"},
    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
)
APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"x": "{SECRET}"}}'}
SOME_NAMES = st.sampled_from(["job", "a-name-that-is-longer-than-a-jobset-can-have-it", "job-1"])


def just_values(values):
    return {name: st.just(value) for name, value in values.items()}


def jobs(*, wild):
    """Return a strategy for PyTorchJobs; wild jobs have any values, and unknown fields."""

    def fields(known, always=()):
        values = {name: st.one_of(value, value, ANYTHING) if wild else value for name, value in known.items()}
        must = {name: values.pop(name) for name in always}
        found = st.fixed_dictionaries(must, optional=values)
        if not wild:
            return found
        more = st.dictionaries(NAMES, ANYTHING, max_size=1)
        return st.builds(lambda first, second: {**second, **first}, found, more)

    def labels(*more):
        texts = st.dictionaries(NAMES, st.just("on"), max_size=2)
        return st.one_of(texts, *map(st.just, more), *([st.dictionaries(NAMES, ANYTHING, max_size=2)] if wild else []))

    named = fields({"name": st.sampled_from(["LR", "RANK", "PET_NNODES", "LR2"]), "value": st.just("1")}, ["name"])
    variables = st.lists(st.one_of(named, st.sampled_from(SECRETS)), max_size=4)
    known = just_values(CONTAINER) | {"command": LINES, "args": LINES, "env": variables}
    container = fields(known, ["image"])
    containers = st.builds(
        lambda main, beside: [{**main, "name": "pytorch"}, *({**one, "name": "beside"} for one in beside)],
        container,
        st.lists(container, max_size=1),
    )
    pod = fields(just_values(POD) | {"containers": containers, "serviceAccount": st.just("old")}, ["containers"])
    metadata = fields({"labels": labels(), "annotations": labels()})
    restarts = ["OnFailure", "Never", "ExitCode", *(["Always", "Sometimes"] if wild else [])]
    replicas = fields(
        {
            "replicas": st.integers(0 if wild else 1, 3),
            "restartPolicy": st.sampled_from(restarts),
            "template": fields({"metadata": metadata, "spec": pod}, ["spec"]),
        },
        ["template"],
    )
    alike = st.builds(
        lambda one, workers: {"Master": {**one, "replicas": 1}, "Worker": {**copy.deepcopy(one), "replicas": workers}},
        replicas,
        st.integers(1, 3),
    )
    alone = st.builds(lambda one: {"Worker": one}, replicas)
    others = st.dictionaries(st.sampled_from(["Master", "Worker", "master", "Chief"]), replicas, max_size=3)
    scheduling = fields(just_values(RUN_POLICY["schedulingPolicy"]))
    spec = fields(
        {
            "pytorchReplicaSpecs": st.one_of(alike, alone, *([others] if wild else [])),
            "runPolicy": fields(just_values(RUN_POLICY) | {"schedulingPolicy": scheduling}),
            "elasticPolicy": fields(just_values(ELASTIC)),
            "nprocPerNode": st.sampled_from(["auto", "gpu", "2", *(["cpu", "many"] if wild else [])]),
        },
        ["pytorchReplicaSpecs"],
    )
    identity = fields(
        {
            "name": st.one_of(SOME_NAMES, st.just("7up")) if wild else SOME_NAMES,
            "namespace": st.just("team"),
            "labels": labels(),
            "annotations": labels(APPLIED),
            "uid": st.just("u"),
            "ownerReferences": st.just([{"uid": "o"}]),
            "generateName": st.just("g-"),
        },
        ["name"],
    )
    return st.builds(
        lambda metadata, spec, status: {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {**metadata, "name": str(metadata["name"] or "job")},
            "spec": spec,
            **({"status": status} if status else {}),
        },
        identity,
        spec,
        ANYTHING,
    )


SENSIBLE, WILD = jobs(wild=False), jobs(wild=True)


@st.composite
def sensible_or_wild_job(draw):
    return draw(WILD if draw(st.booleans()) else SENSIBLE)


SLOW_DATA = [HealthCheck.too_slow]  # durations mean nothing on a busy machine
DIALECTS, LAUNCHES = st.sampled_from(Dialect), st.sampled_from(Launch)


@settings(suppress_health_check=SLOW_DATA)
@given(sensible_or_wild_job(), DIALECTS, LAUNCHES)
def test_each_leaf_is_in_exactly_one_record(job, dialect, launch):
    """Each record has its target or reason, and no record contains a secret."""
    found = convert(job, dialect=dialect, launch=launch)
    paths = [record.path for record in found.fields]
    assert len(set(paths)) == len(paths)
    for leaf in iterate_leaves(job):
        above = {format_path(leaf[:length]) for length in range(len(leaf) + 1)}
        assert len(above.intersection(paths)) == 1, leaf
    assert all(record.reason for record in found.fields if record.result in (FieldResult.REFUSED, FieldResult.DROPPED))
    assert all(record.target for record in found.fields if record.result in (FieldResult.CONVERTED, FieldResult.MOVED))
    assert (found.train_job is None) == bool(found.blockers)
    assert found.runtime is None or found.train_job
    assert SECRET not in json.dumps(found.to_dict())


@settings(max_examples=40, suppress_health_check=SLOW_DATA)
@given(sensible_or_wild_job(), DIALECTS, LAUNCHES)
def test_equal_jobs_have_equal_results_and_are_not_changed(job, dialect, launch):
    before = copy.deepcopy(job)
    first = convert(job, dialect=dialect, launch=launch)
    assert job == before
    assert first == convert(json.loads(json.dumps(job)), dialect=dialect, launch=launch)


@settings(max_examples=40, suppress_health_check=SLOW_DATA)
@given(
    st.dictionaries(st.sampled_from(["apiVersion", "kind", "metadata", "spec", ""]), ANYTHING), sensible_or_wild_job()
)
def test_any_document_is_converted_or_raises_invalid_spec(document, job):
    for given_ in (document, {**job, **document}):
        try:
            convert(given_)
        except InvalidSpec as error:
            assert error.problems
