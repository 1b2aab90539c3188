"""Parser of requests in YAML files."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.code_blocks import ALL_BLOCKS, ROOT
from trainjob import FineTune, LoraConfig, TorchTuneConfig, TrainJobManifest
from trainjob.errors import InvalidSpec
from trainjob.manifest.request_parser import STEP_CLASSES, parse_documents
from trainjob.spec.yaml_documents import split_documents

STEP = """
# a comment first
step: FineTune
model: llama3.2-1b
workspace: tickets
deadline: 6h
ttl_after_success: 90
env: {WANDB_API_KEY: {name: wandb, key: token}}
config:
  framework: torchtune
  epochs: 3
  peft_config: {lora_rank: 16}
"""
MANIFEST = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune}
spec: {runtimeRef: {name: torch-distributed}}
"""


def parse_problems(text):
    with pytest.raises(InvalidSpec) as caught:
        parse_documents(text, "file.yaml")
    return [f"{problem.field} | {problem.value} | {problem.allowed}" for problem in caught.value.problems]


def test_a_step_has_a_class_and_the_fields_of_the_python_class():
    [found] = parse_documents(STEP, "file.yaml").requests
    assert found == FineTune(
        model="llama3.2-1b",
        workspace="tickets",
        deadline=timedelta(hours=6),
        ttl_after_success=timedelta(seconds=90),
        env={"WANDB_API_KEY": {"name": "wandb", "key": "token"}},
        config=TorchTuneConfig(epochs=3, peft_config=LoraConfig(lora_rank=16)),
    )


def test_one_file_may_have_both_kinds_and_a_name_applies_to_a_single_request():
    first, second = parse_documents(f"---{MANIFEST}---\n---{STEP}", "file.yaml").requests
    assert isinstance(first, TrainJobManifest)
    assert isinstance(second, FineTune)
    assert [parse_documents(text, "file.yaml", name="mine").requests[0].name for text in (STEP, MANIFEST)] == [
        "mine",
        "mine",
    ]
    document = {"step": "TrainJobManifest", "max_restarts": 3, "manifest": yaml.safe_load(MANIFEST)}
    [request] = parse_documents(yaml.safe_dump(document), "file.yaml", name="mine").requests
    assert (request.name, request.max_restarts) == ("mine", 3)


RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: own}
spec: {template: {}}
"""


DRAFT = """apiVersion: kubeflow.org/v2alpha1
kind: TrainJob
spec:
  runtimeRef: {name: torch-distributed}
  modelConfig: {input: {storageUri: "hf://a/b"}}
  datasetConfig: {storageUri: "hf://a/c"}
"""
LIST = """
apiVersion: v1
kind: List
items:
  - apiVersion: trainer.kubeflow.org/v1alpha1
    kind: TrainingRuntime
    metadata: {name: own}
    spec: {template: {}}
  - apiVersion: trainer.kubeflow.org/v1alpha1
    kind: TrainJob
    metadata: {name: tune}
    spec: {runtimeRef: {name: own}}
