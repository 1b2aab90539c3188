"""Fuzz tests of requests: each is refused with `InvalidSpec`, or becomes a TrainJob that can be sent as JSON."""

from __future__ import annotations

import json
import posixpath
import re
from datetime import timedelta
from urllib.parse import urlsplit

from hypothesis import strategies as st

from tests.chaos.fuzz.fuzzing import JSON, damaged_json, edge_cases, fuzz
from tests.chaos.fuzz.objects import TRAINJOB
from trainjob.errors import InvalidSpec
from trainjob.function_source import function_from_source
from trainjob.manifest import Dialect, build_trainjob, detect_dialect, job_name, labels, spec_hash, to_trainjob
from trainjob.programs.export.destinations import Access, create_target
from trainjob.spec import (
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    TrainJob,
    TrainJobManifest,
)

NAME = re.compile(r"[a-z]([-a-z0-9]{0,31}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
SHARED = {
    "name": "nightly",
    "workspace": {"claim": "w", "sub_path": "team/a"},
    "volumes": [{"name": "cache", "source": {"emptyDir": {}}, "mount_path": "/cache", "sub_path": "x"}],
    "placement": {"node_selector": {"gpu": "a100"}, "tolerations": [{"key": "gpu"}], "affinity": {"nodeAffinity": {}}},
    "queue": "gpu",
    "deadline": 3600,
    "env": {"A": "1", "TOKEN": {"name": "s", "key": "k"}},
    "secret": {"name": "hf", "keys": {"HF_TOKEN": "token"}},
}
FETCH = {**SHARED, "storage_uri": "hf://org/name", "ignore_patterns": ["*.bin"], "resources": {"memory": "4Gi"}}
CONFIG = {
    "dtype": "bf16",
    "epochs": 3,
    "num_nodes": 1,
    "peft_config": {"lora_rank": 8, "lora_attn_modules": ["q_proj"], "lora_dropout": 0.1},
    "dataset_preprocess_config": {"split": "train", "new_system_prompt": "Be brief.", "column_map": {"input": "q"}},
    "resources_per_node": {"gpu": 1, "memory": "64Gi"},
    "overrides": ["a.b=c", "~d"],
}
STEPS = [
    (InitializeDataset, {**FETCH, "endpoint": "https://s3.example", "region": "eu-central-1"}),
    (InitializeModel, FETCH),
    (FineTune, {**SHARED, "model": "llama3.2-1b", "config": CONFIG, "dataset_path": "data", "output_path": "out"}),
    (
        FineTune,
        {
            "model": "llama3.2-1b",
            "dataset": "hf://org/name/sub/dir",
            "model_initializer": "hf://org/name",
            "config": CONFIG,
        },
    ),
    (ExportModel, {**SHARED, "destination": "s3://bucket/path", "output_path": "o", "metadata": {"a": [1, {"b": 2}]}}),
    (
        TrainJob,
        {
            **{name: value for name, value in SHARED.items() if name not in ("env", "secret")},
            "trainer": {
                "image": "i",
                "command": ["python", "-c", "1"],
                "args": ["x"],
                "env": SHARED["env"],
                "num_nodes": 2,
            },
            "runtime": {"name": "torch-distributed"},
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
        },
    ),
]
MANIFEST = {name: TRAINJOB[name] for name in ("apiVersion", "kind")} | {
    "metadata": {"name": "nightly", "namespace": "ml", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {
        "runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"},
        "trainer": {"numNodes": 2, "env": [{"name": "A", "value": "1"}]},
        "initializer": {"dataset": {"storageUri": "hf://a/b", "env": [{"name": "B", "value": "2"}]}},
    },
}


def build_request(kind, values):
    """Build a request in every dialect; return `InvalidSpec`, or `TrainJob` if it can be sent."""
    try:
        step = kind.from_object(values)
        job = to_trainjob(step)
        name = job_name(job.name or "t", "0" * 16, 1)
        dialects = [dialect for dialect in Dialect if _can_build(job, name, dialect)]
        assert re.fullmatch(r"[0-9a-f]{16}", spec_hash(step))
    except InvalidSpec as error:
        assert error.problems
        assert str(error)
        return "InvalidSpec"
    return "TrainJob" if dialects else "InvalidSpec"


def _can_build(job, name, dialect):
    try:
        manifest = build_trainjob(job, name=name, namespace="team", dialect=dialect)
    except InvalidSpec:
        return False
    json.dumps(manifest, allow_nan=False)
    arguments = (manifest["spec"].get("trainer") or {}).get("args") or ()
    assert all(".." not in each.partition("=")[2].split("/") for each in arguments if isinstance(each, str))
    return True


def make_step_test(number):
    """Create the fuzz test of the step with this number."""
    kind, given = STEPS[number]

    @fuzz(f"{kind.__name__}{' (inline)' * (number == 3)}", 150, given=damaged_json(given) | JSON | edge_cases)
    def check(given):
        return build_request(kind, given)

    return check


(
    test_initialize_dataset,
    test_initialize_model,
    test_fine_tune,
    test_fine_tune_inline,
    test_export_model,
    test_train_job,
) = map(make_step_test, range(len(STEPS)))


@fuzz("TrainJobManifest, as a dict", 300, given=damaged_json(MANIFEST) | JSON | edge_cases)
def test_a_manifest_as_a_dict_is_refused_or_built(given):
    return build_request(TrainJobManifest, {"manifest": given})


# Pieces of YAML with a special meaning, which are put into or around a manifest in any order.
PIECES = [
    "- ",
    ": ",
    "? ",
    "&a ",
    "*a",
    "<<: *a",
    "{",
    "}",
    "[",
    "]",
    "\n",
    "  ",
    "!!python/object/apply:os.system ",
    "!!binary ",
    "|",
    ">",
]
PIECES += [
    "2020-13-45",
    ".nan",
    "0x_",
    "9" * 5000,
    "%YAML 9.9\n",
    "---\n",
    "...\n",
    "#",
    "\t",
    "\0",
    "\ud800",
    "\ufeff",
    "x",
    '"',
    "'",
    "~",
]


@fuzz(
    "TrainJobManifest, as text",
    300,
    pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12),
    position=st.integers(0, 400),
    replace_all=st.booleans(),
)
def test_a_manifest_as_text_is_refused_or_built(pieces, position, replace_all):
    text, noise = json.dumps(MANIFEST, indent=2), "".join(pieces)
    return build_request(
        TrainJobManifest, {"manifest": noise if replace_all else text[:position] + noise + text[position:]}
    )


