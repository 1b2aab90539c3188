"""Conversion of each kind of step to the general request, a `TrainJob`."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

from trainjob.addresses import MOUNTED_SCHEMES, Kind, parse_source
from trainjob.framework_modules import list_modules
from trainjob.frameworks.program_options import to_words
from trainjob.frameworks.transformers.start import OWNER_VARIABLE, SAVE_ENV
from trainjob.function_source import extract_source, pack_function
from trainjob.manifest import labels
from trainjob.manifest.additions import add_env
from trainjob.manifest.environment import (
    AZURE_KEYS,
    GOOGLE_KEYS,
    MLFLOW_KEYS,
    REGISTRY_KEYS,
    S3_KEYS,
    get_credential_keys,
    secret_arguments,
    secret_env,
)
from trainjob.manifest.node_counts import with_node_count
from trainjob.manifest.program_packages import (
    CHAMPION_PACKAGES,
    EVALUATION_PACKAGES,
    EXPORT_PACKAGES,
    FETCH_PACKAGES,
    GENERATION_PACKAGES,
    PREPARATION_PACKAGES,
    PROMOTION_PACKAGES,
)
from trainjob.manifest.tracking import list_parameters
from trainjob.manifest.training_identity import weight_fields
from trainjob.packing import program_command
from trainjob.spec import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    Evaluate,
    ExportModel,
    FineTune,
    Generate,
    InitializeDataset,
    InitializeModel,
    Initializer,
    MLflowRegistry,
    ModelCheck,
    ModelRegistry,
    Placement,
    Promote,
    Rollback,
    SecretReference,
    Step,
    TrainJob,
    TrainJobManifest,
    Volume,
    WorkspaceVolume,
)
from trainjob.spec.base_request import BaseRequest
from trainjob.spec.framework import get_framework
from trainjob.spec.job import Program
from trainjob.spec.registry import Registry
from trainjob.spec.secrets import EnvValue
from trainjob.spec.trainers import escape_expansion, trainer_image
from trainjob.spec.volumes import WORKSPACE, WORKSPACE_VOLUME

_ProgramStep = InitializeDataset | InitializeModel | ExportModel | Evaluate | Generate | Promote | Rollback
_SOURCE_VOLUME = "trainjob-source"  # of the claim or the image from which a step fetches
_CHAMPION_FIELDS = {"uri", "alias", "service", "service_kind"}
_REGISTRY_FIELDS = {"server", "tracking_uri", "model"}
_ACCOUNT = "trainjob-promotion"  # manifests/promotion
_API_FOLDER = "/var/run/secrets/trainjob"
_API_SOURCES = (
    {"serviceAccountToken": {"path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
)
# For a function instead of a command.
_FUNCTION_CALL = "{source}\n\nimport os\n{name}(os.environ['MODEL_URI'])\n"


def to_trainjob(
    step: Step, run: str = "", run_name: str = "", num_nodes: int | None = None, workflow_run: str = ""
) -> TrainJob | TrainJobManifest:
    """Return the TrainJob that runs a step.

    A manifest is returned unchanged, and so is a TrainJob, unless its function can resume or it has a range of nodes.

    All steps but trainings run as trainers on the stock runtime, with one node each except for `Generate`. Queue,
    quota, logs and cancellation are therefore the same for every step, and no runtime has to be added.

    Args:
        step: the request.
        run: identifies the workflow's run: the same text in all attempts of a step. If it is empty, no training
            resumes an earlier one.
        run_name: ID of the workflow's run in its engine, by which a later training can name it; see `ResumeFrom`.
        num_nodes: number of nodes of this attempt, if the step has a range; by default the maximum.
        workflow_run: the workflow's run, which all its steps have, such as `airflow/nightly/scheduled__1`.

    Raises:
        InvalidSpec: the source of a function cannot be read.
    """
    if isinstance(step, TrainJob) and isinstance(step.trainer, CustomTrainer) and step.trainer.resume:
        owner = _describe_owner(step, run, run_name) if run else ""
        return add_env(with_node_count(step, num_nodes), {OWNER_VARIABLE: owner, **SAVE_ENV})
    if isinstance(step, TrainJob):
        return with_node_count(step, num_nodes)
    if isinstance(step, TrainJobManifest):
        return step
    if isinstance(step, FineTune):
        return _fine_tune(with_node_count(step, num_nodes), run, run_name, parameters=list_parameters(step))
    if isinstance(step, ExportModel):
        return _export(step)
    if isinstance(step, Evaluate):
        return _evaluate(step)
    if isinstance(step, Generate):
        return _generate(step)
    if isinstance(step, Promote | Rollback):
        return _change_served_model(step, run, workflow_run)
    return _initialize(step)


def export_program(source: Program = "packed") -> list[str]:
    """Return the command of the export's program.

    It finds the runs of all frameworks that are installed here.
    """
    modules = (module for name in ("finished_run", "origin") for module in list_modules(name))
    return program_command(*EXPORT_PACKAGES, *modules, source=source)


def _initialize(step: InitializeDataset | InitializeModel) -> TrainJob:
    kind: Kind = "dataset" if isinstance(step, InitializeDataset) else "model"
    # The Trainer's initializers read these variables (Trainer 2.3, pkg/initializers/types/types.py). Only our own
    # program reads REVISION.
    variables: dict[str, EnvValue | None] = {
        "STORAGE_URI": step.storage_uri,
        "IGNORE_PATTERNS": ",".join(step.ignore_patterns) if step.ignore_patterns else None,
        "ENDPOINT": step.endpoint,
        "REGION": step.region,
        "ROLE_ARN": step.role_arn,
        "REVISION": step.revision,
    }
    keys = get_credential_keys(step.storage_uri)
    source = _source_volumes(step, kind)
    preparation = _preparation_arguments(step) if isinstance(step, InitializeDataset) else []
    packages = (*FETCH_PACKAGES, *(PREPARATION_PACKAGES if preparation else ()))
    return _program_job(
        step.model_copy(update={"volumes": (*step.volumes, *source)}),
        image=step.image or trainer_image(f"{kind}-initializer"),
        command=tuple(program_command(*packages, source=step.program)),
        args=(
            *("--kind", kind, "--folder", f"{WORKSPACE}/{kind}", *preparation, *secret_arguments(step.secret, keys)),
            *(word for volume in source for word in ("--source", volume.mount_path)),
        ),
        env={**variables, **secret_env(step.secret, keys)},
    )


def _source_volumes(step: InitializeDataset | InitializeModel, kind: Kind) -> tuple[Volume, ...]:
    """Return the volume with the files of a claim or an image; empty for other addresses.

    A claim is mounted as a whole, because symbolic links of its folders may lead to other folders of it.
    """
    address = parse_source(step.storage_uri, kind)
    if address.scheme not in MOUNTED_SCHEMES:
        return ()
    claim, image = {"claimName": address.bucket}, {"reference": address.bucket}
    kubernetes_source = {"persistentVolumeClaim": claim} if address.scheme == "pvc" else {"image": image}
    volume = Volume(name=_SOURCE_VOLUME, source=kubernetes_source, mount_path=f"/mnt/{_SOURCE_VOLUME}", read_only=True)
    # A second mount of the workspace's volume, because a pod with two volumes of one claim may never start
    # (kubernetes/kubernetes#132921, kubelet 1.28).
    is_workspace = address.scheme == "pvc" and address.bucket == step.workspace.claim
    return (volume.model_copy(update={"name": WORKSPACE_VOLUME}) if is_workspace else volume,)


def _preparation_arguments(step: InitializeDataset) -> list[str]:
    """Return the arguments by which the fetch's program prepares rows; empty if it does not."""
    options = {
        "--subset": step.subset or "",
        "--split": step.split or "",
        "--eval-split": step.eval_split or "",
        "--eval-fraction": str(step.eval_fraction or ""),
        "--columns": json.dumps(dict(step.columns), sort_keys=True) if step.columns else "",
    }
    return list(to_words(options))


