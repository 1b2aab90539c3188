"""System metrics of a tracked run in MLflow: CPU, memory, disk, network and GPUs of the node."""

from __future__ import annotations

from typing import Any

__all__ = ["SystemMetrics"]


class SystemMetrics:
    """MLflow's monitor, which logs the metrics in a thread of its own."""

    def __init__(self, tracking_uri: str) -> None:
        """Create an object whose monitor does not run."""
        self._uri, self._run_id = tracking_uri, ""
        self._monitor: Any = None

    def start(self, run_id: str) -> None:
        """Start the monitor for a run, unless it runs.

        The monitor ends when a request of it fails. The next one continues after the last step of the run.

        Raises:
            ImportError: the image has an mlflow of its own, and no psutil.
            TypeError: the image's mlflow is too old.
        """
        thread = getattr(self._monitor, "_process", None)  # mlflow 3.17
        if run_id == self._run_id and thread and thread.is_alive():
            return
        self.stop()
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        self._run_id = run_id
        self._monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=self._uri)
        self._monitor.start()

    def stop(self) -> None:
        """Stop the monitor and send its last values."""
        if self._monitor is not None:
            self._monitor.finish()
            self._monitor = None
