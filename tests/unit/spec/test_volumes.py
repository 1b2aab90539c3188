"""Workspaces and volumes: validation, manifests in each dialect of the API, and hashes."""

from __future__ import annotations

import json
import posixpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    InvalidSpec,
    TrainJob,
    Volume,
    WorkspaceVolume,
)
from trainjob.manifest import Dialect, build_trainjob, spec_hash, to_trainjob

CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}
EMPTY = {"emptyDir": {}}
INITIALIZER_SOURCES = {"dataset": "hf://a/b", "model_initializer": "hf://c/d"}


def volume(name="data", source=CLAIM, mount_path="/data", **fields):
    return Volume(name=name, source=source, mount_path=mount_path, **fields)


def job(*volumes, **fields):
    return TrainJob(trainer=CustomTrainerContainer(image="i", command=("c",)), volumes=volumes, **fields)


def dataset(*volumes, **fields):
    return InitializeDataset(**{"storage_uri": "hf://a/b", "workspace": "w", "volumes": volumes, **fields})


# -- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "field", "value", "allowed"),
    [
        (lambda: volume(name="Data"), "name", "'Data'", "lower case"),
        (lambda: volume(name="a" * 64), "name", "a" * 64, "at most 63"),
        (lambda: volume(name="a.b"), "name", "'a.b'", "lower case"),
        (lambda: volume(name=""), "name", "''", "lower case"),
        (lambda: volume(name="workspace"), "name", "'workspace'", "another name"),
        (lambda: volume(name="initializer"), "name", "'initializer'", "another name"),
        (lambda: volume(source={}), "source", "[]", "one kind"),
        (lambda: volume(source={**CLAIM, **EMPTY}), "source", "persistentVolumeClaim", "one kind"),
        (lambda: volume(source={"emptyDir": None}), "source.emptyDir", "None", "a mapping"),
        (lambda: volume(source={"secret": "s"}), "source.secret", "***", "a mapping"),
        (lambda: volume(source={"emptyDir": {"sizeLimit": {1}}}), "source", "a dict", "JSON"),
        (lambda: volume(source="c"), "source", "'c'", "it must be a dict"),
        (lambda: volume(mount_path="data"), "mount_path", "'data'", "absolute"),
        (lambda: volume(mount_path="/"), "mount_path", "'/'", "other than /"),
        (lambda: volume(mount_path="//."), "mount_path", "'//.'", "other than /"),
        (lambda: volume(mount_path="/a/../b"), "mount_path", "'/a/../b'", "'..'"),
        (lambda: volume(mount_path="/a:b"), "mount_path", "'/a:b'", "':'"),
        (lambda: volume(mount_path=""), "mount_path", "''", "absolute"),
        (lambda: volume(sub_path="/a"), "sub_path", "'/a'", "relative path"),
        (lambda: volume(sub_path="a/../../b"), "sub_path", "'a/../../b'", "'..'"),
        (WorkspaceVolume, "claim", "''", "node_path"),
        (lambda: WorkspaceVolume(sub_path="a"), "claim", "''", "node_path"),
        (lambda: WorkspaceVolume(claim="c", node_path="/d"), "node_path", "'/d'", "only one of claim and node_path"),
        (lambda: WorkspaceVolume(node_path="d"), "node_path", "'d'", "absolute"),
        (lambda: WorkspaceVolume(node_path="/d/.."), "node_path", "'/d/..'", "'..'"),
        (lambda: WorkspaceVolume(claim="c", sub_path="../a"), "sub_path", "'../a'", "'..'"),
        (lambda: dataset(workspace=""), "workspace.claim", "''", "node_path"),
        (lambda: job({"name": "a", "source": EMPTY}), "volumes[0].mount_path", "nothing", ""),
        (
            lambda: job(volume(), volume("b", mount_path="/data/")),
            "volumes[1].mount_path",
            "'/data'",
            "volumes[0] is mounted there",
        ),
        (
            lambda: job(volume(), volume(source=EMPTY, mount_path="/b")),
            "volumes[1].name",
            "'data'",
            "volumes[0] has the same name and another source",
        ),
        (
            lambda: job(*(volume(mount_path=f"/m{number}") for number in range(16))),
            "volumes[15].name",
            "'data'",
            "15 times",
        ),
        (
            lambda: job(*(volume(f"v{number}", mount_path=f"/m{number}") for number in range(128))),
            "volumes",
            "128 volumes",
            "at most 127",
        ),
        (
            lambda: job(volume(), volume("b", mount_path="/workspace"), workspace="w"),
            "volumes[1].mount_path",
            "'/workspace'",
            "the workspace is mounted there",
        ),
        (
            lambda: dataset(volume(mount_path="/workspace")),
            "volumes[0].mount_path",
            "'/workspace'",
            "the step's workspace is mounted there",
        ),
        # Accepted by the server; then JobSet can't create the Jobs and the TrainJob stays without a status.
        (
            lambda: FineTune(
                model="llama3.2-1b",
                config={"framework": "torchtune"},
                volumes=[volume(mount_path="/workspace/.")],
                **INITIALIZER_SOURCES,
            ),
            "volumes[0].mount_path",
            "'/workspace'",
            "the step's workspace",
        ),
        (
            lambda: job(volume(mount_path="/workspace"), runtime="torchtune-llama3.2-1b"),
            "volumes[0].mount_path",
            "'/workspace'",
            "training on torchtune-llama3.2-1b share",
        ),
        (
            lambda: job(volume(mount_path="/workspace"), runtime="own", initializer={"model": "hf://a/b"}),
            "volumes[0].mount_path",
            "'/workspace'",
            "training on own share",
        ),
    ],
)
def test_refused(make, field, value, allowed):
    with pytest.raises(InvalidSpec) as raised:
        make()
    [problem] = raised.value.problems
    assert problem.field == field
    assert value in problem.value
    assert allowed in problem.allowed


