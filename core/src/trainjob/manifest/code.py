"""Code of a project in a TrainJob: the command that unpacks it, the volume from which it comes, and its ConfigMap."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from trainjob.job_variables import CODE_ARCHIVE, CODE_RECORDS
from trainjob.manifest.compatibility import uses_stock_mpi
from trainjob.manifest.environment import get_credential_keys, secret_env
from trainjob.manifest.labels import CODE, MANAGED_BY
from trainjob.manifest.program_packages import (
    CODE_FETCH_PACKAGES,
    CODE_PACKAGES,
    CODE_STORAGE_PACKAGES,
    FETCH_PACKAGES,
)
from trainjob.packing import program_command
from trainjob.spec import BuiltinTrainer, CustomTrainerContainer, PackedCode, Step, TrainJob, Volume
from trainjob.spec.base import invalid_field
from trainjob.spec.code import MAX_CONFIG_MAP_BYTES, ChangingCode
from trainjob.spec.job import Program
from trainjob.spec.secrets import EnvValue
from trainjob.spec.trainer_versions import API_VERSION
from trainjob.spec.trainers import escape_expansion, trainer_image, validate_command
from trainjob.spec.volumes import CHANGES_VOLUME, CODE_VOLUME, WORKSPACE

CODE_FOLDER = f"{WORKSPACE}/.trainjob/code"
"""Folder of the workspace with archives that do not fit into a ConfigMap, each named by its digest."""
_PACKAGES_FOLDER = f"{WORKSPACE}/.trainjob/packages"
_MOUNT_PATH = "/var/run/trainjob/code"
_KEY = "code.tar.gz"
_PARTS_PATH = "/var/run/trainjob/parts"
_LOOP_PACKAGES = ("trainjob.programs.code_loop", *CODE_PACKAGES)
_CHANGES_PATH = "/var/run/trainjob/changes"
_PART_KEY = "part"
_STORAGE_NAME = "trainjob-code"
_STORAGE_TTL = timedelta(hours=1)
# The training's own, because the cluster may require them.
_STORAGE_FIELDS = ("queue", "placement", "labels", "annotations", "queue_timeout", "start_timeout")


def find_code(job: Step) -> PackedCode | None:
    """Return the code that travels with a request; None for none.

    Raises:
        InvalidSpec: the code is not packed: see `trainjob.project_code.pack_request`.
    """
    if not isinstance(job, TrainJob) or isinstance(job.trainer, BuiltinTrainer):
        return None
    code = job.trainer.code
    if code is None or isinstance(code, PackedCode):
        return code
    raise invalid_field("trainer.code", code.path, "it is not packed: call trainjob.project_code.pack_request first")


def needs_workspace(code: PackedCode) -> bool:
    """Return whether the archive of a project is too large for a ConfigMap."""
    return not code.config_map and code.size > MAX_CONFIG_MAP_BYTES


def needs_config_map(code: PackedCode) -> bool:
    """Return whether a TrainJob gets a ConfigMap of its own with the archive of a project."""
    return not (code.config_map or code.uri or needs_workspace(code))


def code_program(source: Program = "packed") -> list[str]:
    """Return the command of the program that unpacks the code of a project."""
    return program_command(*CODE_PACKAGES, source=source)


def unpacking_command(job: TrainJob, code: PackedCode, words: Sequence[str], name: str) -> list[str]:
    """Return the command that unpacks a project and starts the training in its folder.

    Args:
        job: the request.
        code: its code.
        words: the training's own command; empty if a module or script of the project is started.
        name: name of the TrainJob.

    Raises:
        InvalidSpec: the command is too long, would not find the code, or the code needs a workspace.
    """
    if uses_stock_mpi(job):
        _check_mpi(job, code)
    trainer, options = job.trainer, {"--sha256": code.sha256, "--archive": f"{_MOUNT_PATH}/{_KEY}"}
    if needs_workspace(code):
        if job.workspace is None:
            rule = (
                f"more than {MAX_CONFIG_MAP_BYTES} bytes need a workspace: give one, or leave files out with "
                ".trainjobignore"
            )
            raise invalid_field("trainer.code", f"{code.size} bytes, compressed", rule)
        options["--archive"] = f"{CODE_FOLDER}/{code.sha256}.tar.gz"
    if code.requirements:
        options |= {"--requirements": code.requirements, **({"--cache": _PACKAGES_FOLDER} if job.workspace else {})}
    if isinstance(trainer, CustomTrainerContainer):
        starts = {"--module": trainer.module, "--script": trainer.script}
        options |= {name: escape_expansion(value) for name, value in starts.items() if value}
    if code.uri:
        options["--archive"] = CODE_ARCHIVE
    given = [word for option in options.items() for word in option]
    program = code_program(job.program)
    if isinstance(code, ChangingCode):
        given += ["--changes", _CHANGES_PATH, "--idle", f"{code.idle_seconds:g}"]
        program = program_command(*_LOOP_PACKAGES, source=job.program)
    elif job.workspace:
        given += ["--record", f"{WORKSPACE}/{CODE_RECORDS}/{name}.json", escape_expansion(describe_code(code))]
    if code.uri:
        program = [*_fetching_command(code, job.program), *program]
    return list(validate_command((*program, *given, "--", *words), "trainer.command"))


def _check_mpi(job: TrainJob, code: PackedCode) -> None:
    """Refuse code that only the launcher of an MPI runtime would have, and not the nodes.

    Raises:
        InvalidSpec: the code comes from a store, or a command is given.
    """
    launcher = f"only the launcher of {job.runtime.name} would have the code"
    if code.uri:
        raise invalid_field("trainer.code", code.uri, f"{launcher}: give the folder of the project")
    if isinstance(job.trainer, CustomTrainerContainer) and job.trainer.command:
        raise invalid_field("trainer.command", job.trainer.command, f"{launcher}: give module or script")


def _fetching_command(code: PackedCode, source: Program) -> list[str]:
    """Return the beginning of a command that fetches the archive from a store."""
    fetch = program_command(*FETCH_PACKAGES, source=source)
    options = {"--uri": code.uri, "--endpoint": code.endpoint, "--region": code.region, "--fetch": str(len(fetch))}
    given = [word for name, value in options.items() if value for word in (name, escape_expansion(value))]
    return [*program_command(*CODE_FETCH_PACKAGES, source=source), *given, "--", *fetch]


def code_env(code: PackedCode) -> dict[str, EnvValue]:
    """Return the variables with the credentials of the store that has the archive."""
    return secret_env(code.secret, get_credential_keys(code.uri))


def list_code_volumes(job: TrainJob, metadata: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield the volumes of a project's archive and of its changes, each with its mount.

    Args:
        job: the request.
        metadata: metadata of the TrainJob.
    """
    code = find_code(job)
    if isinstance(code, ChangingCode):
        # The pods start without it, because it exists only after the first change.
        source = {"configMap": {"name": changes_name(metadata["name"]), "optional": True}}
        yield source, {"name": CHANGES_VOLUME, "mountPath": _CHANGES_PATH, "readOnly": True}
    if code is None or code.uri or needs_workspace(code):
        return
    name = code.config_map or config_map_name(metadata["name"])
    items = [{"key": _KEY, "path": _KEY}]
    mount = {"name": CODE_VOLUME, "mountPath": _MOUNT_PATH, "readOnly": True}
    yield {"configMap": {"name": name, "items": items}}, mount


