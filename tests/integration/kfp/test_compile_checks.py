"""Tests of the checks of constant arguments when a pipeline is compiled."""

import inspect
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from kfp import dsl

import trainjob_kfp
from tests.integration.kfp import golden
from trainjob.errors import InvalidSpec, Problem
from trainjob.spec.durations import to_duration
from trainjob_kfp import steps
from trainjob_kfp.image import BASE_IMAGE
from trainjob_kfp.input_values import to_input

SECRET = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
IN_URI = "s3://user:SECRET-IN-URI@bucket/path"
MLFLOW = {"backend": "mlflow", "tracking_uri": "https://mlflow", "model": "tickets"}
FUNCTION = "def score(limit=1):\n    return {'share': 1.0}\n"
DEPENDENT_FUNCTION = "def rewards(completions, **kwargs):\n    return [1.0 for _ in completions]\n"
REQUIRED = {
    "initialize_model": {"storage_uri": "hf://acme/llm", "workspace": "claim"},
    "initialize_dataset": {"storage_uri": "s3://bucket/tickets", "workspace": "claim"},
    "fine_tune": {"model": "llama3.2-1b", "workspace": "claim", "framework": "torchtune"},
    "export_model": {"workspace": "claim"},
    "train": {"image": "busybox", "command": ["true"]},
    "evaluate": {"function": FUNCTION, "metric": "share", "minimum": 0.5},
    "evaluate_model": {"workspace": "claim", "tasks": ["tickets"]},
    "generate": {"workspace": "claim", "input_path": "dataset/eval"},
    "promote_model": {"model": "s3://acme/models/7", "service": "tickets"},
    "rollback_model": {"service": "tickets"},
    "cleanup": {},
}
TRL = {"model": "m", "framework": "trl", "method": "sft"}
LLAMAFACTORY = {**TRL, "framework": "llamafactory"}
UNSLOTH = {**TRL, "framework": "unsloth", "image": "unsloth"}
MANIFEST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def produce() -> str:
    return ""


def compile_call(name, arguments):
    """Return the YAML of a pipeline with one call of a component.

    A function among the arguments is called with the values of the run by name.
    """

    @dsl.pipeline(pipeline_config=dsl.PipelineConfig(workspace=dsl.WorkspaceConfig(size="1Gi")))
    def pipeline(text: str = "", number: int = 0, mapping: dict = {}, words: list = []):  # noqa: B006
        values = {"text": text, "number": number, "mapping": mapping, "words": words, "output": produce().output}
        task = getattr(trainjob_kfp, name)(**resolve(REQUIRED[name] | arguments, values))
        if name == "cleanup":
            with dsl.ExitHandler(task):
                produce()

    return golden.compile_to_yaml(pipeline)


def resolve(value, values):
    if isinstance(value, dict):
        return {key: resolve(item, values) for key, item in value.items()}
    return value(values) if callable(value) else value


def from_run(name):
    return lambda values: values[name]


@pytest.mark.parametrize("name", REQUIRED)
def test_the_required_arguments_compile(name):
    assert "components:" in compile_call(name, {})