def _export(step: ExportModel) -> TrainJob:
    options = {
        "--output": f"{WORKSPACE}/output/{step.output_path}".rstrip("/"),
        "--model": f"{WORKSPACE}/model",
        "--dataset": f"{WORKSPACE}/dataset",
        "--destination": step.destination,
        # Without its default, so that the manifests of requests from before this option stay the same.
        "--adapter": step.adapter if step.adapter != "merge" else None,
        "--endpoint": step.endpoint,
        "--region": step.region,
        "--manifest": json.dumps(step.metadata, sort_keys=True) if step.metadata else None,
        "--registry": json.dumps(_registry_entry(step, step.registry)) if step.registry else None,
    }
    arguments = [
        word for option, value in options.items() if value is not None for word in (option, escape_expansion(value))
    ]
    arguments += [word for name in step.after_jobs for word in ("--after-job", name)]
    arguments += ["--any-run"] if step.any_run else []
    registry_keys = MLFLOW_KEYS if isinstance(step.registry, MLflowRegistry) else REGISTRY_KEYS
    keys, registry_secret = get_credential_keys(step.destination), step.registry.secret if step.registry else None
    arguments += secret_arguments(step.secret, keys) + secret_arguments(registry_secret, registry_keys)
    job = _program_job(
        step,
        image=step.image or trainer_image("model-initializer"),
        command=tuple(export_program(step.program)),
        args=tuple(arguments),
        env={"ROLE_ARN": step.role_arn, **secret_env(step.secret, keys), **secret_env(registry_secret, registry_keys)},
    )
    own = {labels.MODEL: step.destination, **_exported_job_annotation(step)}
    return job.model_copy(update={"annotations": {**step.annotations, **own}})


