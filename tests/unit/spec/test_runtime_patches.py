"""A request's own patches of its runtime: checks, and their place in the manifest."""

from __future__ import annotations

import copy

import pytest

from trainjob import InvalidSpec, TrainJob
from trainjob.manifest import Dialect, build_trainjob
from trainjob.manifest.training_identity import weight_fields

LABELS = {"metadata": {"labels": {"team": "a"}}}


def patch(pod=None, manager="example.org/team", **jobset):
    job = {"name": "node", "template": {"spec": {"template": pod or {}}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}, **jobset}}}


def build(**fields):
    return build_trainjob(TrainJob(**fields), name="job", namespace="ml")["spec"]["runtimePatches"]


def test_they_are_after_the_patches_of_other_fields_and_unchanged():
    own = patch({"spec": {"tolerations": [{"operator": "Exists"}], "schedulingGates": [{"name": "a.b/c"}]}})
    first, last = build(runtime_patches=[own], placement={"service_account_name": "trainer"})
    assert (first["manager"], last) == ("trainjob.dev/workflow-step", own)
    assert build(runtime_patches=[own, patch(manager="example.org/b")]) == [own, patch(manager="example.org/b")]


def test_nulls_are_left_out():
    assert build(runtime_patches=[patch({"spec": {"affinity": None, "nodeSelector": {"a": "b"}}}, metadata=None)]) == [
        patch({"spec": {"nodeSelector": {"a": "b"}}})
    ]


POD = "[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template"


@pytest.mark.parametrize(
    ("given", "field", "rule"),
    [
        ({}, "[0].manager", ""),
        (patch(manager="team"), "[0].manager", "a path below a domain of yours"),
        (patch(manager="kueue.x-k8s.io/manager"), "[0].manager", "a path below a domain of yours"),
        (patch(manager="trainjob.dev/workflow-step"), "[0].manager", "a path below a domain of yours"),
        ({**patch(), "time": "2026-01-01T00:00:00Z"}, "[0].time", "leave it out"),
        ({**patch(), "trainingruntimespec": {}}, "[0].trainingruntimespec", "did you mean trainingRuntimeSpec?"),
        (patch({"spec": {"hostNetwork": True}}), f"{POD}.spec.hostNetwork", "a training runtime can"),
        (patch({"spec": {"tolerations": {}}}), f"{POD}.spec.tolerations", "it must be a list"),
        (patch({"spec": {"nodeSelector": {"a": 1}}}), f"{POD}.spec.nodeSelector.a", "it must be a text"),
        (
            patch({"spec": {"containers": [{"name": "node", "env": [{"name": "A", "value": "b"}]}]}}),
            f"{POD}.spec.containers[0].env",
            "give the field env",
        ),
        (
            patch({"spec": {"containers": [{"name": "x", "env": [{"name": "PASSWORD", "value": "tiger"}]}]}}),
            f"{POD}.spec.containers[0].env[0]",
            "a credential must be a reference",
        ),
        (
            patch({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}),
            f"{POD}.metadata.labels.kueue.x-k8s.io/queue-name",
            "give the field queue",
        ),
        (patch({"metadata": {"name": "pod"}}), f"{POD}.metadata.name", "it has no effect"),
        (
            patch(metadata={"finalizers": ["a.b/c"]}),
            "[0].trainingRuntimeSpec.template.metadata.finalizers",
            "it has no effect",
        ),
    ],
)
def test_what_cannot_take_effect_is_refused(given, field, rule):
    with pytest.raises(InvalidSpec) as raised:
        TrainJob(runtime_patches=[given])
    [problem] = raised.value.problems
    assert problem.field == f"runtime_patches{field}"
    assert rule in problem.allowed
    assert "tiger" not in str(raised.value)


@pytest.mark.parametrize(
    "containers",
    [
        [{"name": "a", "env": [{"name": "PIN", "value": 4711}]}],
        [{"name": "a", "env": [{"name": "PIN", "value": "4711"}]}] * 2,
        {"env": "4711"},
    ],
    ids=["a number", "two of one name", "no list"],
)
def test_no_error_shows_the_value_of_a_variable(containers):
    with pytest.raises(InvalidSpec) as raised:
        TrainJob(runtime_patches=[patch({"spec": {"containers": containers}})])
    assert "4711" not in str(raised.value)


def test_each_patch_has_a_manager_of_its_own():
    with pytest.raises(InvalidSpec, match="several patches have this manager"):
        TrainJob(runtime_patches=[patch(), patch(LABELS)])


def test_more_patches_than_the_api_allows_are_refused():
    patches = [patch(manager=f"example.org/{number}") for number in range(15)]
    assert len(build(runtime_patches=patches)) == 15
    with pytest.raises(InvalidSpec, match="'15 patches': at most 14 fit"):
        build(runtime_patches=patches, labels={"a": "b"})


def test_an_older_trainer_is_named():
    with pytest.raises(InvalidSpec, match=r"runtimePatches needs Trainer 2\.2 or later"):
        build_trainjob(TrainJob(runtime_patches=[patch()]), name="job", namespace="ml", dialect=Dialect.V2_1)


def test_a_training_continues_with_other_patches():
    assert weight_fields(TrainJob(runtime_patches=[patch()])) == weight_fields(TrainJob())


def test_a_request_does_not_change_with_the_given_dict():
    given = patch({"spec": {"nodeSelector": {"a": "b"}}})
    request, before = TrainJob(runtime_patches=[given]), copy.deepcopy(given)
    given["trainingRuntimeSpec"].clear()
    assert request.runtime_patches == (before,)