WRONG = [
    ("initialize_model", {"storage_uri": IN_URI}, "storage_uri"),
    ("initialize_model", {"storage_uri": ""}, "storage_uri"),
    ("initialize_model", {"storage_uri": "javascript:alert(1)"}, "storage_uri"),
    ("initialize_model", {"storage_uri": "s3://bucket/" + "x" * 100_000}, "storage_uri"),
    ("initialize_model", {"storage_uri": SECRET}, "storage_uri"),
    ("initialize_model", {"secret": SECRET}, "secret.name"),
    ("initialize_model", {"workspace": "../x"}, "workspace"),
    ("initialize_model", {"workspace": ""}, "workspace"),
    ("initialize_model", {"env": {"HF_TOKEN": SECRET}}, "env.HF_TOKEN"),
    ("initialize_model", {"env": {"PASSWORD": "plain-words"}}, "env.PASSWORD"),
    ("initialize_model", {"revision": "v1", "storage_uri": "s3://bucket/path"}, "revision"),
    ("initialize_model", {"program": "other"}, "program"),
    ("initialize_dataset", {"storage_uri": "acme/tickets"}, "storage_uri"),
    ("initialize_dataset", {"storage_uri": IN_URI, "workspace": from_run("text")}, "storage_uri"),
    ("initialize_dataset", {"workspace": "../x", "storage_uri": from_run("output")}, "workspace"),
    ("initialize_dataset", {"endpoint": "https://user:SECRET-IN-URI@store"}, "endpoint"),
    ("initialize_dataset", {"deadline": "-1"}, "deadline"),
    ("initialize_dataset", {"on_kill": "suspend"}, "on_kill"),
    ("initialize_dataset", {"attempts": 0}, "attempts"),
    ("initialize_dataset", {"interruption_retries": -1, "workspace": from_run("text")}, "interruption_retries"),
    ("initialize_dataset", {"namespace": SECRET}, "namespace"),
    ("fine_tune", {"model": "gpt-9"}, "model"),
    ("fine_tune", {"model": SECRET}, "model"),
    ("fine_tune", {"config": {"overrides": [f"token={SECRET}"]}}, "config.overrides[0]"),
    ("fine_tune", {"batch_size": -1, "lora_rank": from_run("number")}, "batch_size"),
    ("fine_tune", {"dataset_path": "../x"}, "dataset_path"),
    ("fine_tune", {"config": {"no_such_field": 1}}, "config.no_such_field"),
    ("fine_tune", {"config": {"no_such_field": 1}, "workspace": from_run("text")}, "config.no_such_field"),
    ("fine_tune", {"workspace": "../x", "framework": "line"}, "workspace"),
    ("fine_tune", {"framework": ""}, "framework"),
    ("fine_tune", {**TRL, "config": {"framework": "line"}}, "framework"),
    ("fine_tune", {"epochs": 1.5}, "epochs"),
    ("fine_tune", {"max_steps": 3}, "max_steps"),
    ("fine_tune", {**TRL, "method": "magic"}, "method"),
    ("fine_tune", {**TRL, "method": "magic", "max_steps": from_run("number")}, "method"),
    ("fine_tune", {**TRL, "learning_rate": -1.0}, "learning_rate"),
    ("fine_tune", {**TRL, "secret": SECRET, "workspace": from_run("text")}, "secret.name"),
    (
        "fine_tune",
        {**TRL, "method": "grpo", "config": {"reward_functions": ["def broken("]}},
        "config.reward_functions[0]",
    ),
    ("fine_tune", {**LLAMAFACTORY, "arguments": {"hub_token": SECRET}}, "arguments.hub_token"),
    ("fine_tune", {**LLAMAFACTORY, "queue": "Not A Queue"}, "queue"),
    ("fine_tune", {**UNSLOTH, "lora_rank": -4}, "lora_rank"),
    ("evaluate_model", {"gates": {"other/acc": {"minimum": 0.5}}}, "gates"),
    ("evaluate_model", {"gates": {"tickets/acc": {"better_than_champion": True}}}, "champion_path"),
    ("evaluate_model", {"model_path": "output/epoch_0"}, "model_path"),
    ("generate", {"engine": "vllm"}, "image"),
    ("generate", {"output_path": "export/answers"}, "output_path"),
    ("promote_model", {"model": "models/7"}, "model"),
    ("promote_model", {"command": ["deploy"], "canary_percent": 5}, "canary_percent"),
    ("promote_model", {"function": "x = 1"}, "function"),
    ("rollback_model", {"service": "Tickets"}, "service"),
    ("export_model", {"destination": IN_URI}, "destination"),
    ("export_model", {"destination": "ftp://server/path"}, "destination"),
    ("export_model", {"adapter": "other"}, "adapter"),
    ("export_model", {"registry": {"server": "https://user:SECRET-IN-URI@host", "model": "m"}}, "registry.server"),
    ("export_model", {"registry": {**MLFLOW, "alias": "latest"}}, "registry.alias"),
    ("train", {"command": ["train", "--hf-token", SECRET]}, "command[2]"),
    ("train", {"command": ["train", "--password=plain-words"]}, "command[1]"),
    ("train", {"env": {"TOKEN": SECRET, "OTHER": from_run("text")}}, "env.TOKEN"),
    ("train", {"env": {"X": lambda values: f"https://user:SECRET-IN-URI@{values['text']}"}}, "env.X"),
    ("train", {"function": FUNCTION}, "command"),
    ("train", {"command": [], "function": "no function"}, "function"),
    ("train", {"num_nodes": -1}, "num_nodes"),
    ("train", {"num_nodes": [8, 2]}, "num_nodes"),
    ("train", {"num_nodes": 2, "shrink_after": "5m"}, "shrink_after"),
    ("train", {"managed_by": "somebody"}, "managed_by"),
    ("train", {"manifest": MANIFEST}, "image"),
    ("train", {"image": "", "command": [], "manifest": {**MANIFEST, "kind": "Pod"}}, "manifest.kind"),
    ("evaluate", {"function": ""}, "function"),
    ("evaluate", {"function": FUNCTION.replace("1.0", repr(SECRET))}, "function"),
    ("evaluate", {"function_args": {"api_key": SECRET}}, "function_args.api_key"),
    ("evaluate", {"metric": SECRET}, "metric"),
    ("evaluate", {"pip_index_urls": ["https://user:SECRET-IN-URI@host/simple"]}, "pip_index_urls[0]"),
    ("cleanup", {"namespace": SECRET}, "namespace"),
    # Those that the tests of the launcher and of the steps refuse.
    ("fine_tune", {"epochs": -3}, "epochs"),
    ("fine_tune", {"config": {"dtyp": "bf16"}}, "config.dtyp"),
    ("fine_tune", {"config": {"overrides": ["nope"]}}, "config.overrides"),
    ("fine_tune", {"program": "pakced"}, "program"),
    ("fine_tune", {"program": "image"}, "image"),
    ("fine_tune", {"on_kill": "kep"}, "on_kill"),
    ("fine_tune", {"deadline": "-5s"}, "deadline"),
    ("fine_tune", {"runtime": {"name": "a", "kind": "Pod"}}, "runtime.kind"),
    ("fine_tune", {"tracking": {"backend": "mlfow", "tracking_uri": "https://mlflow"}}, "tracking.backend"),
    ("fine_tune", {"placement": {"node_selecter": {}}}, "placement.node_selecter"),
    ("fine_tune", {"env": {"HF_TOKEN": SECRET}}, "env.HF_TOKEN"),
    ("fine_tune", {"config": {"resources_per_node": {"gpu": "many"}}}, "config.resources_per_node.gpu"),
    ("initialize_model", {"storage_uri": "http:/x"}, "storage_uri"),
    ("initialize_model", {"resources": {"memory": "much"}}, "resources.memory"),
    ("initialize_model", {"program": "image"}, "image"),
    ("initialize_dataset", {"queue": "a b"}, "queue"),
    ("initialize_dataset", {"queue": {"priority_class": "urgent"}}, "queue.name"),
    ("initialize_dataset", {"attempts": -1}, "attempts"),
    ("initialize_dataset", {"name": "Upper Case"}, "name"),
    ("initialize_dataset", {"labels": {"a b": "c"}}, "labels.a b"),
    ("initialize_dataset", {"on_failure": "explode"}, "on_failure"),
    ("initialize_dataset", {"queue_timeout": "soon"}, "queue_timeout"),
    ("initialize_dataset", {"ttl_after_success": "-7d"}, "ttl_after_success"),
    ("initialize_dataset", {"volumes": [{"name": "a"}]}, "volumes[0].source"),
    ("export_model", {"destination": "s3://b/p", "endpoint": "minio:9000"}, "endpoint"),
    ("train", {"function": FUNCTION, "command": [], "args": ["x"]}, "args"),
    ("train", {"packages_to_install": ["numpy"]}, "packages_to_install"),
    ("train", {"function_args": {"a": 1}}, "function_args"),
    ("train", {"resume": True}, "resume"),
    ("train", {"command": [], "function": "import os"}, "function"),
    ("train", {"command": [], "function": "def f(a: int): pass", "function_args": {"a": "many"}}, "function_args.a"),
    ("train", {"command": [], "function": FUNCTION, "function_args": {"limits": 1}}, "function_args.limits"),
    ("train", {"command": [], "function": "def f(x): pass", "workspace": from_run("text")}, "function_args.x"),
    (
        "train",
        {"command": [], "function": "def f(x): pass", "function_args": lambda values: {"y": values["text"]}},
        "function_args.y",
    ),
    ("train", {"command": [], "function": FUNCTION, "resume_from": "output"}, "resume_from"),
    ("train", {"managed_by": "a/b/c"}, "managed_by"),
    ("train", {"max_restarts": -1}, "max_restarts"),
    ("train", {"num_proc_per_node": -1}, "num_proc_per_node"),
    ("train", {"image": "", "command": [], "manifest": {**MANIFEST, "spec": {}}}, "manifest.spec.runtimeRef.name"),
    ("train", {"image": "", "command": [], "manifest": MANIFEST, "tracking": MLFLOW}, "tracking"),
    ("evaluate", {"function": "x = 1"}, "function"),
    ("evaluate_model", {"function": "x = 1"}, "function"),
    ("evaluate_model", {"function": FUNCTION.replace("1.0", repr(SECRET))}, "function"),
    ("evaluate_model", {"function": "def score():\n    return {'a': 1}\n"}, "function"),
    ("evaluate_model", {"tasks": []}, "tasks"),
    ("evaluate", {"function_args": {"threshold": 1}}, "function_args.threshold"),
]


