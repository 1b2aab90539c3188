"""Texts reach the container unchanged, and functions that would fail in the pod are refused."""

from __future__ import annotations

import ast
import base64
import json
import math
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InvalidSpec,
    LoraConfig,
    SecretKeyReference,
    TorchTuneConfig,
    TorchTuneInstructDataset,
    TrainJob,
)
from trainjob.manifest import build_trainjob, spec_hash, to_trainjob
from trainjob.manifest.function import function_command


def build_spec(step):
    return build_trainjob(to_trainjob(step), name="n", namespace="ns")["spec"]


def expand_variables(text):
    """Expand a text like Kubernetes does for a container without variables.

    Source: Kubernetes, third_party/forked/golang/expansion.
    """
    return re.sub(r"\$\$|\$\([^)]*\)", lambda found: "$" if found[0] == "$$" else found[0], text)


# -- texts -------------------------------------------------------------------------------------------------------------

DOLLARS = st.text("$()a{", max_size=12)


@given(DOLLARS)
def test_environment_reaches_the_container_unchanged(text):
    [variable] = build_spec(TrainJob(trainer=CustomTrainerContainer(env={"A": text})))["trainer"]["env"]
    assert expand_variables(variable["value"]) == text
    assert not re.search(r"(?<!\$)(\$\$)*\$\(", variable["value"]), "Kubernetes would look for a variable"


@given(DOLLARS)
def test_metadata_reaches_the_export_unchanged(text):
    arguments = build_spec(ExportModel(workspace="w", destination="s3://b/x", metadata={"note": text}))["trainer"][
        "args"
    ]
    assert json.loads(expand_variables(arguments[arguments.index("--manifest") + 1])) == {"note": text}


@pytest.mark.parametrize(
    ("prompt", "argument"),
    [
        ("You are a helpful clerk, aren't you?", "You are a helpful clerk, aren't you?"),
        # TorchTune reads values as YAML: these would become a mapping, nothing, True, a number.
        ("Answer: be short", '"Answer: be short"'),
        ("# Rules", '"# Rules"'),
        ("yes", '"yes"'),
        ("2026", '"2026"'),
        ('say "hi"', '"say \\"hi\\""'),
        # OmegaConf would look for a key; Kubernetes for a variable.
        ("${name}", '"\\\\${name}"'),
        ("costs $(PRICE)", '"costs $$(PRICE)"'),
    ],
)
def test_a_prompt_reaches_torchtune_as_text(prompt, argument):
    dataset = TorchTuneInstructDataset(new_system_prompt=prompt, column_map={"input": "it's", "output": "a: b"})
    step = FineTune(model="llama3.2-1b", workspace="w", config=TorchTuneConfig(dataset_preprocess_config=dataset))
    arguments = build_spec(step)["trainer"]["args"]
    assert f"dataset.new_system_prompt={argument}" in arguments
    assert 'dataset.column_map={input: "it\'s", output: "a: b"}' in arguments


# -- builtin trainings -------------------------------------------------------------------------------------------------


