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

    from trainjob.status import Outcome


class _InitializeOperator(StepOperator):
    """What the two initializers share: their arguments."""

    template_fields: Sequence[str] = (
        "storage_uri",
        "workspace",
        "secret",
        "ignore_patterns",
        "endpoint",
        "region",
        "role_arn",
        "env",
        "queue_name",
        "placement",
        "namespace",
    )

    def __init__(
        self,
        *,
        storage_uri: str,
        workspace: Workspace | str,
        secret: Any = None,
        ignore_patterns: Sequence[str] | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        role_arn: str | None = None,
        env: Mapping[str, Any] | None = None,
        queue_name: Any = None,
        placement: Any = None,
        deadline: timedelta | None = None,
        **arguments: Any,
    ) -> None:
        """See also `StepOperator`.

        Args:
            storage_uri: where it comes from: `hf://org/name` or `s3://bucket/path`.
            workspace: a `Workspace`, or the name of an existing claim.
            secret: the Kubernetes Secret with the credentials, by name, or a `SecretReference`.
            ignore_patterns: files not to fetch.
            endpoint: the object store's URL, where it is not AWS.
            region: the bucket's region.
            role_arn: the AWS role to assume.
            env: environment variables; secrets as `SecretKeyReference`.
            queue_name: a Kueue queue's name, or a `Queue`; `queue` is Airflow's own, for its workers.
            placement: a `Placement`.
            deadline: how long the step may take; the cluster ends it then.
            **arguments: those of `StepOperator` and of every operator.

        Raises:
            InvalidSpec: an argument is not allowed.
        """
        step = {
            "storage_uri": storage_uri,
            "workspace": workspace,
            "secret": secret,
            "ignore_patterns": ignore_patterns,
            "endpoint": endpoint,
            "region": region,
            "role_arn": role_arn,
            "env": env,
            "queue": queue_name,
            "placement": placement,
            "deadline": deadline,
        }
        super().__init__(step_arguments=step, **arguments)


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
        "runtime",
        "image",
        "queue_name",
        "placement",
        "env",
        "secret",
        "namespace",
    )

    def __init__(
        self,
        *,
        model: str,
        workspace: Workspace | str | None = None,
        config: Any = None,
        dataset: Any = None,
        model_initializer: Any = None,
        runtime: Any = None,
        image: str | None = None,
        queue_name: Any = None,
        placement: Any = None,
        env: Mapping[str, Any] | None = None,
        secret: Any = None,
        deadline: timedelta | None = None,
        max_restarts: int | None = None,
        **arguments: Any,
    ) -> None:
        """See also `StepOperator`.

        Args:
            model: which model's recipe: `llama3.2-1b`, `llama3.2-3b`, `llama3.3-70b`, `qwen2.5-1.5b`.
            workspace: a `Workspace`, or the name of an existing claim, with dataset and model.
            config: a `TorchTuneConfig`, or a dict of its fields, which may hold templates.
            dataset: without a workspace: an initializer that runs inside the same TrainJob.
            model_initializer: without a workspace: an initializer that runs inside the same TrainJob.
            runtime: the training runtime's name, or a `Runtime`.
            image: the TorchTune image.
            queue_name: a Kueue queue's name, or a `Queue`; `queue` is Airflow's own, for its workers.
            placement: a `Placement`.
            env: environment variables; secrets as `SecretKeyReference`.
            secret: a Kubernetes Secret whose known keys become environment variables.
            deadline: how long the TrainJob may be active; the cluster ends it then.
            max_restarts: how often a failing container may be restarted in place; by default 0.
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
            "runtime": runtime,
            "image": image,
            "queue": queue_name,
            "placement": placement,
            "env": env,
            "secret": secret,
            "deadline": deadline,
            "max_restarts": max_restarts,
        }
        super().__init__(step_arguments=step, **arguments)


class ExportModelOperator(StepOperator):
    """Makes one clean Hugging Face folder of the final checkpoint and sends it to its destination."""

    step_type = ExportModel
    destination: str
    template_fields: Sequence[str] = (
        "workspace",
        "destination",
        "secret",
        "endpoint",
        "region",
        "queue_name",
        "placement",
        "metadata",
        "namespace",
    )

    def __init__(
        self,
        *,
        workspace: Workspace | str,
        destination: str,
        secret: Any = None,
        endpoint: str | None = None,
        region: str | None = None,
        queue_name: Any = None,
        placement: Any = None,
        metadata: Mapping[str, Any] | None = None,
        deadline: timedelta | None = None,
        **arguments: Any,
    ) -> None:
        """See also `StepOperator`.

        Args:
            workspace: a `Workspace`, or the name of an existing claim, with the output of the fine-tuning.
            destination: `s3://bucket/path`, `hf://org/name`, or a path below `/workspace`.
            secret: the Kubernetes Secret with the credentials, by name, or a `SecretReference`.
            endpoint: the object store's URL, where it is not AWS.
            region: the bucket's region.
            queue_name: a Kueue queue's name, or a `Queue`; `queue` is Airflow's own, for its workers.
            placement: a `Placement`.
            metadata: what the export's `manifest.json` is to say besides, such as base model and dataset.
            deadline: how long the step may take; the cluster ends it then.
            **arguments: those of `StepOperator` and of every operator.

        Raises:
            InvalidSpec: an argument is not allowed.
        """
        step = {
            "workspace": workspace,
            "destination": destination,
            "secret": secret,
            "endpoint": endpoint,
            "region": region,
            "queue": queue_name,
            "placement": placement,
            "metadata": metadata,
            "deadline": deadline,
        }
        super().__init__(step_arguments=step, **arguments)

    def rendered_step(self, context: Context) -> Any:
        """The manifest says which run made the export."""
        from trainjob_airflow.run_key import run_key

        step = super().rendered_step(context)
        return step.model_copy(update={"metadata": {"run_key": run_key(context).to_dict(), **step.metadata}})

    def result(self, context: Context, outcome: Outcome) -> dict[str, Any]:
        """The model's location; also on the events of the task's assets."""
        from airflow.sdk import Asset

        location = {"location": self.destination}
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(
                    {**location, "trainjob": f"{outcome.namespace}/{outcome.job}"}
                )
        return location
