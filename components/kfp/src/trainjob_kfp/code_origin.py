"""Commit of a project's code, which the launcher reads from an annotation of its own pod.

It is no part of a component's arguments: Kubeflow Pipelines would not find the cached result of the same files in
another commit. Annotations do not count (KFP 2.17, backend/src/v2/cacheutils/cache.go).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest import labels
from trainjob.spec import BuiltinTrainer, PackedCode, Step, TrainJob
from trainjob.status.nested_fields import get_mapping

_FIELDS = ("commit", "branch", "modified")


def build_platform_config(code: PackedCode) -> dict[str, Any]:
    """Return the platform configuration of a task, which annotates its pod.

    Without a commit, it is empty.
    """
    if not code.commit:
        return {}
    text = json.dumps({"sha256": code.sha256, **{name: getattr(code, name) for name in _FIELDS}})
    return {"kubernetes": {"podMetadata": {"annotations": {labels.CODE: text}}}}


def add_origin(request: Step, pod: Mapping[str, Any] | None) -> Step:
    """Return a request whose code has the commit in the annotation of the launcher's pod.

    A request without code, or with code of another digest, is returned unchanged.

    Args:
        request: the request.
        pod: the launcher's own pod, if it was read.
    """
    if not isinstance(request, TrainJob) or isinstance(request.trainer, BuiltinTrainer):
        return request
    code, found = request.trainer.code, labels.get_code(get_mapping(pod or {}, "metadata"))
    if not isinstance(code, PackedCode) or found.get("sha256") != code.sha256:
        return request
    try:
        given = {**dict(code), **{name: found[name] for name in _FIELDS if name in found}}
        trainer = request.trainer.model_copy(update={"code": PackedCode.from_object(given)})
    except InvalidSpec:  # a user has changed the annotation
        return request
    return request.model_copy(update={"trainer": trainer})
