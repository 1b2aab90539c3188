"""A complete Airflow that sends the metrics of a deferred task to a StatsD server, and to an OTLP server."""

from __future__ import annotations

from functools import partial
from operator import eq, ge, le
from pathlib import Path

import pytest
from airflow.utils.net import get_hostname

from tests.support.api_proxy import ApiProxy
from tests.support.metric_receivers import OtlpServer, StatsdServer
from tests.support.standalone import SHORT_INTERVALS, Standalone, wait_for_airflow
from trainjob_airflow import metrics
from trainjob_airflow.metrics import MetricKind, build_names

pytestmark = pytest.mark.timeout(900)
DAGS = Path(__file__).resolve().parent / "dags"
TASK = {"dag_id": "measured_run", "task_id": "train"}


class MetricReader:
    """Reader of metrics, by their names with StatsD or by their tags with OpenTelemetry."""

    def __init__(self, server):
        self._server = server

    def wait_for(self, metric, is_expected, **tags):
        """Wait for a value of a metric; that of a counter is the sum of its increments."""
        has_tags = isinstance(self._server, OtlpServer)
        name, own_tags = build_names(metric, tags, with_values=not has_tags)[-1]
        is_summed = metric.kind is MetricKind.COUNTER and not has_tags  # OpenTelemetry sends sums

        def has_expected_value():
            values = [sample.value for sample in self._server.find(f"airflow.{name}", **own_tags)]
            return values and is_expected(sum(values) if is_summed else values[-1])

        wait_for_airflow(has_expected_value, 180)


@pytest.mark.parametrize("receiver", [StatsdServer, OtlpServer], ids=["StatsD", "OpenTelemetry"])
def test_workers_and_triggerer_send_metrics(laptop, tmp_path, receiver):
    release_file, home = tmp_path / "go", tmp_path / "airflow"
    home.mkdir()
    with receiver() as server, ApiProxy(laptop) as proxy:
        connection = {"AIRFLOW_CONN_KUBERNETES_DEFAULT": proxy.airflow_connection()}
        with Standalone(home, DAGS, **SHORT_INTERVALS, **connection, **server.settings) as airflow:
            reader, host = MetricReader(server), {"hostname": get_hostname()}
            run = airflow.start_run("measured_run", lines=50_000, go=str(release_file))
            reader.wait_for(metrics.SUBMITTED, partial(eq, 1), **TASK)
            reader.wait_for(metrics.JOBS, partial(eq, 1), phase="Running", **host)
            reader.wait_for(metrics.SKIPPED_LOG_LINES, partial(le, 1000), **TASK)
            for resource in ("trainjobs", "pods"):
                reader.wait_for(metrics.INFORMER_SYNC_AGE, partial(ge, 300), resource=resource, **host)
                reader.wait_for(metrics.INFORMER_RELISTS, partial(eq, 0), resource=resource, **host)
            proxy.disconnect()
            reader.wait_for(metrics.INFORMER_ERRORS, partial(le, 1), resource="trainjobs", **host)
            proxy.start_listening()
            release_file.touch()
            wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 180)
            assert airflow.get_state(run) == "success", airflow.log.read_text()[-4000:]
            reader.wait_for(metrics.FINISHED, partial(eq, 1), category="Succeeded", **TASK)
            reader.wait_for(metrics.RUN_DURATION, partial(le, 1000), **TASK)
            reader.wait_for(metrics.POD_SECONDS, partial(le, 1), **TASK)
            reader.wait_for(metrics.JOBS, partial(eq, 0), phase="Running", **host)
