"""The Trainer's webhooks for TrainJobs: defaults and checks, with the same messages.

Source: Trainer 2.3 `pkg/webhooks/trainjob_webhook.go`, the `Validate` functions of
`pkg/runtime/framework/plugins/{torch,xgboost,jobset}`, `pkg/runtime/core/{clustertrainingruntime,trainingruntime}.go`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from trainjob.errors import ClusterError
from trainjob_local.apiserver import Operation, Reader, Registry, Stage, StatusError
from trainjob_local.apiserver.naming import name_problems
from trainjob_local.apiserver.schema import as_go_writes
from trainjob_local.apiserver.trainjob_schema import TRAINJOB
from trainjob_local.controllers import torchtune
from trainjob_local.controllers.composition import containers_of, jobset_template, node_resources
from trainjob_local.controllers.resource_requirements import gpu_count
from trainjob_local.objects import Json, format_timestamp, utc_now

__all__ = ["register_webhooks", "set_patch_times", "trainjob_problems"]

_DENIED = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
_GROUP = "trainer.kubeflow.org"
_RESERVED = ("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
_XGBOOST_RESERVED = ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")
_INITIALIZERS = {"dataset": "dataset-initializer", "model": "model-initializer"}
_GO_ORDER = (
    "manager",
    "time",
    "name",
    "apiGroup",
    "kind",
    "value",
    "valueFrom",
    "limits",
    "requests",
    "metadata",
    "spec",
)
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_PATCHES = "spec.runtimePatches"


def register_webhooks(registry: Registry, *, clock: Callable[[], datetime] = utc_now) -> None:
    """Register the webhooks for TrainJobs with a registry.

    Args:
        registry: registry of the TrainJobs.
        clock: function that returns the current time.
    """

    def default(operation: Operation, new: Json, old: Json | None, _reader: Reader) -> Json:
        return new if operation is Operation.DELETE else set_patch_times(new, old, clock())

    def validate(operation: Operation, new: Json, old: Json | None, reader: Reader) -> Json:
        if operation is not Operation.DELETE:
            _raise_if_denied(trainjob_problems(new, old, reader))
        return new

    registry.add_admission("trainjobs", default)
    registry.add_admission("trainjobs", validate, stage=Stage.VALIDATING)


def set_patch_times(new: Json, old: Json | None, now: datetime) -> Json:
    """Return the TrainJob with the time set in runtimePatches that are new or changed.

    Args:
        new: the TrainJob of the request.
        old: the TrainJob before the change; None for a new one.
        now: current time.
    """
    patches: list[Json] = (new.get("spec") or {}).get("runtimePatches") or []
    known = {patch.get("manager"): patch for patch in (old or {}).get("spec", {}).get("runtimePatches") or []}
    stamped = []
    for patch in patches:
        before = known.get(patch.get("manager"))
        if before is not None and _without_time(before) == _without_time(patch):
            stamped.append({**patch, **({"time": before["time"]} if "time" in before else {})})
        elif before is not None or not patch.get("time"):
            stamped.append({**patch, "time": format_timestamp(now)})
        else:
            stamped.append(patch)
    if stamped == patches:
        return new
    changed: Json = as_go_writes(TRAINJOB, {**new, "spec": {**new["spec"], "runtimePatches": stamped}})
    return changed


def trainjob_problems(new: Json, old: Json | None, reader: Reader) -> list[str]:
    """Return the error messages of the validating webhook for a TrainJob.

    Args:
        new: the TrainJob to check.
        old: the TrainJob before the change; None for a new one.
        reader: reader of runtimes and JobSets.
    """
    ref = new["spec"]["runtimeRef"] if "spec" in new else {"kind": "", "apiGroup": ""}
    kind, group = ref.get("kind", "ClusterTrainingRuntime"), ref.get("apiGroup", _GROUP)
    if kind not in ("ClusterTrainingRuntime", "TrainingRuntime") or group != _GROUP:
        return [f"unsupported runtime: {kind}{'.' if group else ''}{group}"]
    runtime = _find_runtime(new, kind, reader)
    if runtime is None:
        field = "spec.RuntimeRef" if kind == "ClusterTrainingRuntime" else "spec.runtimeRef"
        needed = f"specified {kind[0].lower()}{kind[1:]} must be created before the TrainJob is created"
        return [_invalid_value(field, ref, f'{kind}.{_GROUP} "{ref["name"]}" not found: {needed}')]
    checks = {"torch": _torch_problems, "xgboost": _xgboost_problems}
    policy = runtime["spec"].get("mlPolicy") or {}
    problems = [text for name, check in checks.items() if name in policy for text in check(new, runtime)]
    return [*problems, *_initializer_problems(new, runtime), *_patch_problems(new, old, runtime, reader)]


def _find_runtime(job: Json, kind: str, reader: Reader) -> Json | None:
    namespace = job["metadata"]["namespace"] if kind == "TrainingRuntime" else ""
    try:
        return reader.get(f"{kind.lower()}s", job["spec"]["runtimeRef"]["name"], namespace)
    except ClusterError:
        return None


# -- torch and TorchTune ----------------------------------------------------------------------------------------------


def _torch_problems(job: Json, runtime: Json) -> Iterator[str]:
    trainer = job["spec"].get("trainer")
    if trainer is None:
        return
    env = trainer.get("env") or []
    reserved = sorted({one["name"] for one in env} & set(_RESERVED))
    if reserved:
        text = f"must not have reserved envs, invalid envs configured: [{' '.join(reserved)}]"
        yield _invalid_value("spec.trainer.env", env, text)
    if trainer.get("command") == torchtune.ENTRYPOINT:
        yield from _torchtune_problems(job, trainer, runtime)


def _xgboost_problems(job: Json, _runtime: Json) -> Iterator[str]:
    for index, variable in enumerate((job["spec"].get("trainer") or {}).get("env") or []):
        if variable["name"] in _XGBOOST_RESERVED:
            field = f"spec.trainer.env[{index}]"
            yield f"{field}: Forbidden: {variable['name']} is reserved for the XGBoost runtime"


def _torchtune_problems(job: Json, trainer: Json, runtime: Json) -> Iterator[str]:
    name = job["spec"]["runtimeRef"]["name"]
    model, nodes = torchtune.parse_model(name), trainer.get("numNodes", 1)
    args: Sequence[str] = trainer.get("args") or []
    if model not in torchtune.SUPPORTED_MODELS:
        text = f"must have a supported pretrained model, invalid model configured: {model}"
        yield _invalid_value("spec.runtimeRef.name", name, text)
    if nodes > 1 and model != torchtune.MULTI_NODE_MODEL:
        yield _invalid_value("spec.trainer.numNodes", nodes, f"must be 1 for {model} model")
    scale = torchtune.Scale(nodes, trainer.get("numProcPerNode"), gpu_count(node_resources(job, runtime)))
    config = torchtune.select_recipe(name, scale, args)[1]
    if "_qlora" in config:
        yield from _qlora_problems(name, trainer, model, single=config.endswith("_qlora_single_device"))
    if nodes > 1 and (torchtune.is_lora(args) or torchtune.is_qlora(args)):
        text = "LoRA fine-tuning is not supported for multi-node training in TorchTune"
        yield _invalid_value("spec.trainer.numNodes", nodes, text)
    for index, arg in enumerate(args):
        key = arg.split("=", 1)[0]
        if key in torchtune.IMMUTABLE_OVERRIDES:
            text = f'must not set immutable config "{key}" in trainer args; it is managed by the runtime'
            yield _invalid_value(f"spec.trainer.args[{index}]", arg, text)


def _qlora_problems(runtime: str, trainer: Json, model: str, *, single: bool) -> Iterator[str]:
    if model == torchtune.QWEN_MODEL:
        yield _invalid_value("spec.runtimeRef.name", runtime, f"QLoRA is not supported for {model} model")
    if not single and model in ("llama3_2/1B", "llama3_2/3B"):
        processes = trainer.get("numProcPerNode", "auto")
        text = f"must be auto or 1 for {model} model when using QLoRA"
        yield _invalid_value("spec.trainer.numProcPerNode", processes, text)
        text = f"must have gpu resource with value 1 for {model} model when using QLoRA"
        yield _invalid_value("spec.trainer.resourcesPerNode", _quantities(trainer.get("resourcesPerNode")), text)


def _quantities(resources: Json | None) -> Json | None:
    if resources is None:
        return None
    return {kind: {name: str(value) for name, value in entries.items()} for kind, entries in resources.items()}


# -- initializers and patches -----------------------------------------------------------------------------------------


def _initializer_problems(job: Json, runtime: Json) -> Iterator[str]:
    replicated = {one["name"]: one for one in jobset_template(job, runtime)["spec"]["replicatedJobs"]}
    for kind, step in _INITIALIZERS.items():
        if (job["spec"].get("initializer") or {}).get(kind) is None:
            continue
        wrong = _initializer_problem(replicated.get(step), kind, step)
        if wrong:
            yield _invalid_value("spec.runtimeRef", job["spec"]["runtimeRef"], wrong)


def _initializer_problem(replicated: Json | None, kind: str, step: str) -> str:
    if replicated is None:
        return f"must have {step} job when trainJob is configured with input {kind}Config"
    container = next((one for one in containers_of(replicated) if one["name"] == step), None)
    if container is None:
        return f"must have container with name - {step} in the {step} job"
    if not any(mount["name"] == "initializer" for mount in container.get("volumeMounts") or []):
        return f"must have volumeMount with name - initializer in container {step} of the {step} job"
    return ""


def _patch_problems(new: Json, old: Json | None, runtime: Json, reader: Reader) -> Iterator[str]:
    if old is not None:
        yield from _change_problems(new, old, reader)
    patches: list[Json] = new["spec"].get("runtimePatches") or []
    known = {
        one["name"]: {container["name"] for container in _all_containers(one)}
        for one in jobset_template(new, runtime)["spec"]["replicatedJobs"]
    }
    for patch in patches:
        yield from _manager_problems(patch.get("manager", ""))
        spec = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
        for replicated in spec.get("replicatedJobs") or []:
            for text in _pod_patch_problems(replicated, known.get(replicated["name"])):
                yield _invalid_value(_PATCHES, patches, text)


def _all_containers(replicated: Json) -> list[Json]:
    pod = ((replicated.get("template") or {}).get("spec") or {}).get("template") or {}
    return [*((pod.get("spec") or {}).get("initContainers") or []), *containers_of(replicated)]


def _pod_patch_problems(replicated: Json, known: set[str] | None) -> Iterator[str]:
    """Yield the problems of a patch for one replicated job.

    Like the Trainer's, the webhook looks up the names in the patched template. So an unknown job or container passes.

    Args:
        replicated: the replicated job in the patch.
        known: names of its containers in the patched template; None if the template lacks the job.
    """
    if known is None:
        yield "must not have replicated job that doesn't exist in the runtime job template"
        return
    for container in containers_of(replicated):
        if container.get("env") and container["name"] in ("dataset-initializer", "model-initializer", "node"):
            yield "must not have envs for the dataset-initializer, model-initializer, node containers"


def _change_problems(new: Json, old: Json, reader: Reader) -> Iterator[str]:
    before, after = old["spec"].get("runtimePatches") or [], new["spec"].get("runtimePatches") or []
    if before == after:
        return
    if not old["spec"].get("suspend") and not new["spec"].get("suspend"):
        text = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        yield f"{_PATCHES}: Forbidden: {text}"
        return
    try:
        jobset = reader.get("jobsets", new["metadata"]["name"], new["metadata"]["namespace"])
    except ClusterError:
        return
    for one in (jobset.get("status") or {}).get("replicatedJobsStatus") or []:
        if one.get("active", 0) > 0:
            text = f"RuntimePatches cannot be modified when the JobSet's ReplicatedJob {one['name']} is still active"
            yield f"{_PATCHES}: Forbidden: {text}"


def _manager_problems(manager: str) -> Iterator[str]:
    """Yield the problems of a patch's manager, which must be a domain-prefixed path.

    Source: k8s.io/apimachinery 0.36 `pkg/util/validation`, IsDomainPrefixedPath.
    """
    field = f"{_PATCHES}.manager"
    host, slash, path = manager.partition("/")
    if not slash or not host or not path:
        yield _invalid_value(field, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    for problem in name_problems("subdomain", host):
        yield _invalid_value(field, host, problem.detail)
    if not _PATH.fullmatch(path):
        yield _invalid_value(field, path, f"Invalid path (regex used for validation is '{_PATH.pattern}')")


# -- texts ------------------------------------------------------------------------------------------------------------


def _raise_if_denied(problems: Iterable[str]) -> None:
    texts = list(dict.fromkeys(problems))
    if texts:
        message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        raise StatusError(403, "Forbidden", _DENIED + message)


def _invalid_value(field: str, value: Any, detail: str) -> str:
    return f"{field}: Invalid value: {_go_json(value)}: {detail}"


def _go_json(value: Any) -> str:
    """Return JSON with the keys in the order of Go's struct fields."""
    return json.dumps(_in_go_order(value), separators=(",", ":"), ensure_ascii=False)


def _in_go_order(value: Any) -> Any:
    if isinstance(value, dict):
        known = [key for key in _GO_ORDER if key in value]
        return {key: _in_go_order(value[key]) for key in (*known, *(key for key in value if key not in known))}
    return [_in_go_order(one) for one in value] if isinstance(value, list) else value


def _without_time(patch: Json) -> Json:
    return {key: value for key, value in patch.items() if key != "time"}