@pytest.mark.parametrize(("name", "arguments", "field"), WRONG)
def test_a_wrong_constant_is_refused_by_the_name_of_its_input(name, arguments, field):
    with pytest.raises(InvalidSpec) as caught:
        compile_call(name, arguments)
    assert field in [problem.field for problem in caught.value.problems]
    for secret in (SECRET, "SECRET-IN-URI", "plain-words"):
        assert secret not in str(caught.value)


def is_plain_constant(value):
    """Return whether a value is a constant that not only the compilation refuses."""
    if isinstance(value, dict | list):
        return all(map(is_plain_constant, value.values() if isinstance(value, dict) else value))
    return (
        not callable(value)
        and len(str(value)) < 1000
        and not any(text in str(value) for text in (SECRET, "SECRET-IN-URI", "plain-words"))
    )


def run_launcher(name, arguments):
    """Return the exit code of a component's program without a cluster."""
    component = getattr(trainjob_kfp, name)
    inputs = component.component_spec.inputs
    artifact = SimpleNamespace(uri="gs://bucket/path", path="", metadata={})
    outputs = {
        each: artifact for each in component.component_spec.outputs if each in ("metrics", "loss_curve", "summary")
    }
    outputs |= {"model": artifact} if name == "export_model" else {}
    values = {each: to_input(each, value, inputs[each].type) for each, value in arguments.items()}
    with pytest.raises(SystemExit) as ended:
        component.python_func(**outputs, **values)
    return ended.value.code


