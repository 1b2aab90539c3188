"""Arguments of the Kubeflow SDK's `TrainerClient().train(...)`, with the classes of its newest release."""

from __future__ import annotations

import inspect
import warnings
from datetime import timedelta

import pytest
import yaml
from kfp import compiler, dsl

import trainjob_kfp
from trainjob import InvalidSpec, TrainJob, options
from trainjob.manifest import build_trainjob, spec_hash

with warnings.catch_warnings():  # the SDK's models have a configuration that pydantic deprecates
    warnings.simplefilter("ignore")
    from kubeflow import optimizer
    from kubeflow.trainer import BuiltinTrainer, CustomTrainer, CustomTrainerContainer, Initializer, TorchTuneConfig
    from kubeflow.trainer import options as sdk
    from kubeflow.trainer.backends.kubernetes.backend import KubernetesBackend

CONTAINER = CustomTrainerContainer(image="busybox", num_nodes=2, env={"A": "1"})


def learn(steps):
    print(steps)


def patch_of(module):
    """Return a patch in which each class of a patch occurs, with all of its fields."""
    container = module.ContainerPatch(
        name="proxy",
        env=[{"name": "A", "value": "1"}],
        volume_mounts=[{"name": "scratch", "mountPath": "/s"}],
        security_context={"runAsUser": 1},
    )
    spec = module.PodSpecPatch(
        service_account_name="trainer",
        volumes=[{"name": "scratch", "emptyDir": {}}],
        init_containers=[container],
        containers=[container],
        image_pull_secrets=[{"name": "registry"}],
        security_context={"fsGroup": 2},
        node_selector={"pool": "gpus"},
        affinity={"nodeAffinity": {}},
        tolerations=[{"operator": "Exists"}],
        scheduling_gates=[{"name": "example.org/gate"}],
    )
    metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    pods = module.JobSpecPatch(template=module.PodTemplatePatch(metadata=metadata, spec=spec))
    job = module.ReplicatedJobPatch(name="node", template=module.JobTemplatePatch(metadata=metadata, spec=pods))
    jobset = module.JobSetTemplatePatch(metadata=metadata, spec=module.JobSetSpecPatch(replicated_jobs=[job]))
    return module.RuntimePatch(training_runtime_spec=module.TrainingRuntimeSpecPatch(template=jobset))


def written_by_the_sdk(option):
    """Return the part of a TrainJob that the SDK itself writes for an option."""
    job = {}
    option(job, CONTAINER, KubernetesBackend.__new__(KubernetesBackend))
    return job


CASES = {
    "Labels": lambda module: module.Labels({"team": "nlp"}),
    "Annotations": lambda module: module.Annotations({"example.org/a": "b"}),
    "ActiveDeadlineSeconds": lambda module: module.ActiveDeadlineSeconds(3600),
    "TrainerCommand": lambda module: module.TrainerCommand(["python", "train.py"]),
    "TrainerArgs": lambda module: module.TrainerArgs(["--epochs", "3"]),
    "RuntimePatch": patch_of,
}


def is_part_of(part, whole):
    if isinstance(part, dict):
        return all(name in whole and is_part_of(value, whole[name]) for name, value in part.items())
    if isinstance(part, list):
        return all(any(is_part_of(item, other) for other in whole) for item in part)
    return part == whole


@pytest.mark.parametrize("module", [sdk, options], ids=["SDK", "ours"])
@pytest.mark.parametrize("name", CASES)
def test_an_option_writes_what_the_sdk_writes(name, module):
    job = TrainJob(trainer=CONTAINER, options=[CASES[name](module)])
    manifest = build_trainjob(job, name="job", namespace="ml")
    expected = written_by_the_sdk(CASES[name](sdk))
    assert expected
    assert is_part_of(expected, manifest), (expected, manifest)


def test_every_class_of_the_sdk_is_here_with_the_same_fields():
    names = [*CASES, "Name", *(name for name in sdk.__all__ if name.endswith("Patch"))]
    assert set(options.__all__) == set(sdk.__all__) == set(names)
    for name in sdk.__all__:
        theirs, ours = (inspect.signature(getattr(module, name)).parameters for module in (sdk, options))
        assert [*theirs] == [each for each in ours if each != "manager"], name


def test_a_name_begins_the_name_of_the_trainjob():
    assert TrainJob(options=[sdk.Name("nightly")]).name == "nightly"
    with pytest.raises(InvalidSpec, match="at most 24 characters"):
        TrainJob(options=[sdk.Name("a" * 40)])


def test_the_request_is_the_same_as_with_fields():
    given = [sdk.Labels({"a": "b"}), sdk.ActiveDeadlineSeconds(60), options.TrainerCommand(["run"])]
    pasted = TrainJob(trainer=CONTAINER, options=given, runtime="torch-distributed")
    fields = {"image": "busybox", "num_nodes": 2, "env": {"A": "1"}, "command": ["run"]}
    written = TrainJob(trainer=fields, labels={"a": "b"}, deadline=timedelta(minutes=1))
    assert spec_hash(pasted) == spec_hash(written)
    assert TrainJob(options=[{"labels": {"a": "b"}}]) == TrainJob(labels={"a": "b"})