"""


@pytest.mark.parametrize("kind", ["List", "TrainJobList"])
def test_the_items_of_a_list_are_documents(kind):
    text = LIST.replace("kind: List", f"kind: {kind}")
    found = parse_documents(f"{text}---{MANIFEST}", "file.yaml")
    assert [runtime["metadata"]["name"] for runtime in found.runtimes] == ["own"]
    assert [request.name for request in found.requests] == ["tune", "tune"]
    assert [source.locate("metadata.name") for source in found.sources] == ["file.yaml:11", "file.yaml:16"]
    wrong = parse_problems(text.replace("{runtimeRef: {name: own}}", "{}"))
    assert wrong == [f"file.yaml:12: spec.runtimeRef.name | None | {RUNTIME_RULE}"]
    assert parse_problems("kind: List\nitems: []")[0].startswith("file.yaml | empty | write a TrainJob")


@pytest.mark.parametrize(
    ("text", "line", "placeholder"),
    [
        ("apiVersion: a\nkind: TrainJob\nspec: {trainer: {numNodes: {{ .Values.nodes }}}}", 3, "{{ .Values.nodes }}"),
        ("{% if a %}\nkind: TrainJob\n{% endif %}", 1, "{% if a %}"),
    ],
)
def test_a_template_is_named_as_such(text, line, placeholder):
    [problem] = parse_problems(text)
    assert f"; {placeholder} in line {line} seems to be a placeholder: render the template first" in problem


RUNTIME_RULE = "it must name a training runtime, such as torch-distributed"


def test_training_runtimes_are_no_requests_and_a_name_does_not_apply_to_them():
    found = parse_documents(f"{RUNTIME}---{MANIFEST}", "file.yaml", name="mine")
    assert [runtime["metadata"]["name"] for runtime in found.runtimes] == ["own"]
    assert [request.name for request in found.requests] == ["mine"]


def test_the_example_file_in_the_docs_is_valid():
    page = "docs/reference/command.md"
    [example] = [block.text for block in ALL_BLOCKS if (block.page, block.title) == (page, "tickets.yaml")]
    steps = [type(request).__name__ for request in parse_documents(example, "tickets.yaml").requests]
    assert steps == ["InitializeDataset", "InitializeModel", "FineTune", "ExportModel"]
    documented = re.search(r"^error: (tickets\.yaml.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    with pytest.raises(InvalidSpec) as caught:
        parse_documents(example.replace("epochs: 3", "epochs: 0"), "tickets.yaml")
    assert documented
    assert str(caught.value) == documented[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "file.yaml | empty | write a TrainJob as for kubectl"),
        ("# only a comment\n---\n", "file.yaml | empty | write a TrainJob as for kubectl"),
        ("step: FineTun", "file.yaml:1: step | 'FineTun' | did you mean FineTune? allowed are InitializeDataset, "),
        ("[1]", "file.yaml:1 | 'a list' | write a TrainJob as for kubectl"),
        ("step: TrainJob\ndeadline: soon", "file.yaml:2: deadline | 'soon' | write a duration, such as 30m"),
        ("step: TrainJob\n1: 2", "file.yaml:2: 1 | 2 | there is no field '1' in TrainJob"),
        ("kind: TrainJob\non: 3", "file.yaml:2: true | 3 | "),
        (MANIFEST.replace("{runtimeRef: ", "{x: "), "file.yaml:5: spec.runtimeRef.name | None | it must name"),
        ("kind: PyTorchJob\napiVersion: kubeflow.org/v1", "file.yaml:1: kind | 'PyTorchJob' | it is a job of the"),
        ("kind: Pod", "file.yaml:1: apiVersion | None | it must be trainer.kubeflow.org/v1alpha1"),
        ("step: TrainJob\nkept: 2026-11-22", "file.yaml:2: kept | '2026-11-22' | there is no field 'kept'"),
        (RUNTIME, "file.yaml | training runtimes alone | apply them with `kubectl apply -f FILE`, or add a TrainJob"),
        (RUNTIME.replace("name: own", "uid: u"), "file.yaml:4: metadata.name | None | a training runtime must have a "),
        (RUNTIME.replace("{name: own}", "{name: own, uid: u}"), "file.yaml:4: metadata.uid | 'u' | a new training "),
        (RUNTIME.replace("{template: {}}", "3"), "file.yaml:5: spec | 3 | it must be a mapping"),
        ("kind: TrainingRuntime", "file.yaml:1: apiVersion | None | TrainingRuntimes have apiVersion trainer.kubeflow"),
        (RUNTIME.replace("trainer.kubeflow.org", "kubeflow.org"), "file.yaml:2: apiVersion | 'kubeflow.org/v1alpha1' "),
        (DRAFT, "file.yaml:1: apiVersion | 'kubeflow.org/v2alpha1' | TrainJobs have apiVersion trainer.kubeflow.org/v"),
        (DRAFT, "file.yaml:5: spec.modelConfig | a dict | no released Trainer has this field in "),
        (DRAFT, "file.yaml:6: spec.datasetConfig | a dict | no released Trainer has this field "),
        ("apiVersion: trainer.kubeflow.org/v1beta1\nkind: TrainJob", "file.yaml:1: apiVersion | 'trainer.kubeflow.org"),
        (MANIFEST.replace("spec: {", "").replace("}}", "}"), "file.yaml:5: runtimeRef | a dict | it belongs below spe"),
        (MANIFEST.replace("metadata: {name: tune}", "name: a"), "file.yaml:4: name | 'a' | it belongs below metadata"),
        (MANIFEST.replace("{runtimeRef", "{numNodes: 2, runtimeRef"), "file.yaml:5: spec.numNodes | 2 | it belongs be"),
        (MANIFEST.replace("name: tune", "name: <NAME>"), "file.yaml:4: metadata.name | '<NAME>' | <NAME> seems to be "),
        (MANIFEST.replace("torch-distributed", "'${FRAME}-1'"), "file.yaml:5: spec.runtimeRef.name | '${FRAME}-1' | $"),
        (MANIFEST.replace("tune", "'{{ name }}'"), "file.yaml:4: metadata.name | '{{ name }}' | {{ name }} seems to b"),
        (
            MANIFEST.replace("}}", "}, trainer: {image: 'a:${TAG}'}}"),
            "file.yaml:5: spec.trainer.image | 'a:${TAG}' | ${TAG} seems to be a placeholder: replace it",
        ),
        (f"{STEP}---\nstep: [", "file.yaml:13 | 'a text of 11 characters' | it must be YAML or JSON: "),
        ("step: TrainJob\nenv: {HF_TOKEN: hf_abc}", "file.yaml:2: env | *** | there is no field 'env' in T"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_and_field(text, expected):
    assert [line for line in parse_problems(text) if line.startswith(expected)], parse_problems(text)
    assert "hf_abc" not in str(parse_problems(text))


def test_an_error_lists_all_problems_of_a_file():
    assert len(parse_problems("step: FineTune\n---\nstep: FineTun\n---\n{")) >= 3


KEYS = st.text() | st.sampled_from(["step", "kind", "trainer", "deadline"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([*STEP_CLASSES]),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)


@given(st.text() | VALUES.map(yaml.safe_dump))
def test_any_text_is_parsed_or_refused_with_invalid_spec(text):
    try:
        assert parse_documents(text, "file.yaml").requests
    except InvalidSpec as error:
        assert all(problem.field.startswith("file.yaml") for problem in error.problems)


@given(st.lists(st.sampled_from(["a: 1\n", "# b\n", "---\n", "--- c\n", "|\n ---\n", "----\n", "\n"])))
def test_splitting_keeps_the_whole_text_and_its_line_numbers(parts):
    text = "".join(parts)
    lines = text.splitlines(keepends=True)
    for line, document in split_documents(text):
        own = document.splitlines(keepends=True)
        assert lines[line - 1 : line - 1 + len(own)] == own
    kept = [
        line for _, document in split_documents(text) for line in document.splitlines() if ":" in line or "c" in line
    ]
    assert kept == [line for line in text.splitlines() if ":" in line or "c" in line]
