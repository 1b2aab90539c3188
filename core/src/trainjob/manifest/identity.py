"""Identity of a request: its hash, and the names of its TrainJobs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainjob.function_source import read_source
from trainjob.spec import BuiltinTrainer, CustomTrainer, FineTune, Step, TrainJob, TrainJobManifest
from trainjob.spec.framework import DEFAULT_FRAMEWORK
from trainjob.spec.job import END_POLICY_FIELDS, MAX_NAME_LENGTH
from trainjob.spec.resources import count_gpus

_MAX_ATTEMPTS = 100
_UNHASHED_FIELDS = dict.fromkeys(("name", "program", "tracking", *END_POLICY_FIELDS), True)
_PARALLEL_FIELDS = ("resources_per_node", "num_proc_per_node")
_DATA_CACHE_RESOURCES = ("head_cpu", "head_mem", "worker_cpu", "worker_mem")
OPERATIONAL_FIELDS: Mapping[str, Sequence[str]] = {
    "": ("placement", "queue", "managed_by", "deadline", "max_restarts", "labels", "annotations", "image", "resources"),
    "config": _PARALLEL_FIELDS,
    "dataset": _DATA_CACHE_RESOURCES,
    "initializer.dataset": _DATA_CACHE_RESOURCES,
    "trainer": ("image", *_PARALLEL_FIELDS),
    "trainer.config": _PARALLEL_FIELDS,
    "manifest": ("metadata",),
    "manifest.spec": ("managedBy", "suspend", "labels", "annotations", "activeDeadlineSeconds"),
    "manifest.spec.trainer": ("image", "resourcesPerNode", "numProcPerNode"),
}
"""Fields that do not change the result of a step: of the step itself, and of its parts by their paths.

[training_hash][] leaves them out, and counts the processes on a node, which are given or follow from the GPUs. The
fields that no hash has, such as `name`, are not in the table.
"""


def spec_hash(step: Step) -> str:
    """Return 16 hex digits that identify the request of a step.

    The hash is the same in every process, Python version and later release. It is computed from the request and not
    from the manifest. A new release that builds another manifest for the same request must not take a running job for a
    different one. Fields at their defaults do not count, so a new field changes no hash. The name does not count, nor
    where the program's code comes from, nor the experiment tracker, nor the fields that say what happens to the
    TrainJob after its end. A framework counts unless it is TorchTune, the only one when the first hashes were
    written.

    Raises:
        InvalidSpec: the source of a function cannot be read.
    """
    return _hash(step, _dump(step))


def training_hash(step: Step) -> str:
    """Return 16 hex digits that identify what a step computes.

    Two requests with the same hash have the same result. They differ only in `OPERATIONAL_FIELDS`: resources,
    placement, queue, limits, image, labels and annotations. As for [spec_hash][], fields at their defaults do not
    count, and the hash is the same in later releases.

    Raises:
        InvalidSpec: the source of a function cannot be read.
    """
    content = _dump(step)
    for path, names in OPERATIONAL_FIELDS.items():
        _remove_fields(content, path.split(".") if path else [], names)
    if (processes := _count_processes(step)) != "1":
        content["processes_per_node"] = processes
    return _hash(step, content)


def _dump(step: Step) -> dict[str, Any]:
    """Return the request of a step as JSON values, without the values at their defaults."""
    unhashed: dict[str, Any] = {**_UNHASHED_FIELDS, "trainer": {"func"}}
    if _get_framework_name(step) != DEFAULT_FRAMEWORK:
        unhashed["config"] = True  # a comparison to its default would load TorchTune
    content = step.model_dump(mode="json", exclude_defaults=True, exclude=unhashed)
    if isinstance(step, FineTune) and _get_framework_name(step) != DEFAULT_FRAMEWORK:
        content["config"] = step.config.model_dump(mode="json", exclude_defaults=True)
    if isinstance(step, TrainJob) and isinstance(step.trainer, CustomTrainer):
        content["function"] = read_source(step.trainer.func)
    return content


def _hash(step: Step, content: Mapping[str, Any]) -> str:
    canonical: dict[str, Any] = {"kind": type(step).__name__, "request": content}
    if (framework := _get_framework_name(step)) != DEFAULT_FRAMEWORK:
        canonical["framework"] = framework
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _remove_fields(content: dict[str, Any], path: Sequence[str], names: Sequence[str]) -> None:
    """Remove fields from the part of a request at a path, and the part if it is then empty."""
    if not path:
        for name in names:
            content.pop(name, None)
    elif isinstance(part := content.get(path[0]), dict):
        _remove_fields(part, path[1:], names)
        if not part:
            del content[path[0]]


def _count_processes(step: Step) -> str:
    """Return the number of training processes on each node; `1` if it is not known."""
    if isinstance(step, TrainJobManifest):
        trainer = step.manifest["spec"].get("trainer") or {}
        given, resources = trainer.get("numProcPerNode"), trainer.get("resourcesPerNode") or {}
        return str(given or max(1, count_gpus(resources.get("limits") or resources.get("requests"))))
    part: Any = step.config if isinstance(step, FineTune) else step.trainer if isinstance(step, TrainJob) else None
    if isinstance(part, BuiltinTrainer):
        part = part.config
    return "1" if part is None else str(part.num_proc_per_node or max(1, count_gpus(part.resources_per_node)))


def _get_framework_name(step: Step) -> str:
    """Return the framework of a training; the default framework for other requests."""
    if isinstance(step, FineTune):
        return step.config.framework
    if isinstance(step, TrainJob) and isinstance(step.trainer, BuiltinTrainer):
        return step.trainer.config.framework
    return DEFAULT_FRAMEWORK


def job_name(prefix: str, key_digest: str, attempt: int) -> str:
    """Return the name of a run key's n-th TrainJob: readable and the same in every process.

    It has at most 33 characters. It starts with a letter, which the API requires from Trainer 2.1 on. It leaves space
    for the longest pod name that JobSet derives from it (see `trainjob.spec.job`).

    Args:
        prefix: start of the name, such as the task's name; characters that a name cannot contain become `-`.
        key_digest: the run key's digest.
        attempt: the attempt's number, from 1.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", prefix.lower()).strip("-")
    if not readable[:1].isalpha():
        readable = f"job-{readable}".strip("-")
    return f"{readable[:MAX_NAME_LENGTH].strip('-')}-{_name_suffix(key_digest, attempt)}"


def find_attempt(name: str, key_digest: str, labelled: int = 0) -> int:
    """Return the attempt for which [job_name][] returned a name; 0 if there is none.

    Args:
        name: name of a TrainJob.
        key_digest: digest of a run key.
        labelled: the attempt in its label, which is tried first; without it, attempts above 100 are not found.
    """
    suffix = name.rpartition("-")[2]
    return next((n for n in (labelled, *range(1, _MAX_ATTEMPTS + 1)) if n and _name_suffix(key_digest, n) == suffix), 0)


def _name_suffix(key_digest: str, attempt: int) -> str:
    return hashlib.sha256(f"{key_digest}/{attempt}".encode()).hexdigest()[:8]
