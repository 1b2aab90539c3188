"""Operator for any TrainJob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import TrainJob, TrainJobManifest
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.operators.workspace import Workspace

if TYPE_CHECKING:
    from trainjob.spec import WorkspaceVolume
    from trainjob.status import Outcome

_MANIFEST_FIELDS = ("name", "labels", "annotations", "deadline")  # arguments of every step that a manifest has itself


class TrainJobOperator(StepOperator):
    """Run a TrainJob with any trainer on any runtime, or from a complete manifest.

    The XCom also has `result` if the training's code returned a value.
    """

    step_type = TrainJob
    trainer: Any
    manifest: Mapping[str, Any] | str | None
    max_restarts: int | str | None
    template_fields: Sequence[str] = (
        "trainer",
        "runtime",
        "initializer",
        "workspace",
        "queue_name",
        "placement",
        "volumes",
        "max_restarts",
        "tracking",
        "program",
        "model_check",
        "manifest",
        *StepOperator.template_fields,
    )
    template_ext: Sequence[str] = (".yaml", ".yml", ".json")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **StepOperator.template_fields_renderers,
        "manifest": "yaml",
    }

    def __init__(
        self,
        *,
        trainer: Any = None,
        runtime: Any = None,
        initializer: Any = None,
        workspace: Workspace | WorkspaceVolume | str | None = None,
        queue_name: Any = None,
        placement: Any = None,
        volumes: Sequence[Any] | None = None,
        managed_by: str | None = None,
        max_restarts: int | str | None = None,
        tracking: Any = None,
        program: str | None = None,
        model_check: Any = None,
        manifest: Mapping[str, Any] | str | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `StepOperator` describes further arguments.

        Args:
            trainer: a `CustomTrainer`, `CustomTrainerContainer` or `BuiltinTrainer`.
            runtime: name of the training runtime, or a `Runtime`; by default `torch-distributed`.
            initializer: an `Initializer`, for runtimes that have initializer jobs.
            workspace: a `Workspace`, the name of an existing claim, or a `trainjob.WorkspaceVolume`; mounted at
                `/workspace`.
            queue_name: name of a Kueue queue, or a `Queue`. Airflow's own `queue` selects workers.
            placement: a `Placement`: node selector, tolerations, affinity, service account.
            volumes: `Volume`s that the pods mount in addition to the workspace.
            managed_by: `kueue.x-k8s.io/multikueue` leaves the TrainJob to Kueue's MultiKueue, which runs it on a worker
                cluster; by default this cluster's Trainer runs it.
            max_restarts: maximum number of restarts in place of a failing container; by default 0.
            tracking: an `MLflow`, `WandB` or `TensorBoard` that gets parameters and metrics, or a dict of its fields
                and `backend` (`mlflow`, `wandb` or `tensorboard`), which may have templates.
            program: with `tracking` or `model_check`, `image` to run the code of the trainjob that the trainer's image
                contains; by default `packed`, which sends the code in the command of the pods.
            model_check: a `ModelCheck`, or a dict of its fields: folders that must have no model of another DAG run.
            manifest: a whole TrainJob, which replaces all arguments above except `max_restarts`, and `name`, `labels`,
                `annotations` and `deadline`. It is a dict, or the name of a YAML or JSON file beside the DAG's file;
                both may have templates. The names of the created TrainJobs begin with the manifest's name.
            **arguments: arguments of `StepOperator` and `BaseOperator`.

        Raises:
            InvalidSpec: an argument has a wrong value, is missing, or does not exist.
        """
        step = {
            "trainer": trainer,
            "runtime": runtime,
            "initializer": initializer,
            "workspace": workspace,
            "queue": queue_name,
            "placement": placement,
            "volumes": volumes,
            "managed_by": managed_by,
            "max_restarts": max_restarts,
            "tracking": tracking,
            "program": program,
            "model_check": model_check,
            "manifest": manifest,
        }
        _reject_arguments_with_manifest({**step, **{name: arguments.get(name) for name in _MANIFEST_FIELDS}})
        super().__init__(step_arguments=step, **arguments)

    def _build_step(self, claim: str) -> Any:
        if self.manifest is None:
            return super()._build_step(claim)
        optional = {name: getattr(self, name) for name in ("max_restarts", "ttl_after_success", "ttl_after_failure")}
        given = {name: value for name, value in optional.items() if value is not None}
        actions = {"on_kill": self.on_kill_action, "on_failure": self.on_failure_action}
        return TrainJobManifest(manifest=self.manifest, **actions, **given)

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the outcome is not needed
        """Return the value that the training's code returned, as `result`.

        For a function, this is the value that rank 0 returned. If it can't be used, `result_error` has the reason.
        """
        return {name: step_result[name] for name in ("result", "result_error") if name in step_result}


def _reject_arguments_with_manifest(step_arguments: Mapping[str, Any]) -> None:
    other = {name: value for name, value in step_arguments.items() if name not in ("manifest", "max_restarts")}
    beside = ["queue_name" if name == "queue" else name for name, value in other.items() if value is not None]
    if step_arguments["manifest"] is not None and beside:
        raise InvalidSpec(Problem("manifest", f"given with {', '.join(beside)}", "write these into the manifest"))
