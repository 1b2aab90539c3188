"""Operators for the steps of a fine-tuning chain, and for any TrainJob.

Written by tools/parameters from the classes in `trainjob.spec`: run `make reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainjob.spec import (
    Evaluate,
    ExportModel,
    FineTune,
    Generate,
    InitializeDataset,
    InitializeModel,
    Promote,
    Rollback,
    TrainJob,
)
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.operators.step_bases import (
    EvaluationOperator,
    ExportOperator,
    FetchOperator,
    GenerationOperator,
    ManifestOperator,
    PromotionOperator,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from trainjob.spec import (
        BuiltinTrainer,
        Champion,
        Code,
        CustomTrainer,
        CustomTrainerContainer,
        DataCacheInitializer,
        FrameworkConfig,
        HuggingFaceDatasetInitializer,
        HuggingFaceModelInitializer,
        Initializer,
        MLflow,
        MLflowRegistry,
        ModelCheck,
        ModelRegistry,
        PackedCode,
        Placement,
        Queue,
        ResumeFrom,
        Runtime,
        S3DatasetInitializer,
        S3ModelInitializer,
        SecretReference,
        SmokeRequest,
        TensorBoard,
        WandB,
        Watchdog,
        WorkspaceVolume,
    )
    from trainjob_airflow.operators.workspace import Workspace


class InitializeDatasetOperator(FetchOperator):
    """Fetch a dataset into `/workspace/dataset`.

    The XCom also has `uri`, `revision`, `files` and `bytes` of the fetched dataset, as far as the log reports them.
    """

    step_type = InitializeDataset
    template_fields: Sequence[str] = (
        "storage_uri",
        "workspace",
        "subset",
        "split",
        "eval_split",
        "eval_fraction",
        "columns",
        "revision",
        "ignore_patterns",
        "endpoint",
        "region",
        "role_arn",
        "image",
        "step_resources",
        "max_restarts",
        "env",
        "secret",
        "program",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        storage_uri: str,
        workspace: Workspace | WorkspaceVolume | str,
        subset: str | None = None,
        split: str | None = None,
        eval_split: str | None = None,
        eval_fraction: float | str | None = None,
        columns: Mapping[str, Any] | None = None,
        revision: str | None = None,
        ignore_patterns: Sequence[str] | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        role_arn: str | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        max_restarts: int | str | None = None,
        env: Mapping[str, Any] | None = None,
        secret: SecretReference | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            storage_uri: address to fetch from, such as `s3://bucket/path`, `pvc://claim/path`,
                `oci://registry/image:tag`, or `hf://organization/name`, which a revision may follow:
                `hf://organization/name@v1.0`.
            workspace: PersistentVolumeClaim into which the files are written. It is a `Workspace`, the name of an
                existing PVC, or a `trainjob.WorkspaceVolume`.
            subset: subset of the dataset, which is a configuration in its `README.md`; by default the only one, or its
                default.
            split: rows for training, in the notation of the library `datasets`, such as `train` or `train[:5000]`; by
                default `train`, or the only split.
            eval_split: rows for evaluation in the same notation, such as `test` or `validation[:500]`.
            eval_fraction: share of the rows for training that is held out for evaluation, such as 0.1. They are chosen
                at random with a fixed seed, so that they are the same in each run. Not together with `eval_split`.
            columns: names of the dataset's columns by their new names, such as `{"prompt": "question"}`. Other columns
                are kept.
            revision: branch, tag or commit of a repository on the Hugging Face Hub; by default the newest commit of
                `main`.
            ignore_patterns: patterns of the files that are not fetched; by default a model's weights in other formats
                than safetensors, if it has safetensors.
            endpoint: URL of an object store other than AWS, Google or Azure, or of the Hub.
            region: region of an S3 bucket.
            role_arn: ARN of the AWS role to assume.
            image: image with Python, huggingface_hub and opendal; by default the Trainer's own initializer.
            resources: resources of the step's pod, such as `{"memory": "4Gi"}`.
            max_restarts: how often a failing container may be restarted in place before the TrainJob is ended. In
                Python and files, None (null) leaves it to the runtime.
            env: environment variables by name; secrets as `SecretKeyReference`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so
                that any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
                By default `packed`.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "storage_uri": storage_uri,
                "workspace": workspace,
                "subset": subset,
                "split": split,
                "eval_split": eval_split,
                "eval_fraction": eval_fraction,
                "columns": columns,
                "revision": revision,
                "ignore_patterns": ignore_patterns,
                "endpoint": endpoint,
                "region": region,
                "role_arn": role_arn,
                "image": image,
                "resources": resources,
                "max_restarts": max_restarts,
                "env": env,
                "secret": secret,
                "program": program,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
            },
            **arguments,
        )


class InitializeModelOperator(FetchOperator):
    """Fetch a model into `/workspace/model`.

    The XCom also has `uri`, `revision`, `files` and `bytes` of the fetched model, as far as the log reports them.
    """

    step_type = InitializeModel
    template_fields: Sequence[str] = (
        "storage_uri",
        "workspace",
        "revision",
        "ignore_patterns",
        "endpoint",
        "region",
        "role_arn",
        "image",
        "step_resources",
        "max_restarts",
        "env",
        "secret",
        "program",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        storage_uri: str,
        workspace: Workspace | WorkspaceVolume | str,
        revision: str | None = None,
        ignore_patterns: Sequence[str] | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        role_arn: str | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        max_restarts: int | str | None = None,
        env: Mapping[str, Any] | None = None,
        secret: SecretReference | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            storage_uri: address to fetch from, such as `s3://bucket/path`, `pvc://claim/path`,
                `oci://registry/image:tag`, or `hf://organization/name`, which a revision may follow:
                `hf://organization/name@v1.0`.
            workspace: PersistentVolumeClaim into which the files are written. It is a `Workspace`, the name of an
                existing PVC, or a `trainjob.WorkspaceVolume`.
            revision: branch, tag or commit of a repository on the Hugging Face Hub; by default the newest commit of
                `main`.
            ignore_patterns: patterns of the files that are not fetched; by default a model's weights in other formats
                than safetensors, if it has safetensors.
            endpoint: URL of an object store other than AWS, Google or Azure, or of the Hub.
            region: region of an S3 bucket.
            role_arn: ARN of the AWS role to assume.
            image: image with Python, huggingface_hub and opendal; by default the Trainer's own initializer.
            resources: resources of the step's pod, such as `{"memory": "4Gi"}`.
            max_restarts: how often a failing container may be restarted in place before the TrainJob is ended. In
                Python and files, None (null) leaves it to the runtime.
            env: environment variables by name; secrets as `SecretKeyReference`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so
                that any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
                By default `packed`.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "storage_uri": storage_uri,
                "workspace": workspace,
                "revision": revision,
                "ignore_patterns": ignore_patterns,
                "endpoint": endpoint,
                "region": region,
                "role_arn": role_arn,
                "image": image,
                "resources": resources,
                "max_restarts": max_restarts,
                "env": env,
                "secret": secret,
                "program": program,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
            },
            **arguments,
        )


class FineTuneOperator(StepOperator):
    """Fine-tune `/workspace/model` on `/workspace/dataset` with a training framework.

    The class of `config` determines the framework. The checkpoints are written to `/workspace/output`.
    """

    step_type = FineTune
    template_fields: Sequence[str] = (
        "model",
        "config",
        "workspace",
        "dataset",
        "model_initializer",
        "dataset_path",
        "model_path",
        "output_path",
        "runtime",
        "image",
        "max_restarts",
        "resume",
        "resume_from",
        "checkpoint_uri",
        "checkpoint_endpoint",
        "tracking",
        "watchdog",
        "env",
        "secret",
        "program",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        model: str,
        config: FrameworkConfig | Mapping[str, Any] | str | None = None,
        workspace: Workspace | WorkspaceVolume | str | None = None,
        dataset: HuggingFaceDatasetInitializer
        | S3DatasetInitializer
        | DataCacheInitializer
        | Mapping[str, Any]
        | str
        | None = None,
        model_initializer: HuggingFaceModelInitializer | S3ModelInitializer | Mapping[str, Any] | str | None = None,
        dataset_path: str | None = None,
        model_path: str | None = None,
        output_path: str | None = None,
        runtime: Runtime | Mapping[str, Any] | str | None = None,
        image: str | None = None,
        max_restarts: int | str | None = None,
        resume: bool | None = None,
        resume_from: ResumeFrom | Mapping[str, Any] | str | None = None,
        checkpoint_uri: str | None = None,
        checkpoint_endpoint: str | None = None,
        tracking: MLflow | WandB | TensorBoard | Mapping[str, Any] | str | None = None,
        watchdog: Watchdog | Mapping[str, Any] | str | None = None,
        env: Mapping[str, Any] | None = None,
        secret: SecretReference | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            model: name of the model. A framework with recipes for certain models accepts only their names. With others,
                it is a free name; the trained model is the one in `model_path`.
            config: configuration of the training, which is required; its class determines the framework. A dict of its
                fields also has the framework's name as `framework`.
            workspace: PersistentVolumeClaim with dataset and model. It is a `Workspace`, the name of an existing PVC,
                or a `trainjob.WorkspaceVolume`.
            dataset: without a workspace: an initializer that fetches the dataset inside the same TrainJob.
            model_initializer: without a workspace: an initializer that fetches the model inside the same TrainJob.
            dataset_path: folder or file of the data below `/workspace/dataset`; `.` means the whole folder; by default
                `data`.
            model_path: folder of the model below `/workspace`, for example from the export of an earlier training; by
                default `model`.
            output_path: folder of the checkpoints below `/workspace/output`. Trainings that share a workspace each need
                their own folder.
            runtime: name of the training runtime, or a `Runtime`; by default the stock runtime `torch-distributed`.
            image: image with the framework, only with a workspace; by default the framework's, or the runtime's.
            max_restarts: how often a failing container may be restarted in place before the TrainJob is ended. In
                Python and files, None (null) leaves it to the runtime.
            resume: whether to continue from the last complete checkpoint that an earlier attempt of the same run left
                on the workspace. What decides the weights must be the same, such as the learning rate and the files of
                model and dataset; see `trainjob.manifest.weight_fields`. By default `True`.
            resume_from: checkpoint of another training from which this one starts, with its own hyperparameters; only
                with a workspace: a `ResumeFrom` or a dict of its fields, a step, or a folder below `/workspace`. By
                default it starts from the model.
            checkpoint_uri: address in an object store, such as `s3://bucket/checkpoints`, to which the last complete
                checkpoint is copied while the training continues; only with a workspace. A retry whose workspace has no
                checkpoint fetches the copy. `secret` has the credentials. By default nothing is copied.
            checkpoint_endpoint: URL of this object store, if it is not AWS, Google or Azure.
            tracking: experiment tracker that gets the configuration as parameters, and the training's metrics: an
                `MLflow`, `WandB` or `TensorBoard`, or a dict of its fields and `backend` (`mlflow`, `wandb` or
                `tensorboard`); only with a workspace. A retry continues the same tracked run.
            watchdog: limits of the training's silence, and what follows when it hangs: a `Watchdog`, or a dict of its
                fields; only with a workspace. By default nobody watches.
            env: environment variables by name; secrets as `SecretKeyReference`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so
                that any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
                By default `packed`.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "model": model,
                "config": config,
                "workspace": workspace,
                "dataset": dataset,
                "model_initializer": model_initializer,
                "dataset_path": dataset_path,
                "model_path": model_path,
                "output_path": output_path,
                "runtime": runtime,
                "image": image,
                "max_restarts": max_restarts,
                "resume": resume,
                "resume_from": resume_from,
                "checkpoint_uri": checkpoint_uri,
                "checkpoint_endpoint": checkpoint_endpoint,
                "tracking": tracking,
                "watchdog": watchdog,
                "env": env,
                "secret": secret,
                "program": program,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
            },
            **arguments,
        )


class ExportModelOperator(ExportOperator):
    """Create a Hugging Face folder from the final checkpoint, and send it to its destination.

    The XCom also has the model's `location` and what the export's log reports about it, such as `digest`, `metrics` and
    `bytes`.
    """

    step_type = ExportModel
    template_fields: Sequence[str] = (
        "workspace",
        "destination",
        "output_path",
        "adapter",
        "endpoint",
        "region",
        "role_arn",
        "image",
        "step_resources",
        "after_jobs",
        "any_run",
        "metadata",
        "registry",
        "env",
        "secret",
        "program",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        workspace: Workspace | WorkspaceVolume | str,
        destination: str,
        output_path: str | None = None,
        adapter: str | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        role_arn: str | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        after_jobs: Sequence[str] | None = None,
        any_run: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        registry: ModelRegistry | MLflowRegistry | Mapping[str, Any] | str | None = None,
        env: Mapping[str, Any] | None = None,
        secret: SecretReference | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            workspace: PersistentVolumeClaim with the fine-tuning's output. It is a `Workspace`, the name of an existing
                PVC, or a `trainjob.WorkspaceVolume`.
            destination: an address such as `s3://bucket/path`, or a path below `/workspace`.
            output_path: folder of the checkpoints below `/workspace/output`, the same as in the fine-tuning.
            adapter: what to export of a LoRA training: `merge` for the merged model, or for the adapter if the training
                saved no merged model; `keep` for the adapter alone; by default `merge`.
            endpoint: URL of an object store other than AWS, Google or Azure.
            region: region of an S3 bucket.
            role_arn: ARN of the AWS role to assume.
            image: image with Python, huggingface_hub and opendal; by default the Trainer's own model initializer.
            resources: resources of the step's pod, such as `{"memory": "4Gi"}`.
            after_jobs: names of TrainJobs, one of which must have trained the model; by default any one of the same
                workflow run. A checkpoint without a record of its TrainJob is always exported.
            any_run: whether to export the model of any workflow run.
            metadata: values to add to the export's `manifest.json`, such as base model and dataset.
            registry: where the model is registered after the upload is complete: a `ModelRegistry` (Kubeflow) or
                `MLflowRegistry`, or a dict of its fields; that of an `MLflowRegistry` has `"backend": "mlflow"`.
            env: environment variables by name; secrets as `SecretKeyReference`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so
                that any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
                By default `packed`.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "workspace": workspace,
                "destination": destination,
                "output_path": output_path,
                "adapter": adapter,
                "endpoint": endpoint,
                "region": region,
                "role_arn": role_arn,
                "image": image,
                "resources": resources,
                "after_jobs": after_jobs,
                "any_run": any_run,
                "metadata": metadata,
                "registry": registry,
                "env": env,
                "secret": secret,
                "program": program,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
            },
            **arguments,
        )


class EvaluateOperator(EvaluationOperator):
    """Score a model with tasks, held-out rows or a function, and compare it with a champion.

    If a gate fails, the task succeeds, and the tasks directly after it are skipped, unless `skip_downstream` is False.
    The XCom also has `passed`, `scores`, `champion_scores`, `differences`, `gates` and `report`, and a `summary` of
    them in Markdown.
    """

    step_type = Evaluate
    template_fields: Sequence[str] = (
        "workspace",
        "tasks",
        "held_out",
        "model_path",
        "champion_path",
        "champion",
        "allow_missing_champion",
        "task_path",
        "gates",
        "limit",
        "num_fewshot",
        "chat_template",
        "generation",
        "batch_size",
        "precision",
        "seed",
        "confidence",
        "output_path",
        "image",
        "step_resources",
        "tracking",
        "after_jobs",
        "any_run",
        "env",
        "secret",
        "program",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        workspace: Workspace | WorkspaceVolume | str,
        tasks: Sequence[str] | None = None,
        held_out: str | None = None,
        function: Callable[..., Any] | str | None = None,
        model_path: str | None = None,
        champion_path: str | None = None,
        champion: Champion | Mapping[str, Any] | str | None = None,
        allow_missing_champion: bool | None = None,
        task_path: str | None = None,
        gates: Mapping[str, Any] | None = None,
        limit: int | str | None = None,
        num_fewshot: int | str | None = None,
        chat_template: bool | None = None,
        generation: Mapping[str, Any] | None = None,
        batch_size: int | str | None = None,
        precision: str | None = None,
        seed: int | str | None = None,
        confidence: float | str | None = None,
        output_path: str | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        tracking: MLflow | WandB | TensorBoard | Mapping[str, Any] | str | None = None,
        after_jobs: Sequence[str] | None = None,
        any_run: bool | None = None,
        env: Mapping[str, Any] | None = None,
        secret: SecretReference | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            workspace: PersistentVolumeClaim with the model. It is a `Workspace`, the name of an existing PVC, or a
                `trainjob.WorkspaceVolume`.
            tasks: names of the tasks of lm-evaluation-harness 0.4.13, such as `arc_easy`, or of your own task files.
            held_out: file or folder below `/workspace` with rows for the loss, such as `dataset/eval`: JSON Lines or
                Parquet with `prompt` and `completion`, `messages`, or `text`. The metrics are `held_out/loss` by token
                and `held_out/bits_per_byte`.
            function: function such as `score(model_path)` that scores a model, or its text. It returns numbers by
                metric, or a list of such dicts, one for each row, which is compared row by row. A larger value is a
                better one. The metrics are `FUNCTION/METRIC`. Its source is sent, so it must import what it needs.
            model_path: folder of the model below `/workspace`, such as the path to which a step has exported it; by
                default `export`.
            champion_path: folder of the model to compare with, below `/workspace`; by default there is no comparison.
                Both are scored on the same rows, and compared row by row.
            champion: the model to compare with if it is no folder of the workspace: a `Champion`, or a dict of its
                fields.
            allow_missing_champion: whether gates that compare have passed while there is no champion yet, as in the
                first run of a workflow that promotes. Otherwise the step fails.
            task_path: folder with your own task files in YAML, below `/workspace`. Paths in these files are relative to
                `/workspace`, such as `dataset/eval/eval.jsonl`.
            gates: a `Gate`, or a dict of its fields, by metric: task and metric as in `arc_easy/acc`, with the filter
                after a comma if it has one, as in `gsm8k/exact_match,strict-match`; `held_out/loss`; or function and
                metric.
            limit: number of rows of each task, and of the held-out ones; by default all.
            num_fewshot: number of solved examples before each row; by default the task's own.
            chat_template: whether prompts get the form of the tokenizer's chat template.
            generation: arguments of the generation, such as `{"max_gen_toks": 64}`, in addition to the task's own.
            batch_size: number of rows at once; by default `8`.
            precision: data type of the weights: `auto` (as the model's configuration says), `fp32`, `bf16` or `fp16`;
                by default `auto`.
            seed: seed of examples and generation.
            confidence: confidence level of the differences' intervals; by default `0.95`.
            output_path: folder of the results below `/workspace`: `report.json`, and the samples of each task.
                Evaluations that share a workspace each need their own folder. By default `evaluation`.
            image: image with torch; by default the runtime's. pip installs what else tasks and held-out rows need, with
                fixed versions. A function alone needs only what it imports, and numpy if there is a champion.
            resources: resources of the step's pod, such as `{"gpu": 1, "memory": "32Gi"}`. With several GPUs, the
                layers of the model are divided among them.
            tracking: experiment tracker that gets the scores of both models, and their differences: an `MLflow`,
                `WandB` or `TensorBoard`, or a dict of its fields with `backend`.
            after_jobs: names of TrainJobs, one of which must have trained the model; by default any one of the same
                workflow run. A model without a record of its TrainJob is always accepted, and so is the champion.
            any_run: whether to evaluate the model of any workflow run.
            env: environment variables by name; secrets as `SecretKeyReference`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so
                that any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
                By default `packed`.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "workspace": workspace,
                "tasks": tasks,
                "held_out": held_out,
                "function": function,
                "model_path": model_path,
                "champion_path": champion_path,
                "champion": champion,
                "allow_missing_champion": allow_missing_champion,
                "task_path": task_path,
                "gates": gates,
                "limit": limit,
                "num_fewshot": num_fewshot,
                "chat_template": chat_template,
                "generation": generation,
                "batch_size": batch_size,
                "precision": precision,
                "seed": seed,
                "confidence": confidence,
                "output_path": output_path,
                "image": image,
                "resources": resources,
                "tracking": tracking,
                "after_jobs": after_jobs,
                "any_run": any_run,
                "env": env,
                "secret": secret,
                "program": program,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
            },
            **arguments,
        )


class GenerateOperator(GenerationOperator):
    """Generate an answer for each row of a dataset, on one or several nodes.

    The XCom also has `rows`, `shards`, `tokens`, `seconds`, `tokens_per_second`, and `output`, the file's path.
    """

    step_type = Generate
    template_fields: Sequence[str] = (
        "workspace",
        "input_path",
        "model_path",
        "output_path",
        "engine",
        "generation",
        "chat_template",
        "limit",
        "batch_size",
        "precision",
        "seed",
        "num_nodes",
        "image",
        "step_resources",
        "after_jobs",
        "any_run",
        "env",
        "secret",
        "program",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        workspace: Workspace | WorkspaceVolume | str,
        input_path: str,
        model_path: str | None = None,
        output_path: str | None = None,
        engine: str | None = None,
        generation: Mapping[str, Any] | None = None,
        chat_template: bool | None = None,
        limit: int | str | None = None,
        batch_size: int | str | None = None,
        precision: str | None = None,
        seed: int | str | None = None,
        num_nodes: int | str | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        after_jobs: Sequence[str] | None = None,
        any_run: bool | None = None,
        env: Mapping[str, Any] | None = None,
        secret: SecretReference | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            workspace: PersistentVolumeClaim with model and rows. Several nodes need one that all of them can write
                (ReadWriteMany). It is a `Workspace`, the name of an existing PVC, or a `trainjob.WorkspaceVolume`.
            input_path: file or folder below `/workspace` with the rows, such as `dataset/eval`: JSON Lines or Parquet
                with `prompt`, `messages`, or `text`.
            model_path: folder of the model below `/workspace`, such as the path to which a step has exported it; by
                default `export`.
            output_path: folder of the output below `/workspace`. Its file `generated.jsonl` has each row with
                `generated_text` and `generated_tokens`, in the order of the input. By default `generated`.
            engine: library that generates: `transformers`, or `vllm`, which needs an image with vLLM; by default
                `transformers`.
            generation: arguments of transformers' `generate`, such as `{"max_new_tokens": 64, "do_sample": true}`. By
                default an answer has at most 256 tokens. For vLLM they are converted, and others are those of its
                `SamplingParams`.
            chat_template: whether a `prompt` gets the form of the tokenizer's chat template, which conversations always
                have.
            limit: number of rows; by default all.
            batch_size: number of rows at once. vLLM forms batches itself. By default `8`.
            precision: data type of the weights: `auto` (as the model's configuration says), `fp32`, `bf16` or `fp16`;
                by default `auto`.
            seed: seed of the generation; each shard has its own one.
            num_nodes: number of nodes; by default `1`.
            image: image with torch; by default the runtime's. pip installs transformers with fixed versions if the
                image does not contain it.
            resources: resources of each node, such as `{"gpu": 1, "memory": "32Gi"}`. With several GPUs, the model is
                divided among them.
            after_jobs: names of TrainJobs, one of which must have trained the model; by default any one of the same
                workflow run. A model without a record of its TrainJob is always accepted.
            any_run: whether the model may be of any workflow run.
            env: environment variables by name; secrets as `SecretKeyReference`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so
                that any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
                By default `packed`.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "workspace": workspace,
                "input_path": input_path,
                "model_path": model_path,
                "output_path": output_path,
                "engine": engine,
                "generation": generation,
                "chat_template": chat_template,
                "limit": limit,
                "batch_size": batch_size,
                "precision": precision,
                "seed": seed,
                "num_nodes": num_nodes,
                "image": image,
                "resources": resources,
                "after_jobs": after_jobs,
                "any_run": any_run,
                "env": env,
                "secret": secret,
                "program": program,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
            },
            **arguments,
        )


class PromoteOperator(PromotionOperator):
    """Make a model the served one, or leave the one that is served now.

    The XCom also has `promoted`, `model`, `before` and `reason`.
    """

    step_type = Promote
    template_fields: Sequence[str] = (
        "model",
        "canary_percent",
        "smoke_request",
        "service",
        "service_kind",
        "adapter",
        "command",
        "registry",
        "alias",
        "time_limit",
        "workspace",
        "image",
        "step_resources",
        "env",
        "secret",
        "program",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        model: str,
        canary_percent: int | str | None = None,
        smoke_request: SmokeRequest | Mapping[str, Any] | str | None = None,
        service: str | None = None,
        service_kind: str | None = None,
        adapter: str | None = None,
        command: Sequence[str] | None = None,
        function: Callable[..., Any] | str | None = None,
        registry: ModelRegistry | MLflowRegistry | Mapping[str, Any] | str | None = None,
        alias: str | None = None,
        time_limit: timedelta | float | str | None = None,
        workspace: Workspace | WorkspaceVolume | str | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
        secret: SecretReference | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            model: address of the model: where a step has exported it, such as `s3://acme/models/tickets/7`, or a folder
                below `/workspace`. Each version needs its own address, because a server may read the files at any time.
            canary_percent: share of the requests that the model gets, with Knative; another `Promote` without it gives
                it all. The registry's alias is set only then.
            smoke_request: a `SmokeRequest`, or a dict of its fields; by default, KServe's list of models or the state
                of the model is requested, and with a command nothing.
            service: name of the `InferenceService` or `LLMInferenceService` in the namespace, which must exist; or any
                name for what `command` or `function` serves. Without it, only the registry's alias is set.
            service_kind: KServe's kind of the service; by default `InferenceService`.
            adapter: name of the LoRA adapter of an `LLMInferenceService` that is replaced or added, instead of its
                model.
            command: command that makes the model in the environment variable `MODEL_URI` the served one, instead of
                KServe. It is run again after a kill, and with the earlier address to roll back; an empty one means
                none.
            function: function that does the same, with the address as its argument.
            registry: a `ModelRegistry` or `MLflowRegistry`, or a dict of its fields. The version with the alias is the
                one with the model's address, or `version`.
            alias: alias that the version gets, and loses if the promotion is rolled back. In a Kubeflow Model Registry
                it is a property of the model. By default `champion`.
            time_limit: longest time until the model is served, and until the one before is served again; by default
                `30m`.
            workspace: PersistentVolumeClaim of a model below `/workspace`. Its service mounts it, so it needs no copy.
                It is a `Workspace`, the name of an existing PVC, or a `trainjob.WorkspaceVolume`.
            image: image with Python; by default the runtime's.
            resources: resources of the step's pod.
            env: environment variables by name; secrets as `SecretKeyReference`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so
                that any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
                By default `packed`.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "model": model,
                "canary_percent": canary_percent,
                "smoke_request": smoke_request,
                "service": service,
                "service_kind": service_kind,
                "adapter": adapter,
                "command": command,
                "function": function,
                "registry": registry,
                "alias": alias,
                "time_limit": time_limit,
                "workspace": workspace,
                "image": image,
                "resources": resources,
                "env": env,
                "secret": secret,
                "program": program,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
            },
            **arguments,
        )


class RollbackOperator(PromotionOperator):
    """Undo a promotion: the model before is served again.

    The XCom also has `rolled_back`, `model`, `before` and `reason`.
    """

    step_type = Rollback
    template_fields: Sequence[str] = (
        "any_run",
        "service",
        "service_kind",
        "adapter",
        "command",
        "registry",
        "alias",
        "time_limit",
        "workspace",
        "image",
        "step_resources",
        "env",
        "secret",
        "program",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        any_run: bool | None = None,
        service: str | None = None,
        service_kind: str | None = None,
        adapter: str | None = None,
        command: Sequence[str] | None = None,
        function: Callable[..., Any] | str | None = None,
        registry: ModelRegistry | MLflowRegistry | Mapping[str, Any] | str | None = None,
        alias: str | None = None,
        time_limit: timedelta | float | str | None = None,
        workspace: Workspace | WorkspaceVolume | str | None = None,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
        secret: SecretReference | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            any_run: whether to undo the newest promotion, of any workflow run.
            service: name of the service, as in `Promote`.
            service_kind: KServe's kind of the service; by default `InferenceService`.
            adapter: name of the LoRA adapter, as in `Promote`.
            command: command that makes the model in the environment variable `MODEL_URI` the served one, as in
                `Promote`.
            function: function that does the same, as in `Promote`.
            registry: the registry of `Promote`.
            alias: the alias of `Promote`; by default `champion`.
            time_limit: longest time until the model before is served; by default `30m`.
            workspace: PersistentVolumeClaim that the step mounts, for its `command`. It is a `Workspace`, the name of
                an existing PVC, or a `trainjob.WorkspaceVolume`.
            image: image with Python; by default the runtime's.
            resources: resources of the step's pod.
            env: environment variables by name; secrets as `SecretKeyReference`.
            secret: name of the Kubernetes Secret with the credentials, or a `SecretReference`.
            program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so
                that any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
                By default `packed`.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "any_run": any_run,
                "service": service,
                "service_kind": service_kind,
                "adapter": adapter,
                "command": command,
                "function": function,
                "registry": registry,
                "alias": alias,
                "time_limit": time_limit,
                "workspace": workspace,
                "image": image,
                "resources": resources,
                "env": env,
                "secret": secret,
                "program": program,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
            },
            **arguments,
        )


class TrainJobOperator(ManifestOperator):
    """Run a TrainJob with any trainer on any runtime, or from a complete manifest.

    The XCom also has `result` if the training's code returned a value.
    """

    step_type = TrainJob
    template_fields: Sequence[str] = (
        "trainer",
        "runtime",
        "initializer",
        "workspace",
        "tracking",
        "watchdog",
        "program",
        "model_check",
        "max_restarts",
        "code",
        "options",
        "name",
        "labels",
        "annotations",
        "deadline",
        "queue_name",
        "placement",
        "volumes",
        "managed_by",
        "suspend",
        "runtime_patches",
        "queue_timeout",
        "start_timeout",
        "interruption_retries",
        "on_kill_action",
        "on_failure_action",
        "ttl_after_success",
        "ttl_after_failure",
        "manifest",
        *StepOperator.template_fields,
    )

    def __init__(
        self,
        *,
        trainer: BuiltinTrainer | CustomTrainer | CustomTrainerContainer | Mapping[str, Any] | str | None = None,
        runtime: Runtime | Mapping[str, Any] | str | None = None,
        initializer: Initializer | Mapping[str, Any] | str | None = None,
        workspace: Workspace | WorkspaceVolume | str | None = None,
        tracking: MLflow | WandB | TensorBoard | Mapping[str, Any] | str | None = None,
        watchdog: Watchdog | Mapping[str, Any] | str | None = None,
        program: str | None = None,
        model_check: ModelCheck | Mapping[str, Any] | str | None = None,
        max_restarts: int | str | None = None,
        code: Code | PackedCode | Mapping[str, Any] | str | None = None,
        options: Sequence[Any] | None = None,
        name: str | None = None,
        labels: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        deadline: timedelta | float | str | None = None,
        queue_name: Queue | Mapping[str, Any] | str | None = None,
        placement: Placement | Mapping[str, Any] | str | None = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        suspend: bool | None = None,
        runtime_patches: Sequence[Any] | None = None,
        queue_timeout: timedelta | float | str | None = None,
        start_timeout: timedelta | float | str | None = None,
        interruption_retries: int | str | None = None,
        on_kill: str | None = None,
        on_failure: str | None = None,
        ttl_after_success: timedelta | float | str | None = None,
        ttl_after_failure: timedelta | float | str | None = None,
        manifest: Mapping[str, Any] | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            trainer: a `CustomTrainer`, `CustomTrainerContainer` or `BuiltinTrainer`; by default the command of the
                runtime.
            runtime: name of the training runtime, or a `Runtime`; by default `torch-distributed`.
            initializer: an `Initializer`: Jobs of the same TrainJob that fetch dataset and model, on runtimes that have
                them.
            workspace: PersistentVolumeClaim that is mounted at `/workspace`. It is a `Workspace`, the name of an
                existing PVC, or a `trainjob.WorkspaceVolume`.
            tracking: experiment tracker that gets the parameters, and the metrics in the training's log: an `MLflow`,
                `WandB` or `TensorBoard`, or a dict of its fields and `backend` (`mlflow`, `wandb` or `tensorboard`).
                The image must contain Python, and the trainer must have a command.
            watchdog: limits of the training's silence, and what follows when it hangs: a `Watchdog`, or a dict of its
                fields; by default nobody watches. The image must contain Python, and the trainer must have a command.
            program: where the code of `tracking`, `watchdog` and `model_check` comes from: `packed` sends it in the
                command of the pods; `image` runs the `trainjob` of the image, with readable arguments; by default
                `packed`.
            model_check: folders that must have no model of another workflow run: a `ModelCheck` or a dict of its
                fields. The image must contain Python, and the trainer must have a command.
            max_restarts: how often a failing container may be restarted in place before the TrainJob is ended. In
                Python and files, None (null) leaves it to the runtime.
            code: the same as `code` of the trainer, which gets it.
            options: options of the Kubeflow SDK's `train`, such as `Labels`, of `trainjob.options` or of the SDK; each
                sets another field.
            name: start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
            labels: labels of the TrainJob and of its pods, for example for cost reports. They are part of the request:
                a later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
            annotations: annotations of the TrainJob and of its pods, in the same way.
            deadline: maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then
                the cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
            queue_name: name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority
                class or a topology. Airflow's own `queue` selects workers.
            placement: a `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
            volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
            managed_by: controller that acts on the TrainJob; by default this cluster's Trainer. With
                `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3,
                because an older one also runs it on this cluster.
            suspend: whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
            runtime_patches: patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
                applied after those of the other fields. Trainer 2.2 and later.
            queue_timeout: maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times,
                such as `8h`; by default there is no limit.
            start_timeout: maximum time after the queue until all pods of the training are ready, in the same way.
            interruption_retries: how often another attempt starts after the infrastructure has interrupted the
                TrainJob, for example by an eviction, a preemption or a drain. These attempts do not count as retries of
                the workflow engine. With 0, an interruption is a failure. By default `3`.
            on_kill: action on the TrainJob when its caller is stopped or a timeout is reached: `delete`, `suspend` (its
                pods are deleted; a later submission of the same request resumes it) or `keep`; by default `delete`.
            on_failure: action on the TrainJob when it is ended because of its restarts, or because it cannot start:
                `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods
                are retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
                `delete`.
            ttl_after_success: time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
                deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
            ttl_after_failure: the same time after it has failed.
            manifest: a whole TrainJob, which replaces all arguments about its content. It is a dict, or the name of a
                YAML or JSON file beside the DAG's file; both may have templates. The names of the created TrainJobs
                begin with the manifest's name.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        super().__init__(
            step_arguments={
                "trainer": trainer,
                "runtime": runtime,
                "initializer": initializer,
                "workspace": workspace,
                "tracking": tracking,
                "watchdog": watchdog,
                "program": program,
                "model_check": model_check,
                "max_restarts": max_restarts,
                "code": code,
                "options": options,
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "deadline": deadline,
                "queue": queue_name,
                "placement": placement,
                "volumes": volumes,
                "managed_by": managed_by,
                "suspend": suspend,
                "runtime_patches": runtime_patches,
                "queue_timeout": queue_timeout,
                "start_timeout": start_timeout,
                "interruption_retries": interruption_retries,
                "on_kill": on_kill,
                "on_failure": on_failure,
                "ttl_after_success": ttl_after_success,
                "ttl_after_failure": ttl_after_failure,
                "manifest": manifest,
            },
            **arguments,
        )