@fuzz(
    "TrainJobManifest, deep text",
    12,
    opening=st.sampled_from(["[", "{a: ", "- ", "? ", '{"a":', "[["]),
    depth=st.integers(50, 10_000),
)
def test_deeply_nested_text_is_refused_or_built(opening, depth):
    return build_request(TrainJobManifest, {"manifest": opening * depth})


@fuzz("names and labels: any text", 300, text=st.text(max_size=80) | edge_cases.map(str), attempt=st.integers(0, 10**9))
def test_names_and_labels_are_valid_for_any_text(text, attempt):
    name = job_name(text, "0" * 16, attempt)
    assert NAME.fullmatch(name)
    assert LABEL.fullmatch(labels.label_value(text))
    return "name"


URIS = st.tuples(
    st.sampled_from(
        ["hf://", "s3://", "file://", "file:///workspace/", "/workspace/", "cache://", "gs://", "", "http://", "../"]
    ),
    st.lists(
        st.sampled_from(
            [
                "a",
                "b",
                "..",
                ".",
                "",
                "//",
                "%2e%2e",
                "@main",
                "u:p@h",
                "output",
                "\0",
                "\n",
                "-x",
                "$(id)",
                "é",
                "[",
                "]",
            ]
        ),
        max_size=6,
    ),
).map(lambda parts: parts[0] + "/".join(parts[1]))