PLAIN_WRONG = [case for case in WRONG if is_plain_constant(case[1])]


@pytest.mark.parametrize(("name", "arguments", "field"), PLAIN_WRONG)
def test_the_launcher_refuses_a_wrong_value_with_the_same_words(name, arguments, field, monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    with pytest.raises(InvalidSpec) as compiled:
        compile_call(name, arguments)
    assert run_launcher(name, REQUIRED[name] | arguments) == 2
    shown = capsys.readouterr().err
    assert all(str(problem) in shown for problem in compiled.value.problems), field


NEXT_STEPS = [
    ("fine_tune", {"model": "meta-llama/Llama-3.1-8B-Instruct"}, "TorchTune trains llama3.2-1b, llama3.2-3b, "),
    (
        "fine_tune",
        {"framework": ""},
        'framework is required: choose the framework:\n  config={"framework": "torchtune"}',
    ),
    ("fine_tune", {"config": {"framework": "trl", "method": "sft"}}, "config has the framework 'trl': give one"),
    ("fine_tune", {**TRL, "config": {"num_train_epochs": 3}}, "in TRLConfig; did you mean epochs?"),
    ("fine_tune", {**TRL, "config": {"warmup_steps": 3}}, "in TRLConfig; did you mean arguments.warmup_steps?"),
    ("fine_tune", {**TRL, "config": {"lora_rank": 8}}, "in TRLConfig; did you mean peft_config.lora_rank?"),
    ("fine_tune", {**TRL, "lora_rank": -1}, "lora_rank cannot be -1: it must be at least 1"),
    ("train", {"function": FUNCTION}, "command cannot be given: leave it out, because the `function` runs"),
    ("fine_tune", {"overrides": ["a=b"]}, "there is no input 'overrides' in fine_tune; did you mean config.overrides?"),
    ("fine_tune", {"num_train_epochs": 3}, "did you mean epochs?"),
    ("fine_tune", {"reward_functions": []}, "did you mean config.reward_functions?"),
    ("fine_tune", {"priority_class": "high"}, "did you mean queue.priority_class?"),
    ("fine_tune", {"service_account": "trainer"}, "did you mean placement.service_account_name?"),
    ("fine_tune", {"queue_name": "team"}, "did you mean queue?"),
    ("fine_tune", {"retries": 3}, "there is no input 'retries' in fine_tune; did you mean attempts?"),
    ("train", {"commands": ["true"]}, "there is no input 'commands' in train; did you mean command?"),
    ("train", {"runtime_kind": "TrainingRuntime"}, "there is no input 'runtime_kind' in train"),
    ("initialize_model", {"source": "hf://a/b"}, "did you mean storage_uri?"),
    ("evaluate", {"threshold": 0.5}, "there is no input 'threshold' in evaluate"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), NEXT_STEPS)
def test_the_error_of_a_wrong_constant_names_the_next_step(name, arguments, words):
    with pytest.raises(InvalidSpec) as caught:
        compile_call(name, arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize("given", [21600, timedelta(hours=6), "6h", "PT6H"])
@pytest.mark.parametrize("name", ["deadline", "queue_timeout", "start_timeout", "shrink_after", "ttl_after_success"])
def test_a_duration_may_be_a_number_of_seconds_or_a_timedelta(name, given):
    value = to_input(name, given, "String")
    assert isinstance(value, str)
    assert to_duration(value) == timedelta(hours=6)


def test_all_problems_of_a_call_are_reported():
    with pytest.raises(InvalidSpec) as caught:
        compile_call("initialize_model", {"storage_uri": "", "workspace": "../x", "attempts": 0})
    assert {"storage_uri", "workspace", "attempts"} == {problem.field for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("initialize_model", {"storage_uri": SECRET}),
        ("initialize_model", {"storage_uri": IN_URI}),
        ("fine_tune", {"model": SECRET}),
        ("train", {"queue": SECRET}),
        ("train", {"deadline": SECRET}),
        ("train", {"command": ["train", "--hf-token", SECRET]}),
    ],
)
def test_an_error_of_the_launcher_shows_no_credential(name, arguments, monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert run_launcher(name, REQUIRED[name] | arguments) == 2
    assert "***" in (shown := capsys.readouterr().err)
    assert not any(secret in shown for secret in (SECRET, "SECRET-IN-URI"))


def test_the_problems_of_a_training_and_its_trainer_are_reported_together(capsys):
    wrong = {"num_nodes": [-1], "deadline": "-5s", "queue": "a b", "attempts": 0, "args": ["x"]}
    given = {**wrong, "image": "", "command": [], "function": "def f(x): pass", "function_args": {"y": 1}}
    fields = {*wrong, "function_args.x", "function_args.y"}
    with pytest.raises(InvalidSpec) as caught:
        compile_call("train", given)
    assert {problem.field for problem in caught.value.problems} == fields
    assert run_launcher("train", given) == 2
    lines = capsys.readouterr().err.splitlines()[1:]
    assert {re.split(" cannot be |: | is required", line)[0] for line in lines} == fields


WRONG_PIPELINE = """\
from kfp import dsl
from trainjob_kfp import fine_tune


@dsl.pipeline
def tickets():
    fine_tune(
        model="llama3.2-1b", framework="torchtune", workspace="claim",
        epochs=-3,
    )
"""


KFP = str(Path(sys.executable).with_name("kfp"))


@pytest.mark.parametrize(
    "command",
    [[sys.executable, "-c", "import wrong"], [KFP, "dsl", "compile", "--py", "wrong.py", "--output", "wrong.yaml"]],
    ids=["Python", "kfp"],
)
def test_the_error_names_the_line_of_the_call(command, tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG_PIPELINE)
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"{tmp_path}/wrong.py:7: the call of fine_tune is wrong:\nepochs cannot be -3: " in done.stderr


def learn(steps: int, rate=0.1):
    print(steps, rate)


def score():
    return {"share": 1.0}


def score_model(model_path: str):
    return {"length": len(model_path)}


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        (
            "train",
            {"image": "", "command": [], "function": learn, "function_args": {"steps": 3}},
            "def learn(steps: int",
        ),
        ("evaluate", {"function": score}, "def score():"),
        ("evaluate_model", {"tasks": [], "function": score_model}, "def score_model(model_path"),
        ("fine_tune", {**TRL, "method": "grpo", "config": {"reward_functions": [learn]}}, "def learn(steps"),
    ],
)
def test_a_function_is_sent_as_its_source(name, arguments, text):
    @dsl.pipeline
    def pipeline():
        getattr(trainjob_kfp, name)(**REQUIRED[name] | arguments)

    assert text in golden.compile_to_yaml(pipeline)