def test_an_error_lists_all_conflicts_of_the_volumes():
    with pytest.raises(InvalidSpec) as raised:
        job(volume(), volume(source=EMPTY), volume("b", mount_path="/b"), volume("b", mount_path="/b"))
    fields = ["volumes[1].mount_path", "volumes[1].name", "volumes[3].mount_path"]
    assert [problem.field for problem in raised.value.problems] == fields


@pytest.mark.parametrize(
    "make",
    [
        lambda: job(volume(mount_path="/workspace")),
        lambda: job(volume(mount_path="/workspace/cache"), workspace="w"),
        lambda: FineTune(
            model="llama3.2-1b",
            config={"framework": "torchtune"},
            volumes=[volume(mount_path="/workspace/output")],
            **INITIALIZER_SOURCES,
        ),
        lambda: job(volume(), volume(mount_path="/b", read_only=True), volume("b", mount_path="/data/c")),
        lambda: volume(name="a" * 63),
        lambda: WorkspaceVolume(node_path="/srv/data", sub_path="team"),
    ],
)
def test_allowed(make):
    make()


def test_a_string_stands_for_the_workspaces_claim():
    assert dataset(workspace="w").workspace == WorkspaceVolume(claim="w")
    assert (WorkspaceVolume(claim="w").location, WorkspaceVolume(node_path="/d/").location) == ("w", "/d")


def test_a_source_is_copied():
    source: dict[str, Any] = {"secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}}
    created = volume(source=source)
    source["secret"]["items"].clear()
    assert created.source["secret"]["items"] == [{"key": "k", "path": "p"}]


@given(st.text(st.sampled_from("/.:a\n"), max_size=9))
def test_paths_are_normal_or_refused(text):
    """An accepted path is normalized, so that two spellings of a path cannot be two mounts."""
    try:
        path = volume(mount_path=text).mount_path
    except InvalidSpec:
        assert not text.startswith("/") or ":" in text or ".." in text.split("/") or not text.strip("/.")
        return
    assert path == posixpath.normpath(path) != "/"
    assert [part for part in text.split("/") if part not in ("", ".")] == path.split("/")[1:]
    with pytest.raises(InvalidSpec):
        job(volume(mount_path=text), volume("b", mount_path=path))


@given(st.text(st.sampled_from("/.a"), max_size=9))
def test_sub_paths_never_leave_the_volume(text):
    try:
        path = WorkspaceVolume(claim="c", sub_path=text).sub_path
    except InvalidSpec:
        assert text.startswith("/") or ".." in text.split("/")
        return
    assert posixpath.normpath(f"/volume/{text}") == f"/volume/{path}".rstrip("/")
    assert volume(sub_path=text).sub_path == path


# -- manifests ----------------------------------------------------------------------------------------------------


def patch_entries(step, dialect):
    """Return the patched replicated jobs and pods, in their order."""
    sent = build_trainjob(to_trainjob(step), name="n", namespace="ns", dialect=dialect)["spec"]
    if dialect is Dialect.V2_2:
        patches = sent["runtimePatches"]
        assert len({patch["manager"] for patch in patches}) == len(patches)
        return [
            (replicated["name"], replicated["template"]["spec"]["template"]["spec"])
            for patch in patches
            for replicated in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        ]
    overrides = sent["podSpecOverrides" if dialect is Dialect.V2_0 else "podTemplateOverrides"]
    return [
        (target["name"], entry.get("spec", {key: part for key, part in entry.items() if key != "targetJobs"}))
        for entry in overrides
        for target in entry["targetJobs"]
    ]


@pytest.mark.parametrize("dialect", Dialect)
def test_workspace_and_volumes_are_in_one_patch(dialect):
    secret = {"secret": {"secretName": "s"}}
    step = job(
        volume(sub_path="a/b", read_only=True),
        volume("keys", secret, "/keys"),
        workspace=WorkspaceVolume(claim="w", sub_path="team"),
        placement={"node_selector": {"a": "b"}},
    )
    [(name, pod)] = patch_entries(step, dialect)
    assert name == "node"
    assert pod["nodeSelector"] == {"a": "b"}
    assert pod["volumes"] == [
        {"name": "workspace", "persistentVolumeClaim": {"claimName": "w"}},
        {"name": "data", **CLAIM},
        {"name": "keys", **secret},
    ]
    mounts = [
        {"name": "workspace", "mountPath": "/workspace", "subPath": "team"},
        {"name": "data", "mountPath": "/data", "subPath": "a/b", "readOnly": True},
        {"name": "keys", "mountPath": "/keys"},
    ]
    assert pod["containers"] == [{"name": "node", "volumeMounts": mounts}]


@pytest.mark.parametrize("dialect", Dialect)
def test_a_folder_of_the_node_must_exist(dialect):
    [(_, pod)] = patch_entries(dataset(workspace=WorkspaceVolume(node_path="/srv/data", sub_path="a")), dialect)
    assert pod["volumes"] == [{"name": "workspace", "hostPath": {"path": "/srv/data", "type": "Directory"}}]
    [container] = pod["containers"]
    assert container["volumeMounts"] == [{"name": "workspace", "mountPath": "/workspace", "subPath": "a"}]


@pytest.mark.parametrize("dialect", Dialect)
def test_initializers_have_the_volumes_too(dialect):
    step = FineTune(
        model="llama3.2-1b",
        config={"framework": "torchtune"},
        volumes=[volume(mount_path="/cache")],
        **INITIALIZER_SOURCES,
    )
    found = patch_entries(step, dialect)
    assert [name for name, _ in found] == ["node", "dataset-initializer", "model-initializer"]
    for name, pod in found:
        assert pod["volumes"] == [{"name": "data", **CLAIM}]
        assert pod["containers"] == [{"name": name, "volumeMounts": [{"name": "data", "mountPath": "/cache"}]}]


REPEATED_VOLUMES = (
    volume("a", EMPTY, "/a"),
    volume("b", EMPTY, "/b"),
    volume("a", EMPTY, "/c", sub_path="x"),
    volume("a", EMPTY, "/d"),
)


@pytest.mark.parametrize("dialect", [Dialect.V2_1, Dialect.V2_2])
def test_a_volume_mounted_again_is_one_volume(dialect):
    """The API's list of mounts has each volume once, so each further mount is in its own patch or entry."""
    first, *more = [
        pod for _, pod in patch_entries(job(*REPEATED_VOLUMES, placement={"node_selector": {"a": "b"}}), dialect)
    ]
    assert first["volumes"] == [{"name": "a", **EMPTY}, {"name": "b", **EMPTY}]
    assert [list(pod) for pod in more] == [["containers"], ["containers"]]
    mounts = [[mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]] for pod in (first, *more)]
    assert mounts == [["/a", "/b"], ["/c"], ["/d"]]


