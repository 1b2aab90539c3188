"""An informer with short pauses on a scripted server, and a recording event handler."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.integration.client.watch.scripted_api import ScriptedApi
from trainjob.client import Connection, ObjectEvent
from trainjob.client.backoff import Backoff, InformerTimings
from trainjob.client.http_client import HttpClient
from trainjob.client.informer import SharedInformer
from trainjob.client.resources import Resource
from trainjob.errors import TrainJobError

SECONDS = 60
TRAINJOBS = Resource("trainjobs", "/apis/trainer.kubeflow.org/v1alpha1", "trainjob.dev/run-key")
FAST_TIMINGS = InformerTimings(
    max_silence=1.0,
    stable_after=0.5,
    poll_interval=0.05,
    stop_delay=0.2,
    refusal_timeout=SECONDS,
    outage=SECONDS,
    backoff=lambda: Backoff(initial_delay=0.02, max_delay=0.1),
)


class RecordingHandler:
    """Event handler that records the events that it receives.

    Attributes:
        phases: (name, phase) of each event in order. The phase is `gone` after a deletion; of an error, the name is its
            class.
        events: the events themselves.
        misses: number of calls of `on_missing`.
        key: the key for which it was added; None for all objects.
        registration: its registration at an informer; None before it was added.
        count_when_closed: number of its events when it was closed; None before.
    """

    def __init__(self) -> None:
        self.key: str | None = None
        self.registration: Any = None
        self.count_when_closed: int | None = None
        self.phases: list[tuple[str, str]] = []
        self.events: list[ObjectEvent] = []
        self.misses = 0
        self._changed = threading.Condition()

    def __call__(self, event: ObjectEvent) -> None:
        with self._changed:
            self.events.append(event)
            if event.error is not None:
                self.phases.append((type(event.error).__name__, "error"))
            elif event.object is not None:
                phase = "gone" if event.deleted else phase_of(event.object)
                self.phases.append((event.object["metadata"]["name"], phase))
            self._changed.notify_all()

    def on_missing(self) -> None:
        with self._changed:
            self.misses += 1
            self._changed.notify_all()

    def wait_for(
        self, expected: tuple[str, str] | Callable[[], object], seconds: float = SECONDS
    ) -> list[tuple[str, str]]:
        """Wait until this (name, phase) was received, or until a function returns true."""
        condition = expected if callable(expected) else lambda: expected in self.phases
        with self._changed:
            assert self._changed.wait_for(condition, seconds), self.phases
        return self.phases

    @property
    def error(self) -> TrainJobError | None:
        return next((event.error for event in self.events if event.error), None)


def phase_of(job: Mapping[str, Any]) -> str:
    conditions = job["status"]["conditions"]
    return conditions[0]["type"] if conditions else "Running"


@contextlib.contextmanager
def run_informer(
    api: ScriptedApi, timings: InformerTimings = FAST_TIMINGS, **connection: Any
) -> Iterator[SharedInformer]:
    """Run an informer until the block ends, and check that all its threads have ended."""
    before = set(threading.enumerate())
    client = HttpClient(Connection(**(connection or {"server": api.url})))
    informer = SharedInformer(client, TRAINJOBS, "default", lambda obj: obj["metadata"]["name"], timings)
    try:
        yield informer
    finally:
        informer.close()
        for thread in set(threading.enumerate()) - before:
            if thread.name.startswith("watch-"):
                thread.join(SECONDS)
                assert not thread.is_alive()
        client.close()
