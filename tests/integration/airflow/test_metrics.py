"""Tests of the metrics that Airflow's stats send, with a StatsD server and an OTLP server on loopback."""

from __future__ import annotations

import math
import socket
import threading
from datetime import timedelta
from functools import partial
from operator import le
from types import SimpleNamespace

import pytest

from tests.integration.airflow.airflow_runs import both_modes, run_dag
from tests.integration.client.watch.recording_handler import RecordingHandler, run_informer
from tests.integration.client.watch.scripted_api import ScriptedApi
from tests.support.airflow_versions import needs_last_otel_metrics
from tests.support.interruptions import evictions
from tests.support.metric_receivers import OtlpServer, StatsdServer, parse_statsd_line
from tests.support.polling import wait_until
from trainjob.client import LogWriter, SkippedLines
from trainjob.errors import CommandFailed, WaitTimeout
from trainjob.lifecycle import JobReference
from trainjob.manifest import labels
from trainjob.status import Category, Outcome, Phase, Usage, Verdict
from trainjob_airflow import metrics, waiting_jobs
from trainjob_airflow.metrics import FINISHED, JOBS, METRICS, MetricKind, build_names
from trainjob_airflow.task_progress import TaskProgress
from trainjob_airflow.waiting_jobs import InformerCounts, WaitingJobs

TASK_INSTANCE = SimpleNamespace(dag_id="tuning", task_id="train")
# What `dags/measured.py` has to send: name, tags and the smallest value.
EXPECTED = (
    ("submitted", {"task_id": "restarted"}, 1),
    ("submitted", {"task_id": "adopted"}, 1),
    ("adopted", {"task_id": "adopted"}, 1),
    ("finished", {"task_id": "restarted", "category": "Succeeded"}, 1),
    ("finished", {"task_id": "failing", "category": "Application"}, 1),
    ("finished", {"task_id": "adopted", "category": "Succeeded"}, 1),
    ("errors", {"task_id": "refused", "error": "InvalidSpec"}, 1),
    ("queued_duration", {"task_id": "restarted"}, 0),
    ("run_duration", {"task_id": "restarted"}, 1000),
    ("pod_seconds", {"task_id": "restarted"}, 1),
    ("gpu_seconds", {"task_id": "restarted"}, 2),
    ("restarts", {"task_id": "restarted"}, 1),
)


def emit_to(monkeypatch, sent):
    """Make Airflow's stats append each call to a list."""

    class Stats:
        def __getattr__(self, kind):
            return lambda name, value, *, tags: sent.append((kind, name, value, tags))

    monkeypatch.setattr(metrics, "get_stats", Stats)


# -- whole runs with dag.test() ---------------------------------------------------------------------------------------


@both_modes()
def test_tasks_send_their_metrics_to_statsd_in_names(airflow, tmp_path, deferrable):
    with StatsdServer() as server:
        printed, tasks, _ = run_dag(airflow, "measured", DEFERRABLE=deferrable, FOLDER=tmp_path, **server.settings)
    assert {task: state for task, (state, _) in tasks.items()} == {
        "restarted": "success",
        "failing": "failed",
        "refused": "failed",
        "adopted": "success",
    }, printed[-6000:]
    for name, tags, least in EXPECTED:
        more = "".join(f".{value}" for key, value in tags.items() if key != "task_id")
        [sample] = server.find(f"airflow.trainjob.{name}.measured.{tags['task_id']}{more}")
        assert sample.value >= least
    assert not server.find("airflow.trainjob.run_duration.measured.failing")  # deleted, so its end is not known
    assert "uid" not in str(server.names)


