"""Identity of a step's result, and the fields that decide the weights of a training.

A request has three identities, from the narrowest to the widest:

* The *request* ([trainjob.manifest.spec_hash][]): all fields. A running TrainJob of the same request is adopted.
* The *result* ([training_hash][]): without the fields that say only how it is computed, such as resources. A TrainJob
  with the same result is adopted when it has succeeded, and not replaced while it runs.
* The *weights* ([weight_fields][]): without the fields that say how long a training lasts, and what is done besides and
  after it. A training with the same weights continues from the checkpoints of an earlier attempt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainjob.manifest.identity import dump_request, get_config, hash_content
from trainjob.manifest.node_counts import get_nodes
from trainjob.spec import FineTune, Step, TrainJob, TrainJobManifest
from trainjob.spec.resources import count_gpus

_DATA_CACHE_RESOURCES = ("head_cpu", "head_mem", "worker_cpu", "worker_mem")
OPERATIONAL_FIELDS: Mapping[str, Sequence[str]] = {
    "": (
        *("placement", "queue", "managed_by", "deadline", "max_restarts", "labels", "annotations", "image"),
        *("resources", "checkpoint_uri", "checkpoint_endpoint", "suspend"),
    ),
    "dataset": _DATA_CACHE_RESOURCES,
    "initializer.dataset": _DATA_CACHE_RESOURCES,
    "trainer": ("image", "resources_per_node", "num_proc_per_node", "shrink_after"),
    "manifest": ("metadata",),
    "manifest.spec": ("managedBy", "suspend", "labels", "annotations", "activeDeadlineSeconds"),
    "manifest.spec.trainer": ("image", "resourcesPerNode", "numProcPerNode"),
}
"""Fields that do not change the result of a step: of the step itself, and of its parts by their paths.

[training_hash][] leaves them out, and those that a framework's configuration names in `operational_fields`. It counts
the processes on a node, which are given or follow from the GPUs. The variables of a `FineTune` do not count either,
because its configuration has everything that a framework reads. The fields that no hash has, such as `name`, are not in
the table.
"""
CONTINUED_FIELDS: Mapping[str, Sequence[str]] = {
    "": ("volumes", "runtime_patches", "secret", "runtime", "workspace", "output_path", "resume", "model_check"),
    "trainer": ("packages_to_install", "pip_index_urls", "num_nodes", "resume"),
}
"""Further fields that may change while a training continues; a framework's configuration names its own ones.

The number of nodes counts as that of all processes.
"""
_OPERATIONAL_VARIABLES = (
    *("NCCL_", "GLOO_", "UCX_", "FI_", "CUDA_", "CUBLAS_", "OMP_", "MKL_", "PYTORCH_", "TORCH", "PIP_"),
    *("HF_", "TRANSFORMERS_", "TOKENIZERS_", "WANDB_", "MLFLOW_", "AWS_", "HTTP_", "HTTPS_", "NO_PROXY", "LOG_"),
    *("PYTHONFAULTHANDLER", "PYTHONUNBUFFERED", "PYTHONWARNINGS"),
)
"""Starts of variables that libraries read to decide how they compute, connect or log."""
_LONGEST_VALUE = 80  # characters of a field's value; a longer one is hashed


def training_hash(step: Step) -> str:
    """Return 16 hex digits that identify the result of a step.

    Two requests with the same hash have the same result. They differ only in resources, placement, queue, limits,
    image, labels, annotations, the variables of libraries, and in how often a training saves and logs. As for
    [trainjob.manifest.spec_hash][], fields at their defaults do not count, and the hash is the same in later releases.

    Raises:
        InvalidSpec: the source of a function cannot be read.
    """
    content = _dump_result(step)
    if (processes := _count_processes(step)) != "1":
        content["processes_per_node"] = processes
    return hash_content(step, content)


def weight_fields(step: FineTune | TrainJob) -> dict[str, Any]:
    """Return the fields that decide the weights of a training, by their paths.

    An attempt continues from the checkpoints of an earlier one if these are the same. Fields at their defaults are left
    out. A long value, such as the source of a function, is replaced by its hash.

    Raises:
        InvalidSpec: the source of a function cannot be read.
    """
    content, config = _dump_result(step), get_config(step)
    for path, names in CONTINUED_FIELDS.items():
        for name in names:
            _remove_field(content, (*_split(path), name))
    if isinstance(step, FineTune) and config:
        names = ("config", "resume_from", *config.step_fields)
        content = {name: value for name, value in content.items() if name in names}
        for name in config.continued_fields:
            _remove_field(content, ("config", *name.split(".", 1)))
    samples = config.samples_per_step if config else None
    for name in ("num_nodes", *(("batch_size", "gradient_accumulation_steps") if samples else ())):
        _remove_field(content, ("config", name))
    size = {"samples_per_step": samples} if samples else {"processes": int(_count_processes(step)) * _count_nodes(step)}
    framework = {"framework": config.framework} if config else {}
    return {**framework, **size, **dict(_flatten(content, ""))}


def _dump_result(step: Step) -> dict[str, Any]:
    content, config = dump_request(step), get_config(step)
    for path, names in OPERATIONAL_FIELDS.items():
        for name in names:
            _remove_field(content, (*_split(path), name))
    place = ("config",) if isinstance(step, FineTune) else ("trainer", "config")
    for name in config.operational_fields if config else ():
        _remove_field(content, (*place, *name.split(".", 1)))
    if isinstance(step, FineTune):
        content.pop("env", None)
    for part in (content, content.get("trainer", {})):
        for name in [name for name in part.get("env") or () if name.startswith(_OPERATIONAL_VARIABLES)]:
            _remove_field(part, ("env", name))
    return content


def _split(path: str) -> Iterable[str]:
    return path.split(".") if path else ()


def _remove_field(content: dict[str, Any], path: Sequence[str]) -> None:
    """Remove a field at a path, and the parts around it that are then empty.

    In a list of texts, the field is the text `FIELD=VALUE`.
    """
    first, *rest = path
    part = content.get(first)
    if not rest:
        content.pop(first, None)
        return
    if isinstance(part, dict):
        _remove_field(part, rest)
    elif isinstance(part, list):
        content[first] = [each for each in part if not str(each).startswith(f"{rest[0]}=")]
    if first in content and not content[first] and first != "peft_config":  # an empty one means LoRA's defaults
        del content[first]


def _count_processes(step: Step) -> str:
    """Return the number of training processes on each node; `1` if it is not known."""
    if isinstance(step, TrainJobManifest):
        trainer = step.manifest["spec"].get("trainer") or {}
        given, resources = trainer.get("numProcPerNode"), trainer.get("resourcesPerNode") or {}
        return str(given or max(1, count_gpus(resources.get("limits") or resources.get("requests"))))
    part: Any = get_config(step) or (step.trainer if isinstance(step, TrainJob) else None)
    return "1" if part is None else str(part.num_proc_per_node or max(1, count_gpus(part.resources_per_node)))


def _count_nodes(step: FineTune | TrainJob) -> int:
    nodes = get_nodes(step)
    return (nodes.max_nodes if nodes else None) or 1


def _flatten(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flatten(inner, f"{path}.{name}" if path else str(name))
    elif value != []:
        text = json.dumps(value, sort_keys=True)
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        yield path, value if len(text) <= _LONGEST_VALUE else digest