def _evaluate(step: Evaluate) -> TrainJob:
    model = f"{WORKSPACE}/{step.model_path}"
    gates = {metric: gate.model_dump(exclude_defaults=True) for metric, gate in step.gates.items()}
    options = {
        "--model": model,
        "--champion": f"{WORKSPACE}/{step.champion_path}" if step.champion_path else "",
        "--task-folder": f"{WORKSPACE}/{step.task_path}" if step.task_path else "",
        "--held-out": f"{WORKSPACE}/{step.held_out}" if step.held_out else "",
        "--output": f"{WORKSPACE}/{step.output_path}",
        "--workspace": WORKSPACE,
        "--limit": "" if step.limit is None else str(step.limit),
        "--num-fewshot": "" if step.num_fewshot is None else str(step.num_fewshot),
        "--generation": json.dumps(step.generation, sort_keys=True) if step.generation else "",
        "--batch-size": str(step.batch_size),
        "--precision": step.precision,
        "--seed": str(step.seed),
        "--gates": json.dumps(gates, sort_keys=True) if gates else "",
        "--confidence": str(step.confidence),
    }
    keys, champion, packages = get_credential_keys("hf://"), step.champion, EVALUATION_PACKAGES
    env: dict[str, EnvValue | None] = {}
    if champion:
        fields = champion.model_dump(include=_CHAMPION_FIELDS, exclude_none=True)
        if registry := champion.registry:
            fields["registry"] = registry.model_dump(include=_REGISTRY_FIELDS)
        options |= {
            "--champion-source": json.dumps(fields, sort_keys=True),
            "--claim": posixpath.join(step.workspace.claim or "", step.workspace.sub_path).rstrip("/"),
            "--api-folder": _API_FOLDER,
            "--fetch": json.dumps(program_command(*FETCH_PACKAGES, source=step.program)),
        }
        keys = tuple(dict.fromkeys((*keys, *S3_KEYS, *GOOGLE_KEYS, *AZURE_KEYS)))
        places = {"ENDPOINT": champion.endpoint, "REGION": champion.region, "ROLE_ARN": champion.role_arn}
        env = {**places, **_registry_login(registry)}
        packages = (*packages, *CHAMPION_PACKAGES)
        step = step.model_copy(update=_api_access(step)) if champion.service else step
    job = _program_job(
        step,
        image=step.image,
        command=tuple(program_command(*packages, source=step.program)),
        args=(
            *to_words(options),
            *(word for task in step.tasks for word in ("--task", escape_expansion(task))),
            *(["--function", pack_function(step.function, field="function")] if step.function else []),
            *(["--chat-template"] if step.chat_template else []),
            *(["--allow-missing-champion"] if step.allow_missing_champion else []),
            *(["--tracked"] if step.tracking else []),
        ),
        env={**env, **secret_env(step.secret, keys)},
    )
    if step.tracking:
        known = {"model": step.model_path, "champion": step.champion_path or options.get("--champion-source", "")}
        parameters = {name: value for name, value in known.items() if value}
        tracking = step.tracking.model_copy(update={"parameters": {**parameters, **step.tracking.parameters}})
        job = job.model_copy(update={"tracking": tracking, "program": step.program})
    return _with_model_check(job, step, model)


