"""Registration of an export in a loopback Model Registry that checks the published OpenAPI contract."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.programs.export.export_program import RunExport, StartExport
from tests.support.export_runs import make_run, read_tree
from tests.support.registry_server import RegistryServer
from trainjob.errors import InvalidSpec
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob.programs.export.properties import to_properties
from trainjob.spec import ExportModel, ModelRegistry, SecretReference, WorkspaceVolume

TOKEN = "registry-token-of-the-test"
METADATA = {"base_model": "hf://org/base", "run_key": {"engine": "airflow", "run": "2026-11-21"}, "trainjob_uid": "u-1"}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server
    assert server.violations == []


Register = Callable[..., "subprocess.CompletedProcess[str]"]


def registry_arguments(registry: RegistryServer, **more: str) -> list[str]:
    entry = {"server": registry.url, "model": "tickets", "uri": "s3://models/tickets", **more}
    return ["--registry", json.dumps(entry), "--manifest", json.dumps(METADATA)]


@pytest.fixture
def run_registration(workspace: Path, run_export: RunExport, registry: RegistryServer) -> Register:
    """Return a function that exports to a folder and registers the export."""

    def run(env: dict[str, str] | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return run_export(workspace / "export", *registry_arguments(registry, **more), **(env or {}))

    return run


def read_receipt(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1].removeprefix("export: done "))
    return found


def test_model_version_and_artifact_are_registered(run_registration: Register, registry: RegistryServer) -> None:
    done = read_receipt(run_registration(author="night shift"))
    [model], [version], [artifact] = registry.objects.values()
    assert done["registered"] == {
        "model": "tickets",
        "version": done["manifest_sha256"][:12],
        "model_id": model["id"],
        "version_id": version["id"],
        "artifact_id": artifact["id"],
    }
    assert (version["author"], artifact["uri"]) == ("night shift", "s3://models/tickets")
    [properties] = registry.version_properties().values()
    assert properties["digest"] == done["manifest_sha256"]
    assert {name: properties[name] for name in properties if name.startswith(("metrics.", "parameters."))} == {
        "metrics.steps": "8",
        "metrics.loss": 0.25,
        "metrics.lr": 0.1,
        "metrics.grad_norm": "nan",
        "parameters.epochs": "2",
    }
    assert (properties["base_model"], properties["run_key.run"], properties["trainjob_uid"]) == (
        "hf://org/base",
        "2026-11-21",
        "u-1",
    )


def test_registering_again_changes_nothing(run_registration: Register, registry: RegistryServer) -> None:
    first = read_receipt(run_registration())
    registry.requests.clear()
    assert read_receipt(run_registration()) == {**first, "sent": 0}
    assert {method for method, _ in registry.requests} == {"GET"}


def test_another_export_is_another_version_of_the_same_model(
    workspace: Path, run_registration: Register, registry: RegistryServer
) -> None:
    first = read_receipt(run_registration())["registered"]
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", seed="b")
    second = read_receipt(run_registration())["registered"]
    assert first["model_id"] == second["model_id"]
    assert len(registry.version_properties()) == 2


def test_a_version_of_another_export_is_refused_before_anything_is_sent(
    workspace: Path, run_registration: Register, registry: RegistryServer
) -> None:
    read_receipt(run_registration(version="v1"))
    before, kept = read_tree(workspace / "export"), json.dumps(registry.objects)
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", seed="b")
    failed = run_registration(version="v1")
    assert failed.returncode == 1
    assert "has a version v1 of tickets already, and it belongs to another export" in failed.stderr
    assert "name another version" in failed.stderr
    assert (read_tree(workspace / "export"), json.dumps(registry.objects)) == (before, kept)


def test_a_failure_after_the_upload_is_retried_without_another_upload(
    workspace: Path, run_registration: Register, registry: RegistryServer
) -> None:
    registry.hook = lambda method, path, after: 403 if method == "POST" and not after else 0
    failed = run_registration()
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
    assert "access denied (403)" in failed.stderr
    assert (workspace / "export" / "manifest.json").exists()
    registry.hook = lambda *_: 0
    again = read_receipt(run_registration())
    assert (again["sent"], len(registry.version_properties())) == (0, 1)


@pytest.mark.parametrize("after", [False, True], ids=["before-the-registry-acts", "before-it-answers"])
def test_a_registration_killed_at_any_request_is_completed_without_duplicates(
    workspace: Path, start_export: StartExport, run_registration: Register, registry: RegistryServer, after: bool
) -> None:
    """Each object exists exactly once after the next registration."""
    # Only POST requests are tested: a kill at a search leaves the state of the previous POST.
    for point in range(3):
        for kept in registry.objects.values():
            kept.clear()
        registry.requests.clear()
        process = start_export(workspace / "export", *registry_arguments(registry))

        def kill(method: str, path: str, now: bool, pid: int = process.pid, point: int = point) -> int:
            created = sum(map(len, registry.objects.values()))
            if method == "POST" and now == after and created == point + after:
                os.kill(pid, signal.SIGKILL)
            return 0

        registry.hook = kill
        process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL
        registry.hook = lambda *_: 0
        read_receipt(run_registration())
        assert [len(kept) for kept in registry.objects.values()] == [1, 1, 1]


def test_a_request_is_repeated_after_503_without_duplicates(
    run_registration: Register, registry: RegistryServer
) -> None:
    """An object that the registry created before it answered 503 is found and not created again."""
    refused: set[tuple[str, str]] = set()

    def once(method: str, path: str, after: bool) -> int:
        if after and method == "POST" and (method, path) not in refused:
            refused.add((method, path))
            return 503
        return 0

    registry.hook = once
    read_receipt(run_registration())
    assert len(refused) == 3
    assert [len(kept) for kept in registry.objects.values()] == [1, 1, 1]


def test_the_token_is_sent_and_an_invalid_one_is_not_shown(
    run_registration: Register, registry: RegistryServer
) -> None:
    registry.token = TOKEN
    failed = run_registration({"REGISTRY_TOKEN": "another-token"})
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
    assert "access denied (401)" in failed.stderr
    assert "another-token" not in failed.stdout + failed.stderr
    read_receipt(run_registration({"REGISTRY_TOKEN": TOKEN}))


def test_the_token_is_not_sent_to_a_redirect_target(run_registration: Register, registry: RegistryServer) -> None:
    with RegistryServer() as other:
        registry.redirect_url = other.url
        registry.hook = lambda *_: 307
        assert "returned 307" in run_registration({"REGISTRY_TOKEN": TOKEN}).stderr
        assert other.requests == []


def test_an_unreachable_registry_is_reported_in_one_sentence(
    workspace: Path, run_export: RunExport, refusing_url: str
) -> None:
    registration = {"server": refusing_url, "model": "tickets", "uri": "s3://models/tickets"}
    failed = run_export(workspace / "export", "--registry", json.dumps(registration))
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
    assert "no response" in failed.stderr
    assert not (workspace / "export").exists()


def test_properties_have_the_types_of_the_contract() -> None:
    properties = to_properties(
        {"a": {"b": 1, "c": 2.5, "d": True}, "e": [1, "x"], "f": None, "g": "", "h": 10**12, "i": -0}
    )
    assert {name: list(typed.values())[1] for name, typed in properties.items()} == {
        "a.b": "1",
        "a.c": 2.5,
        "a.d": True,
        "e": '[1, "x"]',
        "h": "1000000000000",
        "i": "0",
    }
    assert properties["h"]["metadataType"] == "MetadataStringValue"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"server": "registry.example.org"},
            "registry.server cannot be 'registry.example.org': it must be a URI",
        ),
        (
            {"server": "https://me:word@registry"},
            "registry.server cannot be ***: it must not contain a user name or password",
        ),
        ({"server": "https://registry/?a=b"}, "only the server's address"),
        ({"model": ""}, "registry.model cannot be ''"),
        ({"model": "modèle"}, "it must be printable ASCII text"),
        ({"version": " v1"}, "registry.version cannot be ' v1'"),
        ({"token": "abc"}, "registry.token: there is no field"),
        ({"secret": "My Secret"}, "registry.secret cannot be ***: it must be the name of a Secret"),
    ],
)
def test_an_invalid_registry_is_refused_when_the_step_is_created(fields: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        ExportModel(
            workspace="w",
            destination="s3://b/x",
            registry={"server": "https://registry", "model": "tickets", **fields},  # type: ignore[arg-type]
        )
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("destination", "message"),
    [
        (
            "oci://registry/models/tickets",
            "only InitializeDataset and InitializeModel read an image: use a bucket, the Hub",
        ),
        ("ftp://models/tickets", "allowed are hf://… or s3://… or gs://… or az://…"),
    ],
)
def test_an_unsupported_destination_is_refused(destination: str, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        ExportModel(workspace="w", destination=destination)
    assert message in str(refused.value)


def build_trainer(step: ExportModel) -> dict[str, Any]:
    found: dict[str, Any] = build_trainjob(to_trainjob(step), name="n", namespace="ns")["spec"]["trainer"]
    return found


def test_the_step_passes_a_reference_to_the_token_and_not_the_token() -> None:
    secret = SecretReference(name="registry", keys={"REGISTRY_TOKEN": "token"})
    registry = ModelRegistry(server="https://registry/", model="tickets", version="v1", secret=secret)
    trainer = build_trainer(ExportModel(workspace="w", destination="s3://b/x", secret="s3", registry=registry))
    entry = json.loads(trainer["args"][trainer["args"].index("--registry") + 1])
    assert entry == {
        "server": "https://registry",
        "model": "tickets",
        "version": "v1",
        "author": None,
        "uri": "s3://b/x",
    }
    by_name = {variable["name"]: variable["valueFrom"]["secretKeyRef"] for variable in trainer["env"]}
    assert by_name["REGISTRY_TOKEN"] == {"name": "registry", "key": "token"}
    assert by_name["ACCESS_KEY_ID"]["name"] == "s3"
    at = trainer["args"].index("--secret")
    assert trainer["args"][at:] == ["--secret", "s3", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"]


def test_each_secret_without_named_keys_is_checked() -> None:
    registry = ModelRegistry(server="https://registry/", model="tickets", secret="registry")
    trainer = build_trainer(ExportModel(workspace="w", destination="gs://b/x", secret="gcs", registry=registry))
    at = trainer["args"].index("--secret")
    assert trainer["args"][at:] == ["--secret", "gcs", "GOOGLE_CREDENTIALS", "--secret", "registry", "REGISTRY_TOKEN"]


@pytest.mark.parametrize(
    ("workspace", "uri"),
    [
        ({"claim": "tickets"}, "pvc://tickets/export/v1"),
        ({"claim": "tickets", "sub_path": "a/b"}, "pvc://tickets/a/b/export/v1"),
        ({"node_path": "/data/tickets"}, "file:///data/tickets/export/v1"),
    ],
)
def test_a_path_on_the_workspace_is_registered_as_a_uri_of_its_volume(workspace: dict[str, str], uri: str) -> None:
    step = ExportModel(
        workspace=WorkspaceVolume(**workspace),
        destination="/workspace/export/v1/",
        registry=ModelRegistry(server="https://registry", model="tickets"),
    )
    arguments = build_trainer(step)["args"]
    assert json.loads(arguments[arguments.index("--registry") + 1])["uri"] == uri
