"""The real statsd_exporter of Prometheus with the shipped mapping; needs Go, which builds it from its module."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import statsd

from tests.support.polling import wait_until
from trainjob_airflow.metrics import METRICS, MetricKind, build_names

pytestmark = pytest.mark.slow
MODULE = "github.com/prometheus/statsd_exporter@v0.28.0"
MAPPING = Path(__file__).resolve().parents[3] / "manifests" / "grafana" / "statsd-mapping.yaml"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if shutil.which("go") is None:
        pytest.skip(f"Go, which builds {MODULE}, is not installed")
    folder = tmp_path_factory.mktemp("bin")
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
    built = subprocess.run(["go", "install", MODULE], env=environment, cwd=folder, capture_output=True, text=True)
    if "dial tcp" in built.stderr:
        pytest.skip(f"{MODULE} can't be fetched: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return folder / "statsd_exporter"


def find_free_port(kind):
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read_samples(port):
    """Return the lines of the provider's metrics; None while the program does not respond yet."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        try:
            connection.request("GET", "/metrics")
        except OSError:
            return None
        lines = connection.getresponse().read().decode().splitlines()
    return {line for line in lines if line.startswith("airflow_")}


def test_the_exporter_makes_the_series_of_the_dashboard(program):
    udp, port = find_free_port(socket.SOCK_DGRAM), find_free_port(socket.SOCK_STREAM)
    command = [program, f"--statsd.mapping-config={MAPPING}", "--statsd.listen-tcp="]
    command += [f"--statsd.listen-udp=127.0.0.1:{udp}", f"--web.listen-address=127.0.0.1:{port}"]
    client = statsd.StatsClient("127.0.0.1", udp, prefix="airflow")
    expected = set()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: read_samples(port) is not None)
        for metric in METRICS:
            tags = {tag: f"value-of.{tag}" for tag in metric.tags}
            value = timedelta(seconds=90) if metric.kind is MetricKind.TIMER else 7
            for name, _ in build_names(metric, tags, with_values=True):
                getattr(client, metric.kind.value)(name, value)
            labels = ",".join(f'{tag}="value-of__{tag}"' for tag in sorted(metric.tags))
            name = f"airflow_{metric.name.replace('.', '_')}"
            if metric.kind is MetricKind.TIMER:
                expected |= {f"{name}_sum{{{labels}}} 90", f"{name}_count{{{labels}}} 1"}
            else:
                expected.add(f"{name}{{{labels}}} 7")
        wait_until(lambda: expected <= read_samples(port))
        found = read_samples(port)
    finally:
        process.terminate()
        process.wait()
        client.close()
    assert {line for line in found if "_bucket{" not in line} == expected  # the names without values are dropped
    labels = ",".join(f'{tag}="value-of__{tag}"' for tag in ("dag_id", "task_id"))
    assert f'airflow_trainjob_run_duration_bucket{{{labels},le="60"}} 0' in found
    assert f'airflow_trainjob_run_duration_bucket{{{labels},le="300"}} 1' in found