def test_environment_and_secret_reach_a_builtin_training():
    step = FineTune(
        model="llama3.2-1b",
        config={"framework": "torchtune"},
        dataset="hf://a/b",
        model_initializer={"storage_uri": "hf://a/m", "secret": "other"},
        secret="hf",
        env={"WANDB_MODE": "offline", "KEY": SecretKeyReference(name="s", key="k")},
    )
    spec = build_spec(step)
    env = {variable["name"]: variable for variable in spec["trainer"]["env"]}
    assert env["WANDB_MODE"]["value"] == "offline"
    assert env["KEY"]["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "k"}}
    assert env["ACCESS_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "hf"
    assert spec["initializer"]["dataset"]["secretRef"] == {"name": "hf"}
    assert spec["initializer"]["model"]["secretRef"] == {"name": "other"}


def test_too_many_arguments_are_refused_before_they_are_sent():
    config = TorchTuneConfig(overrides=[f"a.b{n}={n}" for n in range(130)])
    for step in (
        FineTune(model="llama3.2-1b", dataset="hf://a/b", config=config),
        FineTune(model="llama3.2-1b", workspace="w", config=config),
        TrainJob(trainer=BuiltinTrainer(config=config), runtime="torchtune-llama3.2-1b"),
    ):
        with pytest.raises(InvalidSpec, match="at most 128"):
            build_spec(step)


def test_qlora_of_the_large_model_runs_in_several_processes():
    config = TorchTuneConfig(peft_config=LoraConfig(quantize_base=True), resources_per_node={"gpu": 8})
    arguments = build_spec(FineTune(model="llama3.3-70b", workspace="w", config=config))["trainer"]["args"]
    assert arguments[2:5] == ["lora_finetune_distributed", "--config", "llama3_3/70B_qlora"]


def test_resources_get_their_kubernetes_names():
    resources = {"CPU": 2, "storage": "1Gi", "gpu": 1, "vendor.example/NPU": 1}
    trainer = CustomTrainerContainer(resources_per_node=resources)
    assert build_spec(TrainJob(trainer=trainer))["trainer"]["resourcesPerNode"]["limits"] == {
        "cpu": "2",
        "ephemeral-storage": "1Gi",
        "nvidia.com/gpu": "1",
        "vendor.example/NPU": "1",
    }


# -- functions ---------------------------------------------------------------------------------------------------------


total: float  # the function below sets it in its own module


def annotated_function(rows: list[Any], *, scale: float = 1.0) -> dict[str, Any]:
    """Use only local names."""
    import json
    from dataclasses import dataclass

    global total  # noqa: PLW0603
    total = 0

    @dataclass
    class Row:
        value: float

        def scaled(self) -> float:
            return self.value * scale

    def add(row: Row) -> float:
        return row.scaled()

    for row in rows:
        total += add(Row(row))
    print(json.dumps([total, [value for value in rows if value > 1]]))
    return annotated_function.__annotations__


def test_a_function_runs_without_its_module(tmp_path):
    program = tmp_path / "program.py"
    packed = function_command(CustomTrainer(func=annotated_function, func_args={"rows": [1, 2], "scale": 2.0}))[3]
    program.write_bytes(base64.b64decode(packed))
    done = subprocess.run([sys.executable, "-I", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed, returned = done.stdout.splitlines()
    assert json.loads(printed) == [6.0, [2]]
    assert returned == "trainjob result: {}"


def repeat_value(value: Any) -> Any:
    return "x" * value if isinstance(value, int) else value


@pytest.mark.parametrize(
    ("value", "rank", "line"),
    [
        ({"a": [1.5]}, "0", 'trainjob result: {"a": [1.5]}\n'),
        ({"a": [1.5]}, "1", ""),
        (None, "0", ""),
        (math.nan, "0", "the return value of repeat_value is not reported, it must be a JSON value "),
        (65_536, "0", "the return value of repeat_value is not reported, it must be a JSON value of at most 65536 "),
    ],
    ids=["first-rank", "another-rank", "nothing", "no-json", "too-long"],
)
def test_the_return_value_is_a_line_in_the_log_of_rank_0(value, rank, line):
    packed = function_command(CustomTrainer(func=repeat_value, func_args={"value": value}))[3]
    command = [sys.executable, "-I", "-c", base64.b64decode(packed)]
    done = subprocess.run(command, capture_output=True, text=True, env={"RANK": rank})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(line) if line else not done.stdout


def uses_its_module():
    print(ast.dump)


def uses_its_module_as_default(path=sys.path):
    print(path)


def uses_its_module_inside():
    def deeper():
        return [build_spec(name) for name in "ab"]

    print(deeper())


async def async_function():
    pass


class ClassWithMethod:
    def method(self):
        pass


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (uses_its_module, "uses ast from its module"),
        (uses_its_module_as_default, "uses sys from its module"),
        (uses_its_module_inside, "uses build_spec from its module"),
        (async_function, "defined with `def`"),
        (ClassWithMethod, "defined with `def`"),
        (ClassWithMethod().method, "not a method"),
        (print, "source can't be read"),
    ],
)
def test_functions_that_would_fail_in_the_cluster_are_refused(function, words):
    with pytest.raises(InvalidSpec, match=words):
        function_command(CustomTrainer(func=function))


def accepts_all(rows, **others):
    print(rows, others)


def positional_only(rows, /):
    print(rows)


@pytest.mark.parametrize(
    ("function", "arguments", "messages"),
    [
        (annotated_function, {}, ["func_args.rows is required: the parameter of annotated_function has no default"]),
        (
            annotated_function,
            {"row": [], "rate": 1},
            [
                "func_args.row: there is no parameter 'row' in annotated_function; did you mean rows?",
                "func_args.rate: there is no parameter 'rate' in annotated_function; it has rows, scale",
                "func_args.rows is required: the parameter of annotated_function has no default",
            ],
        ),
        (accepts_all, {"rate": 1}, ["func_args.rows is required: the parameter of accepts_all has no default"]),
        (
            positional_only,
            {},
            [
                (
                    "func_args.rows cannot be positional-only: arguments are given by name: "
                    "remove the `/` from the parameters of positional_only"
                )
            ],
        ),
    ],
)
def test_arguments_must_match_the_parameters_of_the_function(function, arguments, messages):
    with pytest.raises(InvalidSpec) as refused:
        CustomTrainer(func=function, func_args=arguments)
    assert [str(problem) for problem in refused.value.problems] == messages


def test_a_function_without_arguments_must_have_no_required_parameters():
    trainer = CustomTrainer(func=annotated_function)  # an Airflow task knows its arguments only in a run
    with pytest.raises(InvalidSpec, match=r"trainer\.func_args\.rows is required"):
        function_command(trainer)
    assert CustomTrainer(func=accepts_all, func_args={"rows": [], "rate": 1}).func is accepts_all


def test_the_hash_of_a_function_without_source_is_refused():
    with pytest.raises(InvalidSpec, match="source can't be read"):
        spec_hash(TrainJob(trainer=CustomTrainer(func=print)))


def test_a_function_that_is_too_long_is_refused(tmp_path, monkeypatch):
    import importlib

    (tmp_path / "long_module.py").write_text(f"def train():\n    return {'x' * 70_000!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidSpec, match="at most 65536"):
        function_command(CustomTrainer(func=importlib.import_module("long_module").train))
