"""The steps of a fine-tuning chain as Airflow tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainjob.spec import ExportModel, FineTune, InitializeDataset, InitializeModel
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.operators.workspace import Workspace

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.spec import Workspace as ExistingWorkspace
    from trainjob.status import Outcome


class _InitializeOperator(StepOperator):
    """What the two initializers share: their arguments."""

    template_fields: Sequence[str] = (
        "storage_uri",
        "workspace",
        "secret",
        "revision",
        "ignore_patterns",
        "endpoint",
        "region",
        "role_arn",
        "env",
        "image",
        "queue_name",
        "placement",
        "volumes",
        "namespace",
    )

    def __init__(
        self,
        *,
        storage_uri: str,
        workspace: Workspace | ExistingWorkspace | str,
        secret: Any = None,
        revision: str | None = None,
        ignore_patterns: Sequence[str] | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        role_arn: str | None = None,
        env: Mapping[str, Any] | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        queue_name: Any = None,
        placement: Any = None,
        volumes: Sequence[Any] | None = None,
        deadline: timedelta | None = None,
        **arguments: Any,
    ) -> None:
        """See also `StepOperator`.

        Args:
            storage_uri: where it comes from: `hf://org/name`, `s3://bucket/path` or `gs://bucket/path`.
            workspace: a `Workspace`, an existing claim by name, or a `trainjob.Workspace`.
            secret: the Kubernetes Secret with the credentials, by name, or a `SecretReference`.
            revision: of a repository on the Hub: a branch, a tag or a commit; by default the newest commit.
            ignore_patterns: files not to fetch.
            endpoint: the object store's URL, where it is not AWS or Google, or the Hub's.
            region: an S3 bucket's region.
            role_arn: the AWS role to assume.
            env: environment variables; secrets as `SecretKeyReference`.
            image: one with Python, huggingface_hub and opendal; by default upstream's initializer.
            resources: what the step needs, such as `{"memory": "4Gi"}`.
            queue_name: a Kueue queue's name, or a `Queue`; `queue` is Airflow's own, for its workers.
            placement: a `Placement`.
            volumes: `Volume`s that its pods mount besides the workspace.
            deadline: how long the step may take; the cluster ends it then.
            **arguments: those of `StepOperator` and of every operator.

        Raises:
            InvalidSpec: an argument is not allowed.
        """
        step = {
            "storage_uri": storage_uri,
            "workspace": workspace,
            "secret": secret,
            "revision": revision,
            "ignore_patterns": ignore_patterns,
            "endpoint": endpoint,
            "region": region,
            "role_arn": role_arn,
            "env": env,
            "image": image,
            "resources": resources,
            "queue": queue_name,
            "placement": placement,
            "volumes": volumes,
            "deadline": deadline,
        }
        super().__init__(step_arguments=step, **arguments)

    def result(self, outcome: Outcome, receipt: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - not needed here
        """What the fetch's last line tells: the revision that was fetched, and how much it is."""
        return {name: receipt[name] for name in ("uri", "revision", "files", "bytes") if receipt.get(name)}


class InitializeDatasetOperator(_InitializeOperator):
    """Fetches a dataset into `/workspace/dataset`."""

    step_type = InitializeDataset


class InitializeModelOperator(_InitializeOperator):
    """Fetches a model into `/workspace/model`."""

    step_type = InitializeModel


