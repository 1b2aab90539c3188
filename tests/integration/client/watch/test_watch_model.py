"""Model test of the informer: whatever faults occur, each handler knows the objects and gets each event once."""

from __future__ import annotations

import threading
from collections import Counter
from typing import ClassVar

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.integration.client.watch.recording_handler import RecordingHandler, phase_of, run_informer
from tests.integration.client.watch.scripted_api import ScriptedApi, error_response, foreign_response, watch_line
from tests.support.polling import wait_until
from trainjob.client.backoff import Backoff, InformerTimings

TIMINGS = InformerTimings(
    max_silence=0.5,
    stable_after=0.2,
    poll_interval=0.02,
    stop_delay=0.03,
    refusal_timeout=30.0,
    backoff=lambda: Backoff(0.005, 0.02),
)
NAMES = st.sampled_from("abc")
ENDS = ("Complete", "Failed")
ACTIONS = st.sampled_from(["change", "change", *ENDS, "delete"])
GONE = ("", "gone")  # a relist does not show the version of a deletion
HALF = watch_line("MODIFIED", {"metadata": {"uid": "x"}})[:40]
LOSSLESS_INTERRUPTIONS = [
    ("end", b""),
    ("reset", b""),
    ("close", b""),
    ("silence", b""),
    ("end", HALF),
    ("reset", HALF),
    ("send", b"\n"),
]
INVALID_LINES = [
    ("send", b"<html>\n"),
    ("send", b"5\n"),
    ("send", watch_line("MODIFIED", {})),
    ("send", watch_line("BOOKMARK", {})),
]
ERROR_EVENTS = [("end", watch_line("ERROR", {"code": code})) for code in (410, 500, 429, 403)]
ERROR_RESPONSES = [
    error_response(429),
    error_response(500),
    error_response(503),
    (0, {}, b""),
    foreign_response(b'{"metadata": {"re', Connection="close"),
]
REFUSALS = [
    error_response(401),
    error_response(403),
    error_response(404),
    error_response(410),
    foreign_response(),
    foreign_response(b"{}"),
]