def test_several_patches_have_managers_of_their_own():
    managers = [patch["manager"] for patch in TrainJob(options=[sdk.RuntimePatch(), patch_of(sdk)]).runtime_patches]
    assert managers == ["trainer.kubeflow.org/kubeflow-sdk", "trainer.kubeflow.org/kubeflow-sdk-2"]


@pytest.mark.parametrize(
    ("fields", "field", "rule"),
    [
        ({"options": sdk.Labels({})}, "options", "it must be a list"),
        ({"options": ["labels"]}, "options[0]", "allowed are Name, Labels"),
        ({"options": [sdk.PodSpecPatch()]}, "options[0]", "the parts of a patch belong into a RuntimePatch"),
        ({"options": [sdk.Labels({"a": "b"})], "labels": {"a": "c"}}, "options[0].labels.a", "a is already 'c'"),
        ({"options": [sdk.Name("a"), sdk.Name("b")]}, "options[1].name", "name is already 'a'"),
        (
            {"options": [sdk.TrainerArgs(["x"])], "trainer": CustomTrainer(func=learn)},
            "options[0].args",
            "only a CustomTrainerContainer has a command",
        ),
        (
            {"options": [sdk.TrainerCommand(["x"])], "trainer": BuiltinTrainer(config=TorchTuneConfig())},
            "options[0].command",
            "only a CustomTrainerContainer has a command",
        ),
        ({"search_space": {}}, "search_space", "how-to/sweeps.md"),
        ({"trial_config": optimizer.TrialConfig()}, "trial_config", "how-to/sweeps.md"),
        ({"objectives": [optimizer.Objective()]}, "objectives", "how-to/sweeps.md"),
        ({"algorithm": optimizer.RandomSearch()}, "algorithm", "how-to/sweeps.md"),
        (
            {"trainer": CustomTrainer(func=learn, func_args={"steps": optimizer.Search.choice([1, 2])})},
            "trainer.func_args.steps",
            "run one TrainJob for each value",
        ),
        (
            {"trainer": CustomTrainer(func=learn, num_nodes=optimizer.Search.choice([1, 2]))},
            "trainer.num_nodes",
            "run one TrainJob for each value",
        ),
    ],
)
def test_what_has_no_place_in_a_trainjob_is_refused_with_advice(fields, field, rule):
    with pytest.raises(InvalidSpec) as raised:
        TrainJob(**fields)
    found = {problem.field: problem.allowed for problem in raised.value.problems}
    assert rule in found[field]


def test_a_template_of_the_optimizer_is_a_trainjob():
    template = optimizer.TrainJobTemplate(trainer=CustomTrainer(func=learn, num_nodes=2), runtime="own")
    job = TrainJob(**template)
    assert (job.trainer.num_nodes, job.runtime.name) == (2, "own")


@pytest.mark.parametrize("module", [sdk, options], ids=["SDK", "ours"])
def test_the_call_can_be_pasted_into_the_component(module, tmp_path):
    @dsl.pipeline(name="pasted")
    def pasted():
        function = CustomTrainer(func=learn, func_args={"steps": 3}, num_nodes=2, packages_to_install=["rich"])
        trainjob_kfp.train(trainer=function, options=[module.Labels({"team": "nlp"}), patch_of(module)])
        trainjob_kfp.train(
            trainer=CONTAINER, options=[module.TrainerCommand(["run"]), module.ActiveDeadlineSeconds(60)]
        )

    compiler.Compiler().compile(pasted, str(tmp_path / "pasted.yaml"))
    [spec, *_] = yaml.safe_load_all((tmp_path / "pasted.yaml").read_text())
    first, second = (
        {name: value["runtimeValue"]["constant"] for name, value in task["inputs"]["parameters"].items()}
        for task in spec["root"]["dag"]["tasks"].values()
    )
    assert "def learn(steps):" in first["function"]
    assert (first["function_args"], first["num_nodes"], first["packages_to_install"]) == ({"steps": 3}, [2], ["rich"])
    assert (first["labels"], len(first["runtime_patches"])) == ({"team": "nlp"}, 1)
    assert (second["image"], second["command"], second["deadline"]) == ("busybox", ["run"], "60s")
    assert second["env"] == {"A": "1"}


def test_a_trainer_that_the_component_does_not_have_is_refused():
    with pytest.raises(InvalidSpec, match="fine_tune"):
        trainjob_kfp.train(trainer=BuiltinTrainer(config=TorchTuneConfig()))


def test_an_initializer_is_passed_on(tmp_path):
    @dsl.pipeline(name="pasted")
    def pasted():
        trainjob_kfp.train(runtime="own", initializer=Initializer())

    compiler.Compiler().compile(pasted, str(tmp_path / "pasted.yaml"))