@needs_last_otel_metrics
@both_modes()
def test_tasks_send_their_metrics_to_opentelemetry_with_tags(airflow, tmp_path, deferrable):
    with OtlpServer() as server:
        printed, _, _ = run_dag(airflow, "measured", DEFERRABLE=deferrable, FOLDER=tmp_path, **server.settings)
        for name, tags, least in EXPECTED:
            sample = server.wait_for(f"airflow.trainjob.{name}", partial(le, least), dag_id="measured", **tags)
            assert sample.tags.keys() - {"team_name"} == {"dag_id", *tags}, printed[-6000:]
        if deferrable == "1":
            for phase in Phase:
                assert server.find("airflow.trainjob.jobs", phase=phase.value)


@pytest.mark.slow
def test_the_names_with_values_are_switched_off_as_those_of_airflow(airflow, tmp_path):
    settings = {"AIRFLOW__METRICS__LEGACY_NAMES_ON": "False", "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True"}
    with StatsdServer() as server:
        run_dag(airflow, "measured", DEFERRABLE="0", FOLDER=tmp_path, **server.settings, **settings)
    own = {name for name in server.names if name.startswith("airflow.trainjob.")}
    assert own == {f"airflow.trainjob.{name}" for name, _, _ in EXPECTED}
    for name, tags, least in EXPECTED:
        assert any(sample.value >= least for sample in server.find(f"airflow.trainjob.{name}", **tags))


@pytest.mark.slow
def test_an_allow_list_selects_metrics(airflow, tmp_path):
    settings = {"AIRFLOW__METRICS__METRICS_ALLOW_LIST": r"^trainjob\.finished"}
    with StatsdServer() as server:
        run_dag(airflow, "measured", DEFERRABLE="0", FOLDER=tmp_path, **server.settings, **settings)
    assert server.names
    assert all(name.startswith("airflow.trainjob.finished") for name in server.names)


@both_modes()
def test_an_attempt_after_an_interruption_is_counted(airflow, cluster, tmp_path, deferrable):
    selector = f"{labels.WORKFLOW}=interruptions"
    for job in cluster.list_trainjobs("default", selector):
        cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])
    wait_until(lambda: not cluster.list_trainjobs("default", selector))
    with (
        StatsdServer() as server,
        evictions(cluster, selector, 1, then=(tmp_path / "go").touch),
    ):
        run_dag(airflow, "interruptions", DEFERRABLE=deferrable, GO=str(tmp_path / "go"), **server.settings)
    for name in ("resubmitted", "finished.{}.Infrastructure", "finished.{}.Succeeded"):
        task = "interruptions.train"
        full = f"airflow.trainjob.{name.format(task)}" if "{}" in name else f"airflow.trainjob.{name}.{task}"
        assert [sample.value for sample in server.find(full)] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "does-not-exist.invalid"])
