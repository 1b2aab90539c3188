"""Adaptation of a manifest to the installed Trainer: fields of one version become those of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest.dialect import MANAGER, Dialect
from trainjob.spec.trainer_versions import find_field_problems
from trainjob.status.nested_fields import get_list, get_mapping, get_str

_OVERRIDES, _PATCHES = "podTemplateOverrides", "runtimePatches"
_Items = list[dict[str, Any]]


def adapt_manifest(manifest: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return a TrainJob with the fields that the installed Trainer has.

    `podTemplateOverrides` (Trainer 2.1) and `runtimePatches` of pods (2.2 and later) are converted into each other.

    Args:
        manifest: the TrainJob as its author wrote it.
        dialect: shape of the API on the cluster.

    Raises:
        InvalidSpec: the error names each field of another version that can't be converted, and what to write.
    """
    given, converted = manifest["spec"], {}
    if dialect is Dialect.V2_2 and _PATCHES not in given and (patches := _to_patches(_read_items(given, _OVERRIDES))):
        converted = {_OVERRIDES: None, _PATCHES: patches}
    if (
        dialect is Dialect.V2_1
        and _OVERRIDES not in given
        and (overrides := _to_overrides(_read_items(given, _PATCHES)))
    ):
        converted = {_PATCHES: None, _OVERRIDES: overrides}
    spec = {name: value for name, value in {**given, **converted}.items() if value is not None}
    if problems := list(find_field_problems(spec, dialect.value)):
        raise InvalidSpec([replace(one, field=f"manifest.{one.field}") for one in problems])
    return {**manifest, "spec": spec}


def _read_items(spec: Mapping[str, Any], name: str) -> _Items:
    """Return a list of objects; empty if the field has another form."""
    found = get_list(spec, name)
    return [dict(item) for item in found] if found == spec.get(name) else []


def _to_patches(overrides: _Items) -> _Items:
    """Return the `runtimePatches` of overrides; empty if an override has another form."""
    patches = []
    for number, override in enumerate(overrides, start=1):
        names = [get_str(target, "name") for target in get_list(override, "targetJobs")]
        pod = {name: get_mapping(override, name) for name in ("metadata", "spec") if get_mapping(override, name)}
        if not names or override != _build_override(names, pod):
            return []
        patches.append(_build_patch(MANAGER if number == 1 else f"{MANAGER}-{number}", dict.fromkeys(names, pod)))
    return patches


def _to_overrides(patches: _Items) -> _Items:
    """Return the `podTemplateOverrides` of patches; empty if a patch changes more than pods."""
    overrides = []
    for patch in patches:
        jobs = get_list(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        pods = {get_str(job, "name"): get_mapping(job, "template", "spec", "template") for job in jobs}
        if patch != _build_patch(get_str(patch, "manager"), pods):
            return []
        overrides += [_build_override([name], pod) for name, pod in pods.items()]
    return overrides


def _build_override(names: list[str], pod: Mapping[str, Any]) -> dict[str, Any]:
    return {"targetJobs": [{"name": name} for name in names], **pod}


def _build_patch(manager: str, pods: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    jobs = [{"name": name, "template": {"spec": {"template": pod}}} for name, pod in pods.items()]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