class FineTuneOperator(StepOperator):
    """Fine-tunes `/workspace/model` on `/workspace/dataset` with TorchTune; checkpoints go to `/workspace/output`."""

    step_type = FineTune
    template_fields: Sequence[str] = (
        "model",
        "config",
        "workspace",
        "dataset_path",
        "model_path",
        "output_path",
        "runtime",
        "image",
        "queue_name",
        "placement",
        "volumes",
        "env",
        "secret",
        "namespace",
    )

    def __init__(
        self,
        *,
        model: str,
        workspace: Workspace | ExistingWorkspace | str | None = None,
        config: Any = None,
        dataset: Any = None,
        model_initializer: Any = None,
        dataset_path: str | None = None,
        model_path: str | None = None,
        output_path: str | None = None,
        runtime: Any = None,
        image: str | None = None,
        queue_name: Any = None,
        placement: Any = None,
        volumes: Sequence[Any] | None = None,
        env: Mapping[str, Any] | None = None,
        secret: Any = None,
        deadline: timedelta | None = None,
        max_restarts: int | None = None,
        resume: bool | None = None,
        **arguments: Any,
    ) -> None:
        """See also `StepOperator`.

        Args:
            model: which model's recipe: `llama3.2-1b`, `llama3.2-3b`, `llama3.3-70b`, `qwen2.5-1.5b`.
            workspace: a `Workspace`, an existing claim by name, or a `trainjob.Workspace`, with dataset and model.
            config: a `TorchTuneConfig`, or a dict of its fields, which may hold templates.
            dataset: without a workspace: an initializer that runs inside the same TrainJob.
            model_initializer: without a workspace: an initializer that runs inside the same TrainJob.
            dataset_path: where the data files lie below `/workspace/dataset`: a folder, or a file; by default `data`.
            model_path: where the model lies below `/workspace`; by default `model`.
            output_path: where the checkpoints go below `/workspace/output`; mapped tasks that share a workspace need
                one each, such as `"{{ ti.map_index }}"`.
            runtime: the training runtime's name, or a `Runtime`.
            image: the TorchTune image.
            queue_name: a Kueue queue's name, or a `Queue`; `queue` is Airflow's own, for its workers.
            placement: a `Placement`.
            volumes: `Volume`s that its pods mount besides the workspace.
            env: environment variables; secrets as `SecretKeyReference`.
            secret: a Kubernetes Secret whose known keys become environment variables.
            deadline: how long the TrainJob may be active; the cluster ends it then.
            max_restarts: how often a failing container may be restarted in place; by default 0.
            resume: whether a retry goes on after the last whole epoch that is on the workspace; by default it does.
            **arguments: those of `StepOperator` and of every operator.

        Raises:
            InvalidSpec: an argument is not allowed.
        """
        step = {
            "model": model,
            "workspace": workspace,
            "config": config,
            "dataset": dataset,
            "model_initializer": model_initializer,
            "dataset_path": dataset_path,
            "model_path": model_path,
            "output_path": output_path,
            "runtime": runtime,
            "image": image,
            "queue": queue_name,
            "placement": placement,
            "volumes": volumes,
            "env": env,
            "secret": secret,
            "deadline": deadline,
            "max_restarts": max_restarts,
            "resume": resume,
        }
        super().__init__(step_arguments=step, **arguments)


class ExportModelOperator(StepOperator):
    """Makes one clean Hugging Face folder of the final checkpoint and sends it to its destination."""

    step_type = ExportModel
    destination: str
    template_fields: Sequence[str] = (
        "workspace",
        "destination",
        "output_path",
        "secret",
        "endpoint",
        "region",
        "env",
        "image",
        "queue_name",
        "placement",
        "volumes",
        "metadata",
        "registry",
        "namespace",
    )

    def __init__(
        self,
        *,
        workspace: Workspace | ExistingWorkspace | str,
        destination: str,
        output_path: str | None = None,
        secret: Any = None,
        endpoint: str | None = None,
        region: str | None = None,
        env: Mapping[str, Any] | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        queue_name: Any = None,
        placement: Any = None,
        volumes: Sequence[Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        registry: Any = None,
        deadline: timedelta | None = None,
        **arguments: Any,
    ) -> None:
        """See also `StepOperator`.

        Args:
            workspace: a `Workspace`, an existing claim by name, or a `trainjob.Workspace`, with its output.
            destination: `s3://bucket/path`, `gs://bucket/path`, `hf://org/name`, or a path below `/workspace`.
            output_path: where the checkpoints are below `/workspace/output`, as the fine-tuning was told.
            secret: the Kubernetes Secret with the credentials, by name, or a `SecretReference`.
            endpoint: the object store's URL, where it is not AWS or Google.
            region: an S3 bucket's region.
            env: environment variables; secrets as `SecretKeyReference`.
            image: one with Python, huggingface_hub and opendal; by default upstream's model initializer.
            resources: what the step needs, such as `{"memory": "4Gi"}`.
            queue_name: a Kueue queue's name, or a `Queue`; `queue` is Airflow's own, for its workers.
            placement: a `Placement`.
            volumes: `Volume`s that its pods mount besides the workspace.
            metadata: what the export's `manifest.json` is to say besides, such as base model and dataset.
            registry: a `ModelRegistry` to register the model in, or a dict of its fields, which may hold templates.
            deadline: how long the step may take; the cluster ends it then.
            **arguments: those of `StepOperator` and of every operator.

        Raises:
            InvalidSpec: an argument is not allowed.
        """
        step = {
            "workspace": workspace,
            "destination": destination,
            "output_path": output_path,
            "secret": secret,
            "endpoint": endpoint,
            "region": region,
            "env": env,
            "image": image,
            "resources": resources,
            "queue": queue_name,
            "placement": placement,
            "volumes": volumes,
            "metadata": metadata,
            "registry": registry,
            "deadline": deadline,
        }
        super().__init__(step_arguments=step, **arguments)

    def rendered_step(self, context: Context) -> Any:
        """The manifest says which run made the export."""
        from trainjob_airflow.run_key import run_key

        step = super().rendered_step(context)
        return step.model_copy(update={"metadata": {"run_key": run_key(context).to_dict(), **step.metadata}})

    def result(self, outcome: Outcome, receipt: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - not needed here
        """The model's location, and what the export's last line tells: digest, metrics, size, registration."""
        from trainjob.status import export_facts

        return {"location": self.destination, **export_facts(receipt)}