def test_an_unreachable_statsd_server_changes_nothing(airflow, tmp_path, host):
    """Nothing listens on the port, or the server's name does not exist."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        port = str(held.getsockname()[1])
    settings = {"AIRFLOW__METRICS__STATSD_ON": "True", "AIRFLOW__METRICS__STATSD_HOST": host}
    printed, tasks, _ = run_dag(
        airflow, "measured", DEFERRABLE="0", FOLDER=tmp_path, AIRFLOW__METRICS__STATSD_PORT=port, **settings
    )
    assert tasks["restarted"] == ("success", 1), printed[-6000:]


# -- the metrics of an outcome ----------------------------------------------------------------------------------------


def test_the_end_of_a_trainjob_sends_what_is_known(monkeypatch):
    sent = []
    emit_to(monkeypatch, sent)
    times = {"created": "2026-01-01T00:00:00Z", "started": "2026-01-01T00:10:00Z", "finished": "2026-01-01T01:10:00Z"}
    usage = Usage(7200.4, {"nvidia.com/gpu": 57600.0, "example.com/fpga": 1.0})
    outcome = Outcome("train-1", "ml", "u", Phase.COMPLETE, Category.SUCCEEDED, usage=usage, restarts=2, **times)
    metrics.report_end(TASK_INSTANCE, outcome)
    assert {name: value for _, name, value, _ in sent if name.count(".") == 1} == {
        "trainjob.finished": 1,
        "trainjob.queued_duration": timedelta(minutes=10),
        "trainjob.run_duration": timedelta(hours=1),
        "trainjob.pod_seconds": 7200,
        "trainjob.gpu_seconds": 57600,
        "trainjob.restarts": 2,
    }
    sent.clear()
    metrics.report_end(TASK_INSTANCE, Outcome("train-1", "ml", "u", Phase.DELETED, Category.DELETED))
    assert {name for _, name, _, _ in sent if name.count(".") == 1} == {"trainjob.finished", "trainjob.restarts"}
    assert "train-1" not in str(sent)


def test_errors_are_counted_by_class_and_failures_of_trainjobs_are_not(monkeypatch):
    sent = []
    emit_to(monkeypatch, sent)
    with pytest.raises(WaitTimeout), metrics.count_errors(TASK_INSTANCE):
        raise WaitTimeout("too long")
    assert [(name, tags) for _, name, _, tags in sent] == [
        ("trainjob.errors", {"dag_id": "tuning", "task_id": "train", "error": "WaitTimeout"}),
        ("trainjob.errors.tuning.train.WaitTimeout", {}),
    ]
    sent.clear()
    for error in (CommandFailed("exit code 3"), ValueError("a bug")):
        with pytest.raises(type(error)), metrics.count_errors(TASK_INSTANCE):
            raise error
    assert sent == []


def test_skipped_lines_are_counted(monkeypatch):
    sent = []
    emit_to(monkeypatch, sent)
    metrics.report_skipped_lines(TASK_INSTANCE, SkippedLines("node-0", 1234, 5000))
    metrics.report_skipped_lines(None, SkippedLines("node-0", 1, 5))  # under dag.test()
    assert [(kind, name, value) for kind, name, value, _ in sent] == [
        ("incr", "trainjob.skipped_log_lines", 1234),
        ("incr", "trainjob.skipped_log_lines.tuning.train", 1234),
        ("incr", "trainjob.skipped_log_lines", 1),
    ]


def test_a_metric_that_cannot_be_sent_raises_no_error(monkeypatch):
    def fail():
        raise OSError("no stats")

    monkeypatch.setattr(metrics, "get_stats", fail)
    metrics.report_error(TASK_INSTANCE, "WaitTimeout")


def test_the_task_instance_of_airflow_adds_its_team():
    team = {"dag_id": "tuning", "task_id": "train", "team_name": "search"}
    assert metrics.get_task_tags(SimpleNamespace(stats_tags=team)) == team
    assert metrics.get_task_tags(TASK_INSTANCE) == {"dag_id": "tuning", "task_id": "train"}


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_name_for_statsd_has_one_part_for_each_tag():
    tags = {"dag_id": "a.b", "task_id": "group.train", "category": "Out,Of Memory", "team_name": "search"}
    assert build_names(FINISHED, tags, with_values=True) == [
        ("trainjob.finished", tags),
        ("trainjob.finished.a__b.group__train.Out_Of_Memory", {"team_name": "search"}),
    ]
    assert build_names(FINISHED, tags, with_values=False) == [("trainjob.finished", tags)]


@pytest.mark.parametrize("tags", [{}, {"hostname": "worker-1"}, {"hostname": "", "phase": "Running"}])
def test_there_is_no_name_with_values_if_one_is_missing(tags):
    assert build_names(JOBS, tags, with_values=True) == [("trainjob.jobs", tags)]


def test_a_name_that_airflow_would_refuse_is_not_sent():
    tags = {"dag_id": "d" * 250, "task_id": "t" * 250, "category": "Succeeded"}
    assert build_names(FINISHED, tags, with_values=True) == [("trainjob.finished", tags)]
    ascii_only = build_names(FINISHED, {**tags, "dag_id": "größe", "task_id": "t"}, with_values=True)[1][0]
    assert ascii_only == "trainjob.finished.gr__e.t.Succeeded"


def test_no_metric_has_the_name_of_a_trainjob_or_a_run():
    allowed = {"dag_id", "task_id", "category", "error", "hostname", "phase", "resource"}
    assert {tag for metric in METRICS for tag in metric.tags} == allowed
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert {metric.kind for metric in METRICS} == set(MetricKind)


# -- informers --------------------------------------------------------------------------------------------------------


def test_waiting_trainjobs_are_counted_by_their_newest_phase(monkeypatch):
    monkeypatch.setattr(waiting_jobs, "start_thread", lambda *_, **__: threading.current_thread())
    jobs, cluster = WaitingJobs(), type("Cluster", (), {})()
    first, second = (TaskProgress(JobReference(name, "ns", name), LogWriter().open(print)) for name in ("a", "b"))

    def count():
        return {phase: number for phase, number in jobs.count().items() if number}

    with jobs.add(cluster, first):
        with jobs.add(cluster, second):
            assert count() == {None: 2}
            first.listener.on_phase(Verdict(Phase.QUEUED))
            second.listener.on_phase(Verdict(Phase.QUEUED))
            assert count() == {Phase.QUEUED: 2}
            for reason in ("a", "b"):
                first.listener.on_phase(Verdict(Phase.RUNNING, reason))
            assert count() == {Phase.QUEUED: 1, Phase.RUNNING: 1}
        assert count() == {Phase.RUNNING: 1}
        second.listener.on_phase(Verdict(Phase.COMPLETE))  # after its trigger was cancelled
        assert count() == {Phase.RUNNING: 1}
    assert count() == {}


def test_the_counts_of_informers_are_sent_once(monkeypatch):
    sent = []
    emit_to(monkeypatch, sent)
    counts = InformerCounts()

    def report():
        sent.clear()
        counts.report("worker-1", [informer])
        return {name: value for _, name, value, _ in sent if name.count(".") == 1}

    with ScriptedApi() as api, run_informer(api) as informer, informer.add_event_handler("a", RecordingHandler()):
        wait_until(lambda: api.open_watches)
        before = report()
        assert before.keys() == {f"trainjob.informer_{name}" for name in ("relists", "errors", "sync_age")}
        assert before["trainjob.informer_relists"] == 0
        assert 0 <= before["trainjob.informer_sync_age"] < 60
        with api.changed:
            api.write("a")
            api.compact()
        wait_until(lambda: api.interrupt_watches("reset") or informer.state.relists)
        wait_until(lambda: informer.state.relists)
        first = report()
        assert first["trainjob.informer_errors"] >= 1
        assert first["trainjob.informer_relists"] >= 1
        assert report()["trainjob.informer_relists"] == informer.state.relists - first["trainjob.informer_relists"]
    assert sent[0][3] == {"hostname": "worker-1", "resource": "trainjobs"}
    assert all(math.isfinite(value) for *_, value, _ in sent)


# -- the receivers themselves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name", "tags"),
    [
        ("airflow.a.b:1|c", "airflow.a.b", {}),
        ("airflow.a,dag_id=x,task_id=y:2.5|ms", "airflow.a", {"dag_id": "x", "task_id": "y"}),
        ("airflow.a:-1|g|@0.5|#dag_id:x,phase:Running", "airflow.a", {"dag_id": "x", "phase": "Running"}),
    ],
)
def test_lines_of_statsd_are_parsed(line, name, tags):
    sample = parse_statsd_line(line)
    assert (sample.name, sample.tags) == (name, tags)


@pytest.mark.parametrize("line", ["airflow.a", "airflow.a:1", "airflow.a:x|c", "airflow.a:1|h"])
def test_other_lines_are_refused(line):
    with pytest.raises(AssertionError, match="not a line of StatsD"):
        parse_statsd_line(line)