def test_a_function_that_cannot_be_sent_is_refused_by_the_name_of_the_input():
    def uses_its_module():
        return learn(SECRET)

    with pytest.raises(
        InvalidSpec, match=r"function cannot be .*: it uses SECRET, learn from its module: import such"
    ) as caught:
        trainjob_kfp.evaluate(function=uses_its_module, metric="a", minimum=1.0)
    assert f"{__file__}:" in str(caught.value)
    assert "pass their values in function_args, or send functions and classes with it" in str(caught.value)


def test_advice_is_in_the_words_of_a_pipeline(monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert run_launcher("fine_tune", REQUIRED["fine_tune"] | {"model": "llama3.3-70b"}) == 2
    assert "give the task's set_accelerator_limit(8) or num_proc_per_node" in capsys.readouterr().err


RIGHT = [
    ("initialize_model", {"storage_uri": from_run("text"), "workspace": from_run("output")}),
    ("initialize_model", {"storage_uri": lambda values: f"s3://{values['text']}/{dsl.PIPELINE_JOB_ID_PLACEHOLDER}"}),
    ("initialize_model", {"storage_uri": lambda values: f"{values['text']}://bucket/path"}),
    ("initialize_model", {"workspace": dsl.WORKSPACE_PATH_PLACEHOLDER}),
    ("initialize_model", {"workspace": "{{workflow.name}}-claim"}),
    ("initialize_model", {"workspace": "/mnt/claim/below"}),
    ("initialize_model", {"revision": "v1", "storage_uri": from_run("text")}),
    ("initialize_model", {"env": {"HF_ENDPOINT": from_run("text"), "TOKEN": {"name": "s", "key": "k"}}}),
    ("initialize_model", {"env": {"TOKEN": {"name": from_run("text"), "key": "k"}}}),
    ("initialize_dataset", {"secret": from_run("output"), "namespace": from_run("text")}),
    ("initialize_dataset", {"attempts": from_run("number"), "on_kill": from_run("text")}),
    ("initialize_dataset", {"queue": lambda values: {"priority_class": "high", "name": values["text"]}}),
    ("initialize_dataset", {"queue": from_run("text"), "secret": from_run("output")}),
    ("fine_tune", {"model": from_run("text"), "workspace": from_run("output"), "lora_rank": from_run("number")}),
    ("fine_tune", {"model": "llama3.3-70b"}),  # needs several GPUs, which the task may request
    ("fine_tune", {"config": lambda values: {"overrides": [f"seed={values['number']}", "dtype=bf16"]}}),
    ("fine_tune", {"framework": "", "config": from_run("mapping"), "epochs": 2.0}),
    ("fine_tune", {"framework": from_run("text"), "method": "any"}),
    ("fine_tune", {"config": lambda values: {"seed": values["number"], "num_nodes": 2}}),
    ("fine_tune", {"model": "line", "framework": "line", "config": {"steps": 3}}),  # its package is in the image
    ("fine_tune", {**TRL, "epochs": 2.0, "max_steps": from_run("number")}),
    ("fine_tune", {**TRL, "method": from_run("text"), "config": {"reward_functions": [DEPENDENT_FUNCTION]}}),
    ("fine_tune", {**TRL, "method": "grpo", "config": lambda values: {"reward_functions": values["words"]}}),
    ("fine_tune", {**TRL, "config": lambda values: {"columns": {"prompt": values["text"]}}}),
    ("fine_tune", {**UNSLOTH, "config": {"peft_config": {"load_in_4bit": True}}, "lora_rank": from_run("number")}),
    ("fine_tune", {**UNSLOTH, "image": from_run("text")}),
    ("fine_tune", {**LLAMAFACTORY, "tracking": lambda values: {"backend": "mlflow", "tracking_uri": values["text"]}}),
    ("export_model", {"destination": from_run("text"), "output_path": from_run("output")}),
    ("fine_tune", {"epochs": 3, "learning_rate": 1}),
    ("train", {"num_nodes": 2}),
    ("train", {"num_nodes": [2, 8], "shrink_after": "5m"}),
    ("train", {"num_nodes": from_run("number")}),
    ("train", {"num_nodes": lambda values: [2, values["number"]]}),
    ("evaluate_model", {"tasks": lambda values: [values["text"]], "limit": lambda values: values["number"]}),
    ("evaluate_model", {"tasks": [], "function": from_run("text"), "gates": {"score/share": {"minimum": 0.5}}}),
    ("evaluate_model", {"tasks": [], "held_out": from_run("text"), "gates": {"held_out/loss": {"maximum": 2}}}),
    ("evaluate_model", {"champion_path": "champion", "gates": {"tickets/acc": {"better_than_champion": True}}}),
    ("generate", {"input_path": from_run("text"), "num_nodes": from_run("number")}),
    ("generate", {"generation": lambda values: {"max_new_tokens": values["number"]}, "after_jobs": from_run("words")}),
    ("export_model", {"endpoint": "https://minio", "region": "eu"}),
    ("export_model", {"registry": lambda values: {"server": "https://registry", "model": values["text"]}}),
    ("export_model", {"registry": lambda values: {**MLFLOW, "alias": values["text"]}}),
    ("export_model", {"after_jobs": lambda values: [values["output"]]}),
    ("train", {"command": lambda values: ["train", "--hf-token", values["text"], "next"]}),
    ("train", {"command": ["train"], "args": lambda values: [f"--steps={values['number']}", values["output"]]}),
    ("train", {"resources_per_node": lambda values: {"gpu": values["number"]}}),
    ("train", {"command": [], "function": from_run("text"), "function_args": {"limit": 3}}),
    ("train", {"image": "", "command": [], "manifest": MANIFEST}),
    ("train", {"image": "", "command": [], "manifest": from_run("mapping")}),
    ("train", {"image": "", "command": [], "manifest": MANIFEST, "namespace": from_run("text")}),
    (
        "train",
        {"image": "", "command": [], "manifest": lambda values: {**MANIFEST, "metadata": {"name": values["text"]}}},
    ),
    ("evaluate", {"function": from_run("text"), "function_args": from_run("mapping")}),
    ("evaluate", {"function_args": lambda values: {"limit": values["number"]}, "metric": from_run("text")}),
    ("evaluate", {"function": FUNCTION.replace("{'share'", "{f'{{share}}'")}),
    ("cleanup", {"namespace": from_run("text")}),
]


@pytest.mark.parametrize(("name", "arguments"), RIGHT)
def test_values_of_the_run_compile(name, arguments):
    assert "components:" in compile_call(name, arguments)


def test_loops_and_conditions_compile():
    @dsl.pipeline
    def pipeline(rates: list, wanted: bool):
        with dsl.ParallelFor(rates) as rate, dsl.If(wanted == True):  # noqa: E712
            trainjob_kfp.fine_tune(model="m", framework="trl", method="sft", workspace="claim", learning_rate=rate)
        with dsl.ParallelFor([{"uri": "hf://acme/a", "at": "one"}]) as item:
            trainjob_kfp.initialize_model(storage_uri=item.uri, workspace=item.at)

    assert "parameterIterator" in golden.compile_to_yaml(pipeline)


def test_a_wrong_constant_in_a_loop_and_a_condition_is_refused():
    with pytest.raises(InvalidSpec, match="method"):

        @dsl.pipeline
        def pipeline(rates: list, wanted: bool):
            with dsl.ParallelFor(rates) as rate, dsl.If(wanted == True):  # noqa: E712
                trainjob_kfp.fine_tune(
                    model="m", framework="trl", method="magic", workspace="claim", learning_rate=rate
                )


def test_a_wrong_type_is_still_an_error_of_kfp():
    with pytest.raises(Exception, match="workspace"):
        compile_call("initialize_model", {"workspace": 5})


@pytest.mark.parametrize("name", [name for name in REQUIRED if name != "cleanup"])
def test_the_checked_arguments_are_those_that_the_component_gives_to_its_step(name, monkeypatch):
    given = []

    def build(arguments, _):
        given.append(set(arguments))
        raise InvalidSpec(Problem("a", "b", "c"))

    monkeypatch.setattr(steps, name, build)
    with pytest.raises(InvalidSpec):
        compile_call(name, {"destination": "s3://bucket/path"} if name == "export_model" else {})
    component = getattr(trainjob_kfp, name).python_func
    artifact = SimpleNamespace(uri="s3://bucket/path", path="", metadata={})
    filled = (
        dict.fromkeys(("metrics", "loss_curve", "summary"), artifact) if name != "export_model" else {"model": artifact}
    )
    parameters = inspect.signature(component).parameters
    with pytest.raises(SystemExit):
        component(**{**{each: filled[each] for each in filled if each in parameters}, **REQUIRED[name]})
    assert given[0] == given[-1]
    assert len(given) > 1
