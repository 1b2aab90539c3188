"""Receivers of Airflow's metrics on loopback: a StatsD server, and an OTLP/HTTP server for OpenTelemetry."""

from __future__ import annotations

import gzip
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.airflow_versions import AIRFLOW_VERSION
from tests.support.loopback_server import LoopbackServer

_STATSD_LINE = re.compile(
    r"(?P<name>[^:|]+):(?P<value>[-+]?[0-9.eE+-]+)\|(?P<kind>c|g|ms)(\|@[0-9.]+)?(\|#(?P<tags>.*))?"
)
_KINDS = {"c": "counter", "g": "gauge", "ms": "timer"}


@dataclass(frozen=True)
class Sample:
    """One received value.

    Attributes:
        name: full name, with Airflow's prefix.
        kind: `counter`, `gauge` or `timer`.
        value: the value: of a timer in milliseconds, of a counter the increment, or with OpenTelemetry the sum so far.
        tags: tags, or attributes of OpenTelemetry.
    """

    name: str
    kind: str
    value: float
    tags: dict[str, str] = field(default_factory=dict)


class Samples:
    """Received samples, which a test waits for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._samples: list[Sample] = []

    def add(self, samples: Iterable[Sample]) -> None:
        with self._changed:
            self._samples += samples
            self._changed.notify_all()

    def find(self, name: str, **tags: str) -> list[Sample]:
        """Return the samples of this name that have these tags, oldest first."""
        with self._changed:
            return [each for each in self._samples if each.name == name and tags.items() <= each.tags.items()]

    def wait_for(self, name: str, is_expected: Callable[[float], bool], seconds: float = 60.0, **tags: str) -> Sample:
        """Return a sample with an expected value, or fail after some seconds."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                if found := [each for each in self.find(name, **tags) if is_expected(each.value)]:
                    return found[0]
                left = deadline - time.monotonic()
                assert left > 0, f"no such sample of {name} {tags} after {seconds} s: {self.find(name)}"
                self._changed.wait(left)

    @property
    def names(self) -> set[str]:
        """Names of all samples."""
        with self._changed:
            return {each.name for each in self._samples}


class StatsdServer(Samples):
    """StatsD server, used as a context manager.

    It accepts the tags of DogStatsD and of InfluxDB.
    """

    def __init__(self) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def __enter__(self) -> StatsdServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", self._socket.getsockname())  # an empty packet ends the thread
        self._thread.join()
        self._socket.close()

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables that make Airflow send its metrics here."""
        host, port = self._socket.getsockname()
        names = {"STATSD_ON": "True", "STATSD_HOST": host, "STATSD_PORT": str(port), "STATSD_PREFIX": "airflow"}
        return {f"AIRFLOW__METRICS__{name}": value for name, value in names.items()}

    def _receive(self) -> None:
        while packet := self._socket.recv(65536):
            self.add(parse_statsd_line(line) for line in packet.decode().splitlines())


def parse_statsd_line(line: str) -> Sample:
    """Return the sample in a line of the StatsD protocol."""
    found = _STATSD_LINE.fullmatch(line)
    assert found, f"not a line of StatsD: {line!r}"
    name, *influx_tags = found["name"].split(",")
    tags = [tag.split("=", 1) for tag in influx_tags]
    tags += [tag.split(":", 1) for tag in (found["tags"] or "").split(",") if tag]
    return Sample(name, _KINDS[found["kind"]], float(found["value"]), dict(tags))


class OtlpServer(Samples):
    """OTLP/HTTP server for metrics, used as a context manager."""

    def __init__(self) -> None:
        super().__init__()
        samples = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/metrics":
                    samples.add(parse_otlp_request(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = LoopbackServer(Handler)

    def __enter__(self) -> OtlpServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables that make Airflow send its metrics here."""
        switched_on = {"AIRFLOW__METRICS__OTEL_ON": "True"}
        if AIRFLOW_VERSION >= (3, 2):  # the settings of Airflow 3.1 are deprecated
            endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": self._server.url, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
            return switched_on | endpoint
        host, port = self._server.server_address[:2]
        names = {"OTEL_HOST": str(host), "OTEL_PORT": str(port), "OTEL_INTERVAL_MILLISECONDS": "1000"}
        return switched_on | {f"AIRFLOW__METRICS__{name}": value for name, value in names.items()}


def parse_otlp_request(body: bytes) -> list[Sample]:
    """Return the samples in an ExportMetricsServiceRequest; of histograms, the sum."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest.FromString(body)
    found = []
    for resource in request.resource_metrics:
        for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
            data = getattr(metric, metric.WhichOneof("data"))
            kind = {"sum": "counter", "gauge": "gauge"}.get(metric.WhichOneof("data"), "timer")
            for point in data.data_points:
                value = point.sum if kind == "timer" else point.as_double or point.as_int
                tags = {each.key: each.value.string_value for each in point.attributes}
                found.append(Sample(metric.name, kind, float(value), tags))
    return found