def build_storage_request(job: TrainJob, code: PackedCode, part_names: Sequence[str] = ()) -> TrainJob:
    """Return the request that looks for an archive in the workspace, or stores it there.

    It runs where the training would, because other nodes may not reach the workspace.

    Args:
        job: the training.
        code: its code.
        part_names: names of the ConfigMaps with the parts of the archive, in order; without them, the TrainJob only
            looks for the archive.
    """
    command = program_command(*CODE_STORAGE_PACKAGES, source=job.program)
    options = ["--sha256", code.sha256, "--folder", CODE_FOLDER, *(["--parts", _PARTS_PATH] if part_names else [])]
    sources = [
        {"configMap": {"name": name, "items": [{"key": _PART_KEY, "path": f"{number:05}"}]}}
        for number, name in enumerate(part_names)
    ]
    parts = Volume(
        name="trainjob-parts", source={"projected": {"sources": sources}}, mount_path=_PARTS_PATH, read_only=True
    )
    return TrainJob(
        name=_STORAGE_NAME,
        trainer=CustomTrainerContainer(
            image=getattr(job.trainer, "image", None) or trainer_image("dataset-initializer"),
            command=(*command, *options),
            num_nodes=1,
        ),
        workspace=job.workspace,
        volumes=(parts,) if part_names else (),
        program=job.program,
        ttl_after_success=_STORAGE_TTL,  # if the submission dies before it deletes the TrainJob
        ttl_after_failure=_STORAGE_TTL,
        **{name: getattr(job, name) for name in _STORAGE_FIELDS},
    )