def _generate(step: Generate) -> TrainJob:
    model = f"{WORKSPACE}/{step.model_path}"
    options = {
        "--model": model,
        "--rows": f"{WORKSPACE}/{step.input_path}",
        "--output": f"{WORKSPACE}/{step.output_path}",
        "--engine": step.engine,
        "--generation": json.dumps(step.generation, sort_keys=True) if step.generation else "",
        "--limit": "" if step.limit is None else str(step.limit),
        "--batch-size": str(step.batch_size),
        "--precision": step.precision,
        "--seed": str(step.seed),
    }
    job = _program_job(
        step,
        image=step.image,
        command=tuple(program_command(*GENERATION_PACKAGES, source=step.program)),
        args=(*to_words(options), *(["--chat-template"] if step.chat_template else [])),
        env=secret_env(step.secret, ()),
        num_nodes=step.num_nodes,
    )
    return _with_model_check(job, step, model)


def _with_model_check(job: TrainJob, step: Evaluate | Generate, model: str) -> TrainJob:
    """Return a job that checks first of which training a model is, unless it may be of any."""
    if step.any_run:
        return job
    check = ModelCheck(folders=(model,), after_jobs=step.after_jobs)
    return job.model_copy(update={"model_check": check, "program": step.program})


def _change_served_model(step: Promote | Rollback, run: str, workflow_run: str) -> TrainJob:
    command = list(step.command or ())
    if step.function:
        source, name = extract_source(step.function, field="function")
        command = ["python", "-c", _FUNCTION_CALL.format(source=source, name=name)]
    registry = step.registry
    options = {
        "--key": run or "-",
        "--run": workflow_run,
        "--kind": step.target,
        "--service": step.record_name,
        "--adapter": step.adapter or "",
        "--command": json.dumps(command) if command else "",
        "--registry": json.dumps(registry.model_dump(include=_REGISTRY_FIELDS), sort_keys=True) if registry else "",
        "--alias": step.alias,
        "--seconds": f"{step.time_limit.total_seconds():g}",
        "--api-folder": _API_FOLDER,
    }
    if isinstance(step, Promote):
        request = step.smoke_request
        options |= {
            "--model": _to_uri(step.model, step.workspace) if step.workspace else step.model,
            "--version": (isinstance(registry, ModelRegistry) and registry.version) or "",
            "--canary-percent": "" if step.canary_percent is None else str(step.canary_percent),
            "--smoke-request": json.dumps(request.model_dump(exclude_defaults=True), sort_keys=True) if request else "",
        }
    return _program_job(
        step.model_copy(update=_api_access(step)),
        image=step.image,
        command=tuple(program_command(*PROMOTION_PACKAGES, source=step.program)),
        args=(
            "promote" if isinstance(step, Promote) else "rollback",
            *to_words(options),
            *(["--any-run"] if isinstance(step, Rollback) and step.any_run else []),
        ),
        env={**secret_env(step.secret, ()), **_registry_login(registry)},
    )


def _api_access(step: _ProgramStep) -> dict[str, Any]:
    """Return the fields of a step whose pod calls the API server."""
    placement = step.placement or Placement()
    volume = Volume(name="trainjob-api", source={"projected": {"sources": _API_SOURCES}}, mount_path=_API_FOLDER)
    return {
        "placement": placement.model_copy(update={"service_account_name": placement.service_account_name or _ACCOUNT}),
        "volumes": (*step.volumes, volume),
    }


def _registry_login(registry: Registry | None) -> dict[str, EnvValue]:
    keys = MLFLOW_KEYS if isinstance(registry, MLflowRegistry) else REGISTRY_KEYS
    return secret_env(registry.secret, keys) if registry else {}


def _registry_entry(step: ExportModel, registry: Registry) -> dict[str, str | None]:
    """Return the fields of the registry's entry for an export."""
    return {**registry.model_dump(exclude={"secret"}), "uri": _to_uri(step.destination, step.workspace)}