class InformerModel(RuleBasedStateMachine):
    """Informer, a scripted server, and a model of the events that each handler must get."""

    handlers = Bundle("handlers")
    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self):
        super().__init__()
        self.api = ScriptedApi()
        self.api.version = self.api._oldest_version = 1_000_000
        self.threads_before = set(threading.enumerate())
        self.open_informer = run_informer(self.api, TIMINGS)
        self.informer = self.open_informer.__enter__()
        self.history: dict[str, list[tuple[str, str]]] = {}  # by uid: (version, phase), `gone` at its end
        self.all_handlers: list[RecordingHandler] = []
        self.was_refused = False  # whether the informer may have given up

    @initialize(is_calm=st.booleans())
    def choose_mode(self, is_calm):
        """Set whether faults may lead to a relist; without a relist, no event may be lost.

        In the calm mode, one handler stays until the end, so that the watch does not stop.
        """
        self.is_calm = is_calm
        if is_calm:
            self._add_handler(None)

    # -- changes in the cluster ---------------------------------------------------------------------------------------

    def _write(self, name, phase):
        with self.api.changed:  # a reader of the model must find both changes
            metadata = self.api.write(name, phase)["metadata"]
            self.history.setdefault(metadata["uid"], []).append((metadata["resourceVersion"], phase))
        self.counts["writes"] += 1

    @rule(
        actions=st.lists(
            st.tuples(NAMES, st.sampled_from(["change", "change", *ENDS, "delete"])), min_size=1, max_size=8
        )
    )
    def change_jobs(self, actions):
        """Change several jobs at once, so that one chunk may have several events or a part of one."""
        for name, action in actions:
            if action == "delete":
                self._delete(name)
            elif name not in self.api.jobs or action == "change":
                self._write(name, phase_of(self.api.jobs[name]) if name in self.api.jobs else "Running")
            elif phase_of(self.api.jobs[name]) == "Running":
                self._write(name, action)

    @rule(name=NAMES, phase=st.sampled_from(ENDS))
    def finish_and_delete(self, name, phase):
        """Finish a job and delete it at once."""
        if name not in self.api.jobs or phase_of(self.api.jobs[name]) != "Running":
            self._delete(name)
            self._write(name, "Running")
        self._write(name, phase)
        self._delete(name)

    def _delete(self, name):
        with self.api.changed:
            if name in self.api.jobs:
                uid = self.api.jobs[name]["metadata"]["uid"]
                self.api.delete(name)
                self.history[uid].append(GONE)
                self.counts["writes"] += 1

    @rule()
    def bookmark(self):
        self.api.bookmark()

    # -- handlers -----------------------------------------------------------------------------------------------------

    @rule(target=handlers, key=st.one_of(st.none(), NAMES))
    def add_handler(self, key):
        return self._add_handler(key)

    def _add_handler(self, key):
        handler = RecordingHandler()
        handler.key, handler.count_when_closed = key, None
        handler.registration = self.informer.add_event_handler(key, handler, handler.on_missing)
        self.all_handlers.append(handler)
        self.counts["handlers"] += 1
        return handler

    @rule(handler=consumes(handlers))
    def close_handler(self, handler):
        handler.registration.close()
        handler.count_when_closed = len(handler.events)

    # -- faults -------------------------------------------------------------------------------------------------------

    @rule(cut=st.sampled_from(LOSSLESS_INTERRUPTIONS))
    def interrupt_watches(self, cut):
        self.counts["faults"] += bool(self.api.interrupt_watches(*cut))

    @precondition(lambda self: not self.is_calm)
    @rule(cut=st.sampled_from(INVALID_LINES + ERROR_EVENTS))
    def send_to_watches(self, cut):
        self.counts["faults"] += bool(self.api.interrupt_watches(*cut))

    @rule(
        verb=st.sampled_from(["list", "watch", "version"]),
        response=st.sampled_from(ERROR_RESPONSES),
        times=st.integers(1, 3),
    )
    def respond_with_error(self, verb, response, times):
        self.api.respond_with(verb, response, times)
        self.interrupt_watches(("end", b""))

    @precondition(lambda self: not self.is_calm)
    @rule(
        verb=st.sampled_from(["list", "watch", "version"]), response=st.sampled_from(REFUSALS), times=st.integers(1, 3)
    )
    def respond_with_refusal(self, verb, response, times):
        self.was_refused = True
        self.api.respond_with(verb, response, times)
        self.interrupt_watches(("end", b""))

    @precondition(lambda self: not self.is_calm)
    @rule()
    def compact(self):
        """Drop the history, so that a watch from an earlier version gets 410."""
        with self.api.changed:
            self.api.compact()
            self.interrupt_watches(("reset", b""))

    @precondition(lambda self: not self.is_calm)
    @rule()
    def restore(self):
        """Set the versions back by more than the number of writes during a pause."""
        with self.api.changed:
            self.api.restore(self.api.version - 1000)
            self.counts["faults"] += 1

    @rule()
    def restart_server(self):
        self.api.disconnect()
        self.api.start_listening()
        self.counts["faults"] += 1

    @invariant()
    def count(self):
        self.counts["steps"] += 1

    # -- checks -------------------------------------------------------------------------------------------------------

    @rule()
    def check_final_state(self):
        """Check that each open handler knows the current objects after faults and changes stop."""
        self.api.responders.clear()
        for handler in self.all_handlers:
            if handler.count_when_closed is None:
                handler.wait_for(
                    lambda handler=handler: handler.error or known_jobs(handler) == self._expected_jobs(handler.key)
                )
        wait_until(
            lambda: (
                sum(thread.name.startswith("watch-") for thread in set(threading.enumerate()) - self.threads_before)
                <= 1
            )
        )

    def _expected_jobs(self, key):
        with self.api.changed:
            return {job["metadata"]["uid"]: job for name, job in self.api.jobs.items() if key is None or name == key}

    def teardown(self):
        try:
            self.check_final_state()
            self.informer.close()
            for handler in self.all_handlers:
                self._check_handler(handler)
            self.counts["examples"] += 1
        finally:
            self.open_informer.__exit__(None, None, None)
            self.api.__exit__()

    def _check_handler(self, handler):
        note(f"{handler.key}: {handler.phases}")
        assert handler.count_when_closed in (None, len(handler.events)), "called after it was closed"
        errors = [n for n, event in enumerate(handler.events) if event.error]
        assert errors in ([], [len(handler.events) - 1]), "called after an error"
        assert not errors or self.was_refused or "was closed" in str(handler.error)
        assert handler.misses <= 1
        for uid, phases in events_by_uid(handler).items():
            self._check_phases(phases, self.history[uid], closed=handler.count_when_closed is not None)

    def _check_phases(self, phases, history, *, closed):
        """Check that a handler got each state once and in order; in the calm mode, all states."""
        remaining = iter(history)
        assert all(state in remaining for state in phases), f"{phases} is not in the order of {history}"
        self.counts["reported"] += len(phases)
        if self.is_calm:
            first = history.index(phases[0])
            assert phases == (history[first : first + len(phases)] if closed else history[first:])
            self.counts["reported completely"] += len(phases)
            self.counts["ends"] += any(phase in ENDS for _, phase in phases)


def events_by_uid(handler):
    """Return the (version, phase) of each event that a handler got, by the uid of the job."""
    found: dict[str, list[tuple[str, str]]] = {}
    for event in handler.events:
        if event.object:
            meta = event.object["metadata"]
            state = GONE if event.deleted else (meta["resourceVersion"], phase_of(event.object))
            found.setdefault(meta["uid"], []).append(state)
    return found


def known_jobs(handler):
    """Return the jobs that exist according to the events that a handler got, by uid."""
    jobs = {}
    for event in handler.events:
        if event.object:
            jobs[event.object["metadata"]["uid"]] = event.object
            if event.deleted:
                del jobs[event.object["metadata"]["uid"]]
    return jobs


def test_handlers_know_the_objects_after_any_faults(evidence):
    InformerModel.counts.clear()
    examples = settings.default.max_examples * 3 // 5
    chosen = settings(max_examples=examples, stateful_step_count=50, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(InformerModel, settings=chosen)
    done = InformerModel.counts
    fault = f"{done['faults']} faults, {done['writes']} writes and {done['handlers']} handlers in any order"
    result = (
        f"{done['reported']} changes reported, in order and once; {done['reported completely']} of them without a gap"
    )
    evidence("faults", fault=fault, runs=done["steps"], result=result)