def test_trainer_2_0_mounts_a_volume_once():
    with pytest.raises(InvalidSpec) as raised:
        patch_entries(job(*REPEATED_VOLUMES), Dialect.V2_0)
    [problem] = raised.value.problems
    assert (problem.field, problem.value) == ("volumes", "'a, several times'")
    assert "needs Trainer 2.1 or later" in problem.allowed
    assert "its own volume name" in problem.allowed


@given(
    st.permutations([*REPEATED_VOLUMES, volume("e", CLAIM, "/e"), volume("e", CLAIM, "/f")]), st.sampled_from(Dialect)
)
def test_no_mount_is_lost_or_duplicated(volumes, dialect):
    try:
        pods = [pod for _, pod in patch_entries(job(*volumes, workspace="w"), dialect)]
    except InvalidSpec:
        assert dialect is Dialect.V2_0
        return
    lists = [pod["containers"][0]["volumeMounts"] for pod in pods]
    assert all(len({mount["name"] for mount in mounts}) == len(mounts) for mounts in lists)
    paths = sorted((mount["name"], mount["mountPath"]) for mounts in lists for mount in mounts)
    assert paths == sorted([("workspace", "/workspace"), *((item.name, item.mount_path) for item in volumes)])


# -- the hash -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (dataset(), "cfe02529a3348f47"),
        (InitializeModel(storage_uri="s3://b/m", workspace="w", secret="s"), "64e6655e10d2fc72"),
        (FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, **INITIALIZER_SOURCES), "4680221ed3c6b7b3"),
        (
            ExportModel(workspace="w", destination="s3://b/p", placement={"node_selector": {"a": "b"}}),
            "34355c8bcdc1c49e",
        ),
        (job(workspace="w", queue="q"), "03bb9f8f8476d28d"),
        (job(), "fa345d4cd136f86d"),
    ],
)
def test_the_hash_of_a_request_without_volumes_is_unchanged(step, expected):
    """The hashes are those of the release before volumes; another hash would replace running jobs on a retry."""
    assert spec_hash(step) == expected


def test_volumes_and_workspaces_change_the_hash():
    requests = [
        job(),
        job(volume()),
        job(volume(sub_path="a")),
        job(volume(read_only=True)),
        job(volume(source=EMPTY)),
        job(workspace="w"),
        job(workspace=WorkspaceVolume(claim="w", sub_path="a")),
        job(workspace=WorkspaceVolume(node_path="/w")),
    ]
    assert len({spec_hash(request) for request in requests}) == len(requests)
    assert spec_hash(job(volume(mount_path="/data/"))) == spec_hash(job(json.loads(volume().model_dump_json())))