def _to_uri(address: str, workspace: WorkspaceVolume) -> str:
    """Return an address at which other pods find the files.

    A path on the workspace becomes a URI with its claim or node path, because other pods mount it elsewhere.
    """
    if not address.startswith("/"):
        return address
    below = posixpath.join(workspace.sub_path, posixpath.relpath(address, WORKSPACE))
    # KServe accepts a path on a claim in this form.
    return f"pvc://{workspace.claim}/{below}" if workspace.claim else f"file://{workspace.node_path}/{below}"


def _exported_job_annotation(step: ExportModel) -> dict[str, str]:
    """Return the annotation with the TrainJob whose own claim this export reads.

    The result is empty if the claim is not a TrainJob's own, or the model stays on it.
    """
    claim = step.workspace.claim or ""
    if step.destination.startswith("/") or not claim.startswith(labels.OWN_CLAIM_PREFIX):
        return {}
    return {labels.EXPORTS: claim.removeprefix(labels.OWN_CLAIM_PREFIX)}


def _program_job(
    step: _ProgramStep,
    *,
    image: str | None,
    command: tuple[str, ...],
    env: Mapping[str, EnvValue | None],
    args: tuple[str, ...] | None = None,
    num_nodes: int = 1,
) -> TrainJob:
    trainer = CustomTrainerContainer(
        image=image,
        command=command,
        args=args,
        num_nodes=num_nodes,
        resources_per_node=step.resources,
        env={name: value for name, value in {**env, **(step.env or {})}.items() if value is not None},
    )
    max_restarts = step.max_restarts if isinstance(step, InitializeDataset | InitializeModel) else 0
    return TrainJob(trainer=trainer, workspace=step.workspace, max_restarts=max_restarts, **_shared_fields(step))


def _fine_tune(step: FineTune, run: str, run_name: str, parameters: Mapping[str, Any]) -> TrainJob:
    common = {**_shared_fields(step), "max_restarts": step.max_restarts}
    keys = (*get_credential_keys("hf://"), *get_credential_keys(step.checkpoint_uri or ""))
    env = {**secret_env(step.secret, keys), **(step.env or {})} or None
    if step.workspace is None:
        sources = {"dataset": step.dataset, "model": step.model_initializer}
        initializer = Initializer(**{kind: _with_secret(source, step.secret) for kind, source in sources.items()})
        trainer = BuiltinTrainer(config=step.config, env=env)
        return TrainJob(trainer=trainer, runtime=step.training_runtime, initializer=initializer, **common)
    owner = _describe_owner(step, run, run_name) if run else ""
    container = get_framework(step.config).build_trainer(step, owner).model_copy(update={"env": env})
    tracking = step.tracking and step.tracking.model_copy(
        update={"parameters": {**parameters, **step.tracking.parameters}}
    )
    return TrainJob(
        trainer=container,
        runtime=step.training_runtime,
        workspace=step.workspace,
        tracking=tracking,
        watchdog=step.watchdog,
        program=step.program,
        **common,
    )


def _describe_owner(step: FineTune | TrainJob, run: str, run_name: str) -> str:
    """Return the owner of a training's checkpoints.

    [trainjob.frameworks.checkpoint_owner][] reads it.
    """
    owner: dict[str, Any] = {"run": run, "fields": weight_fields(step)}
    if run_name:
        owner["run_name"] = run_name
    given = step.resume_from if isinstance(step, FineTune) else getattr(step.trainer, "resume_from", None)
    if given is not None:
        owner["resume_from"] = given.model_dump(exclude_none=True)
        if given.folder:
            owner["resume_from"]["folder"] = f"{WORKSPACE}/{given.folder}"
    return json.dumps(owner, sort_keys=True)


def _with_secret(source: Any, secret: SecretReference | None) -> Any:
    """Return an initializer with the step's Secret, unless it names its own."""
    if secret is None or source is None or getattr(source, "secret", secret) is not None:
        return source
    return source.model_copy(update={"secret": secret})


def _shared_fields(step: _ProgramStep | FineTune) -> dict[str, Any]:
    return {name: getattr(step, name) for name in BaseRequest.model_fields}
