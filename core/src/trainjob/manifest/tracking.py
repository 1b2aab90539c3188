"""Tracked run and environment of a training."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.frameworks.tracking.settings import TrackedRun
from trainjob.manifest import labels
from trainjob.manifest.environment import MLFLOW_KEYS, secret_env
from trainjob.spec import FineTune, MLflow, TensorBoard, WandB
from trainjob.spec.secrets import EnvValue
from trainjob.spec.tracking import NO_PROJECT_CHARACTER, Tracking
from trainjob.spec.volumes import WORKSPACE
from trainjob.status.nested_fields import get_str

_WANDB_KEYS = ("WANDB_API_KEY",)
_DEFAULT_GROUP = "trainjob"  # experiment or project of a TrainJob without a workflow
LIBRARIES = {"mlflow": "mlflow", "wandb": "wandb", "tensorboard": "tensorboardx"}
_MAX_PARAMETER_LENGTH = 500  # characters; all parameters are part of one argument, which may have 65,536
# A map index of Airflow, or an iteration of KFP's loops. A hash alone is of another group, or of kfp.local.
_ITERATION = re.compile(r"\d{1,7}(?:-|$)")
_NO_FOLDER_CHARACTER = re.compile(r"[^\w.+=-]+|^\.+$")  # a folder's name is not only dots


def tracking_env(tracking: Tracking) -> dict[str, EnvValue]:
    """Return the environment variables that refer to the tracker's Secret."""
    if isinstance(tracking, MLflow):
        return secret_env(tracking.secret, MLFLOW_KEYS)
    return secret_env(tracking.secret, _WANDB_KEYS) if isinstance(tracking, WandB) else {}


def build_tracked_run(tracking: Tracking, metadata: Mapping[str, Any], dataset: str = "") -> TrackedRun:
    """Return the run of a tracker for a TrainJob.

    All attempts with the same result have the same run, also with other resources, unless a user has the work done
    again.

    Args:
        tracking: the tracker.
        metadata: name, namespace, labels and annotations of the TrainJob.
        dataset: folder of a fetched dataset in the pod; empty without a workspace.
    """
    origin = _read_run_key(metadata)
    name = get_str(metadata, "name")
    run_key, spec_hash, training_hash, renewal = (
        get_str(metadata, "annotations", key)
        for key in (labels.RUN_KEY, labels.SPEC_HASH, labels.TRAINING_HASH, labels.RENEWAL)
    )
    identity = [run_key, training_hash or spec_hash, renewal]
    run_id = hashlib.sha256(json.dumps(identity if any(identity) else [name]).encode()).hexdigest()[:16]
    index = f"[{origin['map_index']}]" if origin.get("map_index") else ""
    title = f"{origin['task']}{index} {origin.get('run', '')}".strip() if origin.get("task") else name
    tags = {**origin, "namespace": get_str(metadata, "namespace"), "name": name}
    if attempt := get_str(metadata, "labels", labels.ATTEMPT):
        tags["attempt"] = attempt
    tags |= {f"code_{key}": _to_text(value) for key, value in labels.get_code(metadata).items()}
    parameters = {key: _to_text(value) for key, value in tracking.parameters.items()}
    return TrackedRun(
        backend=tracking.backend,
        run_id=run_id,
        name=title,
        options={**_build_options(tracking, origin, run_id, dataset), **_build_parent(tracking, metadata)},
        parameters=parameters,
        tags={f"trainjob.{key}": value for key, value in tags.items()},
    )


def list_parameters(step: FineTune) -> dict[str, str | bool | int | float]:
    """Return the parameters of a fine-tuning by name.

    They are its model, its framework, its `resume_from`, and the fields of its configuration that are not None. The
    fields of a nested value have the name of the value before theirs, as in `peft_config.lora_rank`.
    """
    config = step.config.model_dump(mode="json", exclude_none=True)
    start = step.resume_from.model_dump(exclude_none=True) if step.resume_from else {}
    known = {"model": step.model, "framework": step.config.framework, **dict(_flatten(start, "resume_from"))}
    return {**known, **dict(_flatten(config, ""))}


def _flatten(value: Any, name: str) -> Iterator[tuple[str, str | bool | int | float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, str | bool | int | float):
        yield name, value
    elif value:  # a list
        yield name, json.dumps(value)


def _build_options(tracking: Tracking, origin: Mapping[str, str], run_id: str, dataset: str) -> dict[str, str]:
    workflow = origin.get("workflow") or _DEFAULT_GROUP
    if isinstance(tracking, MLflow):
        server = {"tracking_uri": tracking.tracking_uri, "experiment": tracking.experiment or workflow}
        more = {"dataset": dataset, "system_metrics": "true" if tracking.system_metrics else ""}
        return {**server, **{name: value for name, value in more.items() if value}}
    if isinstance(tracking, TensorBoard):
        parts = [
            _NO_FOLDER_CHARACTER.sub("_", part) for part in (workflow, f"{origin.get('task', 'run')}-{run_id[:8]}")
        ]
        return {"folder": "/".join([WORKSPACE, tracking.log_path, *parts])}
    given = {
        "project": tracking.project or NO_PROJECT_CHARACTER.sub("-", workflow),
        "mode": tracking.mode,
        "entity": tracking.entity,
        "base_url": tracking.base_url,
        "group": origin.get("run"),
        "folder": WORKSPACE if tracking.mode == "offline" else None,
    }
    return {name: value for name, value in given.items() if value}


def _build_parent(tracking: Tracking, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the option for MLflow's parent run, which all map indexes of a task share."""
    key = json.loads(get_str(metadata, "annotations", labels.RUN_KEY) or "{}")
    if not isinstance(tracking, MLflow) or not _ITERATION.match(key.pop("map_index", "")):
        return {}
    return {"parent": hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]}


def _read_run_key(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of the run key that are not empty; none without a run key."""
    text = get_str(metadata, "annotations", labels.RUN_KEY)
    parts: dict[str, str] = json.loads(text) if text else {}
    return {name: value for name, value in parts.items() if value and name != "origin"}


def _to_text(value: str | bool | float) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MAX_PARAMETER_LENGTH else f"{text[: _MAX_PARAMETER_LENGTH - 1]}…"
