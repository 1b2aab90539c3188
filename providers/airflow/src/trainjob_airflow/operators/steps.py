"""Operators for the steps of a fine-tuning chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainjob.spec import ExportModel, FineTune, InitializeDataset, InitializeModel
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.operators.workspace import Workspace

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.spec import WorkspaceVolume
    from trainjob.status import Outcome


class _InitializeOperator(StepOperator):
    """Base class of the operators that fetch a dataset or a model into the workspace."""

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
        "program",
        "step_resources",
        "queue_name",
        "placement",
        "volumes",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        storage_uri: str,
        workspace: Workspace | WorkspaceVolume | str,
        secret: Any = None,
        revision: str | None = None,
        ignore_patterns: Sequence[str] | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        role_arn: str | None = None,
        env: Mapping[str, Any] | None = None,
        image: str | None = None,
        program: str | None = None,
        resources: Mapping[str, Any] | None = None,
        queue_name: Any = None,
        placement: Any = None,
        volumes: Sequence[Any] | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            storage_uri: location to fetch from, such as `hf://org/name`.
            workspace: a `Workspace`, the name of an existing claim, or a `trainjob.WorkspaceVolume`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            revision: branch, tag or commit of a repository on the Hugging Face Hub; by default the newest commit.
            ignore_patterns: patterns of the files that are not fetched.
            endpoint: URL of an object store other than AWS, Google or Azure, or of the Hub.
            region: region of an S3 bucket.
            role_arn: ARN of the AWS role to assume.
            env: environment variables; secrets as `SecretKeyReference`.
            image: image with Python, huggingface_hub and opendal; by default Kubeflow Trainer's initializer.
            program: `image` to run the code of the trainjob that `image` contains, with readable arguments; by default
                `packed`, which sends the code in the command of the pods.
            resources: resources that the step needs, such as `{"memory": "4Gi"}`.
            queue_name: name of a Kueue queue, or a `Queue`. Airflow's own `queue` selects workers.
            placement: a `Placement` for the pods.
            volumes: `Volume`s that the pods mount in addition to the workspace.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
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
            "program": program,
            "resources": resources,
            "queue": queue_name,
            "placement": placement,
            "volumes": volumes,
        }
        super().__init__(step_arguments=step, **arguments)

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the outcome is not needed
        """Return URI, revision, number of files and size in bytes, as far as the log reports them."""
        return {name: step_result[name] for name in ("uri", "revision", "files", "bytes") if step_result.get(name)}


class InitializeDatasetOperator(_InitializeOperator):
    """Fetch a dataset into `/workspace/dataset`.

    The XCom also has `uri`, `revision`, `files` and `bytes` of the fetched dataset, as far as the log reports them.
    """

    step_type = InitializeDataset


class InitializeModelOperator(_InitializeOperator):
    """Fetch a model into `/workspace/model`.

    The XCom also has `uri`, `revision`, `files` and `bytes` of the fetched model, as far as the log reports them.
    """

    step_type = InitializeModel


class FineTuneOperator(StepOperator):
    """Fine-tune `/workspace/model` on `/workspace/dataset` with a training framework.

    The class of `config` determines the framework. The checkpoints are written to `/workspace/output`.
    """

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
        "program",
        "queue_name",
        "placement",
        "volumes",
        "env",
        "secret",
        "max_restarts",
        "resume_from",
        "checkpoint_uri",
        "checkpoint_endpoint",
        "tracking",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        model: str,
        workspace: Workspace | WorkspaceVolume | str | None = None,
        config: Any = None,
        dataset: Any = None,
        model_initializer: Any = None,
        dataset_path: str | None = None,
        model_path: str | None = None,
        output_path: str | None = None,
        runtime: Any = None,
        image: str | None = None,
        program: str | None = None,
        queue_name: Any = None,
        placement: Any = None,
        volumes: Sequence[Any] | None = None,
        env: Mapping[str, Any] | None = None,
        secret: Any = None,
        max_restarts: int | str | None = None,
        resume: bool | None = None,
        resume_from: Any = None,
        checkpoint_uri: str | None = None,
        checkpoint_endpoint: str | None = None,
        tracking: Any = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            model: with TorchTune, the model whose recipe is used: `llama3.2-1b`, `llama3.2-3b`, `llama3.3-70b` or
                `qwen2.5-1.5b`. With other frameworks, a free name; the trained model is in `model_path`.
            workspace: a `Workspace`, the name of an existing claim, or a `trainjob.WorkspaceVolume`, with dataset and
                model. Only TorchTune works without one.
            config: a `TorchTuneConfig`, `TRLConfig`, `LLaMAFactoryConfig` or `UnslothConfig`, or a dict of its fields,
                which may have templates. A dict also has the name of the framework, such as
                `"framework": "trl"`.
            dataset: without a workspace: an initializer that fetches the dataset inside the same TrainJob.
            model_initializer: without a workspace: an initializer that fetches the model inside the same TrainJob.
            dataset_path: folder or file of the data below `/workspace/dataset`; by default `data`.
            model_path: folder of the model below `/workspace`; by default `model`.
            output_path: folder of the checkpoints below `/workspace/output`. Mapped tasks that share a workspace need
                different folders, such as `"{{ ti.map_index }}"`.
            runtime: name of the training runtime, or a `Runtime`.
            image: image with the framework. By default, TorchTune uses the Trainer's image, LLaMA-Factory its own, and
                TRL the runtime's image with torch, in which each pod installs TRL.
            program: `image` to run the code of the trainjob in `image`, or in the image of `runtime`, with readable
                arguments; by default `packed`, which sends the code in the command of the pods. Only with a workspace.
            queue_name: name of a Kueue queue, or a `Queue`. Airflow's own `queue` selects workers.
            placement: a `Placement` for the pods.
            volumes: `Volume`s that the pods mount in addition to the workspace.
            env: environment variables; secrets as `SecretKeyReference`.
            secret: a Kubernetes Secret whose known keys become environment variables.
            max_restarts: maximum number of restarts in place of a failing container; by default 0.
            resume: whether a retry resumes from the last complete checkpoint on the workspace; by default True.
                TorchTune saves one after each epoch.
            resume_from: checkpoint of another training from which this one starts with its own hyperparameters: a
                `ResumeFrom` or a dict of its fields, a step, or a folder below `/workspace`; it may have templates.
            checkpoint_uri: address in an object store, such as `s3://bucket/checkpoints`, to which the last complete
                checkpoint is copied; a retry whose workspace is gone continues from it. Only with a workspace.
            checkpoint_endpoint: URL of this object store, if it is not AWS, Google or Azure.
            tracking: an `MLflow`, `WandB` or `TensorBoard` that gets parameters and metrics, or a dict of its fields
                and `backend` (`mlflow`, `wandb` or `tensorboard`), which may have templates. Only with a workspace.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
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
            "program": program,
            "queue": queue_name,
            "placement": placement,
            "volumes": volumes,
            "env": env,
            "secret": secret,
            "max_restarts": max_restarts,
            "resume": resume,
            "resume_from": resume_from,
            "checkpoint_uri": checkpoint_uri,
            "checkpoint_endpoint": checkpoint_endpoint,
            "tracking": tracking,
        }
        super().__init__(step_arguments=step, **arguments)


class ExportModelOperator(StepOperator):
    """Create a Hugging Face folder from the final checkpoint, and send it to its destination.

    The XCom also has the model's `location` and what the export's log reports about it, such as `digest`, `metrics` and
    `bytes`.
    """

    step_type = ExportModel
    destination: str
    template_fields: Sequence[str] = (
        "workspace",
        "destination",
        "output_path",
        "adapter",
        "secret",
        "endpoint",
        "region",
        "env",
        "image",
        "program",
        "step_resources",
        "queue_name",
        "placement",
        "volumes",
        "after_jobs",
        "metadata",
        "registry",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        workspace: Workspace | WorkspaceVolume | str,
        destination: str,
        output_path: str | None = None,
        adapter: str | None = None,
        secret: Any = None,
        endpoint: str | None = None,
        region: str | None = None,
        env: Mapping[str, Any] | None = None,
        image: str | None = None,
        program: str | None = None,
        resources: Mapping[str, Any] | None = None,
        queue_name: Any = None,
        placement: Any = None,
        volumes: Sequence[Any] | None = None,
        after_jobs: Sequence[str] | None = None,
        any_run: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        registry: Any = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            workspace: a `Workspace`, the name of an existing claim, or a `trainjob.WorkspaceVolume`, with the
                fine-tuning's output.
            destination: such as `s3://bucket/path`, or a path below `/workspace`.
            output_path: folder of the checkpoints below `/workspace/output`; the same as the fine-tuning's
                `output_path`.
            adapter: what to export of a LoRA training: `merge` for the merged model, or for the adapter if there is no
                merged model; `keep` for the adapter alone. By default `merge`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            endpoint: URL of an object store other than AWS, Google or Azure.
            region: region of an S3 bucket.
            env: environment variables; secrets as `SecretKeyReference`.
            image: image with Python, huggingface_hub and opendal; by default Kubeflow Trainer's model initializer.
            program: `image` to run the code of the trainjob that `image` contains, with readable arguments; by default
                `packed`, which sends the code in the command of the pods.
            resources: resources that the step needs, such as `{"memory": "4Gi"}`.
            queue_name: name of a Kueue queue, or a `Queue`. Airflow's own `queue` selects workers.
            placement: a `Placement` for the pods.
            volumes: `Volume`s that the pods mount in addition to the workspace.
            after_jobs: names of TrainJobs, one of which must have trained the model, such as
                `["{{ ti.xcom_pull('fine_tune')['job'] }}"]`; by default any one of this DAG run.
            any_run: whether to export the model of any DAG run.
            metadata: values to add to the export's `manifest.json`, such as base model and dataset.
            registry: a `ModelRegistry` or `MLflowRegistry` in which to register the model, or a dict of its fields,
                which may have templates; that of an `MLflowRegistry` has `"backend": "mlflow"`.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        step = {
            "workspace": workspace,
            "destination": destination,
            "output_path": output_path,
            "adapter": adapter,
            "secret": secret,
            "endpoint": endpoint,
            "region": region,
            "env": env,
            "image": image,
            "program": program,
            "resources": resources,
            "queue": queue_name,
            "placement": placement,
            "volumes": volumes,
            "after_jobs": after_jobs,
            "any_run": any_run,
            "metadata": metadata,
            "registry": registry,
        }
        super().__init__(step_arguments=step, **arguments)

    def rendered_step(self, context: Context) -> Any:
        """Return the step to submit, with the run key added to its metadata.

        The export writes the metadata into `manifest.json`.
        """
        from trainjob_airflow.run_key import get_run_key

        step = super().rendered_step(context)
        return step.model_copy(update={"metadata": {"run_key": get_run_key(context).to_dict(), **step.metadata}})

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the outcome is not needed
        """Return the model's location, and what the export's receipt reports about it.

        The receipt is the last line of the export's log. It has, for example, digest, metrics, size and registration.
        """
        from trainjob.status import get_model_facts

        return {"location": self.destination, **get_model_facts(step_result)}