def list_part_names(code: PackedCode, key_digest: str) -> list[str]:
    """Return the names of the ConfigMaps with the parts of an archive, for a run key's digest."""
    return [f"{_STORAGE_NAME}-{key_digest}-{number}" for number in range(math.ceil(code.size / MAX_CONFIG_MAP_BYTES))]


def config_map_name(job_name: str) -> str:
    """Return the name of the ConfigMap with the code of a TrainJob."""
    return f"{job_name}-code"


def changes_name(job_name: str) -> str:
    """Return the name of the ConfigMap with the changes of a TrainJob's code."""
    return f"{job_name}-changes"


def build_config_map_metadata(name: str, namespace: str, owner: tuple[str, str] | None) -> dict[str, Any]:
    """Return the metadata of a ConfigMap with the code, or with changes, of a TrainJob.

    Args:
        name: name of the ConfigMap.
        namespace: its namespace.
        owner: name and uid of the TrainJob with which Kubernetes deletes the ConfigMap; None for none.
    """
    owners = []
    if owner:
        owners = [{"apiVersion": API_VERSION, "kind": "TrainJob", "name": owner[0], "uid": owner[1]}]
    return {
        "name": name,
        "namespace": namespace,
        "labels": dict(MANAGED_BY),
        **({"ownerReferences": owners} if owners else {}),
    }


def build_config_map(
    code: PackedCode, name: str, namespace: str, owner: tuple[str, str] | None = None, part: str = ""
) -> dict[str, Any]:
    """Return the ConfigMap with the archive of a project, or with a part of it.

    Args:
        code: the code.
        name: name of the ConfigMap.
        namespace: its namespace.
        owner: name and uid of the TrainJob with which Kubernetes deletes the ConfigMap; None for none.
        part: the part of the archive, in base64; empty for the whole archive.
    """
    metadata = build_config_map_metadata(name, namespace, owner)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, "annotations": {CODE: describe_code(code)}},
        "binaryData": {_PART_KEY: part} if part else {_KEY: code.archive},
        "immutable": True,
    }


def preview_config_map(job: Step, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the ConfigMap of a TrainJob, without an owner; None if it needs none.

    Raises:
        InvalidSpec: the archive is too large: only a submission stores it in the workspace.
    """
    code = find_code(job)
    if code is None or code.config_map or code.uri:
        return None
    if needs_workspace(code):
        rule = f"only a submission can send more than {MAX_CONFIG_MAP_BYTES} bytes: leave out -o"
        raise invalid_field("trainer.code", f"{code.size} bytes, compressed", rule)
    meta = manifest["metadata"]
    return build_config_map(code, config_map_name(meta["name"]), meta["namespace"])


def describe_code(code: PackedCode) -> str:
    """Return the annotation with digest, commit and branch, and whether it is modified."""
    origin = {"commit": code.commit, "branch": code.branch, "modified": code.modified}
    return json.dumps({"sha256": code.sha256, **{name: value for name, value in origin.items() if value}})
