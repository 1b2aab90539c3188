"""Each step of a chain as the general request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.manifest import images
from trainjob.manifest.environment import keys_for, literal, secret_env
from trainjob.manifest.package import export_command
from trainjob.manifest.torchtune import WORKSPACE, tune_run
from trainjob.spec import (
    BuiltinTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    Initializer,
    Runtime,
    SecretReference,
    Step,
    TrainJob,
)
from trainjob.spec.job import STOCK_RUNTIME
from trainjob.spec.recipes import model_named, processes
from trainjob.spec.secrets import EnvValue


def train_job(step: Step) -> TrainJob:
    """The TrainJob that does what a step asks for; a TrainJob is returned as it is.

    Initialize and export run as trainers of one node on the stock runtime, so that queue, quota, logs and cancellation
    are the same for every step, and no runtime has to be added.
    """
    if isinstance(step, TrainJob):
        return step
    if isinstance(step, FineTune):
        return _fine_tune(step)
    if isinstance(step, ExportModel):
        return _export(step)
    return _initialize(step)


def _initialize(step: InitializeDataset | InitializeModel) -> TrainJob:
    kind = "dataset" if isinstance(step, InitializeDataset) else "model"
    image = images.DATASET_INITIALIZER if kind == "dataset" else images.MODEL_INITIALIZER
    # The variables that upstream's initializers read (Trainer 2.3, pkg/initializers/types/types.py).
    variables: dict[str, EnvValue | None] = {
        "STORAGE_URI": step.storage_uri,
        "IGNORE_PATTERNS": ",".join(step.ignore_patterns) if step.ignore_patterns else None,
        "ENDPOINT": step.endpoint,
        "REGION": step.region,
        "ROLE_ARN": step.role_arn,
    }
    return _one_node(
        step,
        image=step.image or image,
        command=("python", "-m", f"pkg.initializers.{kind}"),
        env={**variables, **secret_env(step.secret, keys_for(step.storage_uri))},
    )


def _export(step: ExportModel) -> TrainJob:
    options = {
        "--output": f"{WORKSPACE}/output",
        "--model": f"{WORKSPACE}/model",
        "--destination": step.destination,
        "--endpoint": step.endpoint,
        "--region": step.region,
        "--manifest": json.dumps(step.metadata, sort_keys=True) if step.metadata else None,
    }
    arguments = [word for option, value in options.items() if value is not None for word in (option, literal(value))]
    return _one_node(
        step,
        image=step.image or images.MODEL_INITIALIZER,
        command=tuple(export_command()),
        args=tuple(arguments),
        env=secret_env(step.secret, keys_for(step.destination)),
    )


def _one_node(
    step: InitializeDataset | InitializeModel | ExportModel,
    *,
    image: str,
    command: tuple[str, ...],
    env: Mapping[str, EnvValue | None],
    args: tuple[str, ...] | None = None,
) -> TrainJob:
    trainer = CustomTrainerContainer(
        image=image,
        command=command,
        args=args,
        num_nodes=1,
        resources_per_node=step.resources,
        env={name: value for name, value in {**env, **(step.env or {})}.items() if value is not None},
    )
    return TrainJob(trainer=trainer, workspace=step.workspace, **_common(step))


def _fine_tune(step: FineTune) -> TrainJob:
    common = {**_common(step), "max_restarts": step.max_restarts}
    env = {**secret_env(step.secret, keys_for("hf://")), **(step.env or {})} or None
    if step.workspace is None:
        runtime = step.runtime or Runtime(name=f"torchtune-{step.model}")
        sources = {"dataset": step.dataset, "model": step.model_initializer}
        initializer = Initializer(**{kind: _with_secret(source, step.secret) for kind, source in sources.items()})
        trainer = BuiltinTrainer(config=step.config, env=env)
        return TrainJob(trainer=trainer, runtime=runtime, initializer=initializer, **common)
    config = step.config
    container = CustomTrainerContainer(
        image=step.image or images.TORCHTUNE,
        # Exactly [tune, run] would make the Trainer choose recipe and configuration by its runtime's name.
        command=("tune",),
        args=tuple(tune_run(model_named(step.model), config, step.dataset_path)),
        num_nodes=config.num_nodes or 1,
        num_proc_per_node=processes(config),
        resources_per_node=config.resources_per_node,
        env=env,
    )
    runtime = step.runtime or Runtime(name=STOCK_RUNTIME)
    return TrainJob(trainer=container, runtime=runtime, workspace=step.workspace, **common)


def _with_secret(source: Any, secret: SecretReference | None) -> Any:
    """An initializer that names no Secret gets the step's."""
    if secret is None or source is None or getattr(source, "secret", secret) is not None:
        return source
    return source.model_copy(update={"secret": secret})


def _common(step: InitializeDataset | InitializeModel | ExportModel | FineTune) -> dict[str, Any]:
    return {"name": step.name, "placement": step.placement, "queue": step.queue, "deadline": step.deadline}
