"""Tracked run on an MLflow server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd
from trainjob.frameworks.tracking.system_metrics import SystemMetrics
from trainjob.frameworks.tracking.trackers import RUN_ID_TAG, StepValues, describe_error
from trainjob.mlflow_names import TAG_PREFIX, to_mlflow_name
from trainjob.programs.fetch.record import read_record
from trainjob.programs.locked_library import import_library

__all__ = ["create"]

# mlflow 3.17, mlflow/utils/validation.py
_MAX_PARAMETERS, _MAX_VALUES = 100, 1000  # of one request
_MAX_DATASET_NAME, _MAX_DIGEST = 500, 36
_PARENT_TAG = "mlflow.parentRunId"
# By default, mlflow tries a request seven times, each for up to two minutes (mlflow 3.17, environment_variables.py).
_ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


def create(run: TrackedRun) -> _MLflowTracker:
    """Return the tracker of a run.

    Its options are `tracking_uri` and `experiment`, and maybe `dataset`, the folder of a fetched dataset, `parent`, the
    identifier of the run that all map indexes of a task share, and `system_metrics`.
    """
    return _MLflowTracker(run)


class _MLflowTracker:
    """A run of MLflow; see [trainjob.frameworks.tracking.trackers.Tracker][] for the methods."""

    def __init__(self, run: TrackedRun) -> None:
        self._run, self._uri = run, run.options["tracking_uri"]
        self.title = f"MLflow ({self._uri})"
        self._client: Any = None
        self._id = ""
        self._tags: dict[str, str] = {}
        self._has_dataset = "dataset" in run.options
        self._system_metrics = SystemMetrics(self._uri) if "system_metrics" in run.options else None

    def open(self) -> list[str]:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        mlflow = import_library("mlflow", "frameworks.tracking.locks.mlflow")
        self._client = mlflow.MlflowClient(self._uri)
        experiment = self._find_or_create_experiment(mlflow, self._run.options["experiment"])
        self._tags = {**self._run.tags, **self._find_or_create_parent(experiment), RUN_ID_TAG: self._run.run_id}
        run = self._find_or_create_run(experiment, self._run.name, self._tags)
        run_id = run.info.run_id
        self._client.update_run(run_id, status="RUNNING")
        self._log_parameters(mlflow, run_id, run.data.params)
        notes = [*self._log_dataset(mlflow, run_id), *self._start_system_metrics(run_id)]
        self._id = run_id
        return [f"run {self._uri}/#/experiments/{experiment}/runs/{run_id}", *notes]

    def record(self, steps: Sequence[StepValues]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(to_mlflow_name(name), value, int(step.time * 1000), step.step)
            for step in steps
            for name, value in step.values.items()
        ]
        with self._use_run() as run_id:
            for start in range(0, len(metrics), _MAX_VALUES):
                self._client.log_batch(run_id, metrics=metrics[start : start + _MAX_VALUES])
            if self._system_metrics:
                self._system_metrics.start(run_id)

    def close(self, end: TrainingEnd) -> None:
        status = "KILLED" if end.is_terminated else "FAILED" if end.exit_code else "FINISHED"
        with self._use_run() as run_id:
            if self._system_metrics:
                self._system_metrics.stop()
            self._client.set_terminated(run_id, status)

    @contextlib.contextmanager
    def _use_run(self) -> Iterator[str]:
        """Yield the run's ID for requests.

        Another pod or a user may delete the run. So after a failure, the next use finds the run again, or creates it.
        """
        if not self._id:
            self.open()
        run_id, self._id = self._id, ""
        yield run_id
        self._id = run_id

    def _find_or_create_experiment(self, mlflow: Any, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except mlflow.exceptions.MlflowException:
                found = self._client.get_experiment_by_name(name)  # another run may have created it
                if found is None:
                    raise
        return str(found.experiment_id)

    def _find_or_create_parent(self, experiment: str) -> dict[str, str]:
        """Return the tag with the run that all map indexes of a task share, if there are any.

        Nobody knows which map index ends last, so the parent has ended from its start.
        """
        if "parent" not in self._run.options:
            return {}
        common = (f"{TAG_PREFIX}{name}" for name in ("engine", "workflow", "task", "run"))
        tags = {name: self._run.tags[name] for name in common if name in self._run.tags}
        name = " ".join(tags[name] for name in (f"{TAG_PREFIX}task", f"{TAG_PREFIX}run") if name in tags)
        parent = self._find_or_create_run(experiment, name, {**tags, RUN_ID_TAG: self._run.options["parent"]})
        if parent.info.status != "FINISHED":
            self._client.set_terminated(parent.info.run_id, "FINISHED")
        return {_PARENT_TAG: parent.info.run_id}

    def _find_or_create_run(self, experiment: str, name: str, tags: Mapping[str, str]) -> Any:
        """Return the run with the identifier in these tags."""
        found = self._find_runs(experiment, tags[RUN_ID_TAG])
        if not found:
            self._client.create_run(experiment, tags=tags, run_name=name)
            # The answer to an earlier request may have been lost, and another pod may have created the run meanwhile.
            # The oldest run is the valid one for all of them.
            found = self._find_runs(experiment, tags[RUN_ID_TAG])
        run, *duplicates = found
        for each in duplicates:
            self._client.delete_run(each.info.run_id)
        return run

    def _find_runs(self, experiment: str, run_id: str) -> list[Any]:
        condition = f"tags.`{RUN_ID_TAG}` = '{run_id}'"
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        return list(self._client.search_runs([experiment], condition, order_by=order, max_results=10))

    def _log_parameters(self, mlflow: Any, run_id: str, known: dict[str, str]) -> None:
        """Set the tags of this attempt, and the parameters that the run does not have yet.

        MLflow refuses another value for a parameter.
        """
        names = {to_mlflow_name(name): value for name, value in self._run.parameters.items()}
        parameters = [mlflow.entities.Param(name, value) for name, value in names.items() if name not in known]
        tags = [mlflow.entities.RunTag(name, value) for name, value in self._tags.items()]
        self._client.log_batch(run_id, tags=tags)
        for start in range(0, len(parameters), _MAX_PARAMETERS):
            self._client.log_batch(run_id, params=parameters[start : start + _MAX_PARAMETERS])

    def _start_system_metrics(self, run_id: str) -> list[str]:
        """Start the system metrics; return the log's line if the image lacks their library."""
        if self._system_metrics:
            try:
                self._system_metrics.start(run_id)
            except (ImportError, TypeError) as error:
                self._system_metrics = None
                return [f"no system metrics are sent to {self.title}: {describe_error(error)}"]
        return []

    def _log_dataset(self, mlflow: Any, run_id: str) -> list[str]:
        """Add the fetched dataset; return the log's line if that fails.

        A server before MLflow 2.4, or a proxy, may lack this request; it is not repeated.
        """
        try:
            if self._has_dataset and (dataset := _read_dataset(mlflow, self._run.options["dataset"])):
                self._client.log_inputs(run_id, datasets=[dataset])
        except Exception as error:  # noqa: BLE001 - the metrics do not need it
            self._has_dataset = False
            return [f"the dataset is not recorded in {self.title}: {describe_error(error)}"]
        return []


def _read_dataset(mlflow: Any, folder: str) -> Any:
    """Return a fetched dataset as the input of a run; None if no fetch is complete.

    MLflow has it once, however often it is added.
    """
    record = read_record(Path(folder))
    if not record.complete:
        return None
    digest = hashlib.sha256()
    for file in sorted(record.files.values(), key=lambda file: file.path):
        digest.update(json.dumps([file.path, file.size, file.sha256 or file.mark]).encode())
    scheme, _, name = record.uri.partition("://")
    source = {key: text for key, text in (("uri", record.uri), ("revision", record.revision)) if text}
    entities = mlflow.entities
    dataset = entities.Dataset(name[:_MAX_DATASET_NAME], digest.hexdigest()[:_MAX_DIGEST], scheme, json.dumps(source))
    return entities.DatasetInput(dataset, tags=[entities.InputTag("mlflow.data.context", "training")])