@fuzz("URIs of destinations and datasets", 400, uri=URIS | st.text(max_size=12))
def test_no_uri_leaves_its_folder_or_shows_credentials(uri):
    result = "InvalidSpec"
    for kind in (InitializeDataset, InitializeModel):
        try:
            assert ".." not in kind(storage_uri=uri, workspace="w").storage_uri.split("/")
            result = "a source"
        except InvalidSpec as error:
            assert "u:p@" not in str(error)
    try:
        destination = ExportModel(destination=uri, workspace="w").destination
        assert ".." not in destination.split("/")
        if "://" not in destination:
            assert posixpath.normpath(destination).startswith("/workspace/")
        result = "a destination"
    except InvalidSpec as error:
        assert "u:p@" not in str(error)
    if result != "InvalidSpec":
        urlsplit(uri)  # lineage and links parse the URI of a step
    try:
        create_target(uri, Access())
    except InvalidSpec as error:
        assert "u:p@" not in str(error)
    return result


PATHS = st.lists(st.sampled_from(["a", "..", ".", "", "~", "-x", "a=b", "\0", "$(id)", "`id`", " "]), max_size=6).map(
    "/".join
)


@fuzz("paths below a workspace", 300, path=PATHS | st.text(max_size=12))
def test_no_path_leaves_the_workspace(path):
    result = "InvalidSpec"
    for field, top in (("output_path", "/workspace/output"), ("dataset_path", "/workspace/dataset")):
        try:
            step = FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", **{field: path})
        except InvalidSpec:
            continue
        result = "a path"
        resolved = posixpath.normpath(f"{top}/{getattr(step, field)}")
        assert resolved == top or resolved.startswith(f"{top}/")
    for given in ({"claim": "c", "sub_path": path}, {"node_path": path}):
        try:
            job = TrainJob.from_object({"workspace": given})
        except InvalidSpec:
            continue
        assert ".." not in f"{job.workspace.sub_path}/{job.workspace.node_path}".split("/")
    return result


@fuzz("deadlines", 200, deadline=st.floats() | st.integers() | st.text(max_size=8) | st.timedeltas() | edge_cases)
def test_a_deadline_is_refused_or_valid(deadline):
    try:
        job = TrainJob(deadline=deadline)
    except InvalidSpec:
        return "InvalidSpec"
    seconds = (
        build_trainjob(job, name="n", namespace="team")["spec"].get("activeDeadlineSeconds") if job.deadline else 1
    )
    assert 1 <= seconds < 2**63 // 10**9
    assert job.deadline is None or job.deadline >= timedelta(seconds=1)
    return "a deadline"


FUNCTION = [
    "def f(a, b=1):",
    "async def f():",
    "class f:",
    "\n",
    "    ",
    "return ",
    "a",
    "(",
    ")",
    "-",
    "[",
    "lambda: ",
    "@x\n",
    "\0",
    "é",
    '"""',
    "f'{",
    "yield ",
    "from __future__ import annotations\n",
    "\\",
    "9" * 5000,
    "import os; os.system('x')",
]


@fuzz(
    "functions as text",
    300,
    pieces=st.lists(st.sampled_from(FUNCTION) | st.text(max_size=3), max_size=10),
    repetitions=st.sampled_from([1, 1, 1, 200, 20_000]),
)
def test_a_function_as_text_is_refused_or_callable(pieces, repetitions):
    text = "def f(x):\n    return x" + "".join(piece * repetitions for piece in pieces[:2]) + "".join(pieces[2:])
    try:
        function = function_from_source(text)
    except InvalidSpec:
        return "InvalidSpec"
    assert callable(function)
    return "a function"


@fuzz(
    "fields of a TrainJob's spec: detect_dialect",
    50,
    fields=st.lists(st.text() | st.sampled_from(["podSpecOverrides", "podTemplateOverrides"])),
)
def test_the_dialect_of_any_fields_is_known(fields):
    return detect_dialect(fields).value
