"""What the operators of the single steps do besides passing their arguments on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import Code, TrainJobManifest
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.operators.unknown_arguments import ARGUMENT_NAMES
from trainjob_airflow.version_compat import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.status import Outcome


_NO_RESULT = (
    "the available part of the evaluation's log has no result, so its gates can't be applied; the result is in "
    "report.json in the folder output_path of the workspace"
)


class FetchOperator(StepOperator):
    """Base class of the operators that fetch a dataset or a model into the workspace."""

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the outcome is not needed
        """Return URI, revision, number of files and size in bytes, as far as the log reports them."""
        return {name: step_result[name] for name in ("uri", "revision", "files", "bytes") if step_result.get(name)}


class ExportOperator(StepOperator):
    """Base class of the operator that exports a model."""

    destination: str

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


class EvaluationOperator(StepOperator):
    """Base class of the operator that evaluates a model."""

    def __init__(self, *, skip_downstream: bool = True, **arguments: Any) -> None:
        """Create the operator.

        Args:
            skip_downstream: whether the tasks directly after this one are skipped if a gate fails. The task itself
                succeeds. With False, a later task decides by `passed` in the XCom.
            **arguments: arguments of [StepOperator][].
        """
        super().__init__(**arguments)
        self.skip_downstream = skip_downstream

    def execute(self, context: Context) -> dict[str, Any]:
        """Evaluate the model; see [StepOperator.execute][] for errors.

        Raises:
            DownstreamTasksSkipped: for Airflow: a gate has failed.
            AirflowException: the log has no result.
        """
        return self._apply_gates(context, super().execute(context))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume the task after its deferral.

        Raises:
            DownstreamTasksSkipped: for Airflow: a gate has failed.
            AirflowException: the log has no result.
        """
        return self._apply_gates(context, super().resume_execution(next_method, next_kwargs, context))

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the outcome is not needed
        """Return scores, differences and gates of the evaluation, as its log reports them.

        The value `summary` has them as Markdown.
        """
        from trainjob.status import summarize_evaluation

        if "passed" not in step_result:
            return {}
        names = ("passed", "scores", "champion_scores", "differences", "gates", "report")
        found = {name: step_result[name] for name in names if name in step_result}
        return {**found, "summary": summarize_evaluation(step_result)}

    def _apply_gates(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result, or skip the next tasks if a gate has failed.

        Raises:
            AirflowException: the log has no result, so nothing shows that the gates have passed.
        """
        if "passed" not in result:
            raise AirflowException(_NO_RESULT)
        failed = [gate for gate in result.get("gates", ()) if not gate["passed"]]
        for gate in failed:
            self.log.warning("gate failed: %s: %s: %s", gate["metric"], gate["rule"], gate["found"])
        if failed and self.skip_downstream:
            from trainjob_airflow.downstream import skip_downstream

            if self.do_xcom_push:
                context["ti"].xcom_push("return_value", result)  # Airflow stores no result with a skip
            skip_downstream(self, context)
        return result


class GenerationOperator(StepOperator):
    """Base class of the operator that generates answers for rows."""

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the outcome is not needed
        """Return numbers, speed and file of the generation, as its log reports them."""
        names = ("rows", "shards", "tokens", "seconds", "tokens_per_second", "output")
        return {name: step_result[name] for name in names if name in step_result}


class PromotionOperator(StepOperator):
    """Base class of the operators that change which model is served."""

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the outcome is not needed
        """Return what the promotion or rollback has changed, as its log reports it."""
        names = ("promoted", "rolled_back", "model", "before", "reason")
        return {name: step_result[name] for name in names if name in step_result}


class ManifestOperator(StepOperator):
    """Base class of the operator for any TrainJob, which may also be given as a manifest."""

    trainer: Any
    manifest: Mapping[str, Any] | str | None
    template_ext: Sequence[str] = (".yaml", ".yml", ".json")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **StepOperator.template_fields_renderers,
        "manifest": "yaml",
    }

    def __init__(self, *, step_arguments: Mapping[str, Any], **arguments: Any) -> None:
        """Create the operator, and refuse arguments that belong into a given manifest.

        Raises:
            InvalidSpec: an argument has a wrong value, or is given beside a manifest.
        """
        beside = [
            ARGUMENT_NAMES.get(name, name)
            for name, value in step_arguments.items()
            if name not in TrainJobManifest.model_fields and value is not None
        ]
        if step_arguments["manifest"] is not None and beside:
            raise InvalidSpec(Problem("manifest", f"given with {', '.join(beside)}", "write these into the manifest"))
        super().__init__(step_arguments=step_arguments, **arguments)

    def rendered_step(self, context: Context) -> Any:
        """Return the step to submit, with the code of its project packed.

        Only a worker calls this method. It runs in the version of the DAG bundle that the task has, so each try packs
        the same files.
        """
        step = super().rendered_step(context)
        code = getattr(getattr(step, "trainer", None), "code", None)
        if not isinstance(code, Code):
            return step
        from trainjob_airflow.operators.project_code import pack_code

        return pack_code(step, code, self.dag.folder, self.log.info)

    def extra_values(self, outcome: Outcome, step_result: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the outcome is not needed
        """Return the value that the training's code returned, as `result`.

        For a function, this is the value that rank 0 returned. If it can't be used, `result_error` has the reason.
        """
        return {name: step_result[name] for name in ("result", "result_error") if name in step_result}

    def _get_step_class(self) -> type[Any]:
        return super()._get_step_class() if self.manifest is None else TrainJobManifest
