"""Whatever happens, in whatever order: who waits knows in the end what is true, and was told it once."""

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

PACE = InformerTimings(
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
GONE = ("", "gone")  # a list does not tell at which version
HALF = watch_line("MODIFIED", {"metadata": {"uid": "x"}})[:40]
LOSSLESS_INTERRUPTIONS = [
    ("end", b""),
    ("reset", b""),
    ("close", b""),
    ("silence", b""),
    ("end", HALF),
    ("reset", HALF),
    ("say", b"\n"),
]
INVALID_LINES = [
    ("say", b"<html>\n"),
    ("say", b"5\n"),
    ("say", watch_line("MODIFIED", {})),
    ("say", watch_line("BOOKMARK", {})),
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
    """An informer, a server that holds the truth, and what each waiter must have been told."""

    handlers = Bundle("waiters")
    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self):
        super().__init__()
        self.api = ScriptedApi()
        self.api.version = self.api._oldest_version = 1_000_000
        self.others = set(threading.enumerate())
        self.open_informer = run_informer(self.api, PACE)
        self.informer = self.open_informer.__enter__()
        self.history: dict[str, list[tuple[str, str]]] = {}  # by uid: (version, phase), `gone` at its end
        self.all: list[RecordingHandler] = []
        self.was_refused = False  # whether it may have given up

    @initialize(calm=st.booleans())
    def choose_mode(self, is_calm):
        """When nothing makes it list anew, and somebody stays so that the watch is never given up, nothing is lost."""
        self.is_calm = is_calm
        if is_calm:
            self._subscribe(None)

    # -- what happens in the cluster ------------------------------------------------------------------------------

    def _write(self, name, phase):
        with self.api.changed:  # who reads the truth must find both
            made = self.api.write(name, phase)
            self.history.setdefault(made["metadata"]["uid"], []).append((made["metadata"]["resourceVersion"], phase))
        self.counts["writes"] += 1

    @rule(
        actions=st.lists(
            st.tuples(NAMES, st.sampled_from(["change", "change", *ENDS, "delete"])), min_size=1, max_size=8
        )
    )
    def change_jobs(self, actions):
        """Several at once: with luck they are told in one piece, or are cut apart."""
        for name, action in actions:
            if action == "delete":
                self._delete(name)
            elif name not in self.api.jobs or action == "change":
                self._write(name, phase_of(self.api.jobs[name]) if name in self.api.jobs else "Running")
            elif phase_of(self.api.jobs[name]) == "Running":
                self._write(name, action)

    @rule(name=NAMES, how=st.sampled_from(ENDS))
    def finish_and_delete(self, name, phase):
        """It ends, and is deleted right after."""
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

    # -- who waits --------------------------------------------------------------------------------------------------

    @rule(target=handlers, key=st.one_of(st.none(), NAMES))
    def subscribe(self, key):
        return self._subscribe(key)

    def _subscribe(self, key):
        waiter = RecordingHandler()
        waiter.key, waiter.heard = key, None
        waiter.subscription = self.informer.add_event_handler(key, waiter, waiter.on_missing)
        self.all.append(waiter)
        self.counts["subscribers"] += 1
        return waiter

    @rule(waiter=consumes(handlers))
    def unsubscribe(self, waiter):
        waiter.subscription.close()
        waiter.heard = len(waiter.changes)

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    @rule(cut=st.sampled_from(LOSSLESS_INTERRUPTIONS))
    def interrupt_watches(self, cut):
        self.counts["faults"] += bool(self.api.interrupt_watches(*cut))

    @precondition(lambda self: not self.calm)
    @rule(cut=st.sampled_from(INVALID_LINES + ERROR_EVENTS))
    def send_to_watches(self, cut):
        self.counts["faults"] += bool(self.api.interrupt_watches(*cut))

    @rule(
        verb=st.sampled_from(["list", "watch", "version"]),
        answer=st.sampled_from(ERROR_RESPONSES),
        times=st.integers(1, 3),
    )
    def respond_with_error(self, verb, response, times):
        self.api.respond_with(verb, response, times)
        self.interrupt_watches(("end", b""))

    @precondition(lambda self: not self.calm)
    @rule(verb=st.sampled_from(["list", "watch", "version"]), answer=st.sampled_from(REFUSALS), times=st.integers(1, 3))
    def respond_with_refusal(self, verb, response, times):
        self.was_refused = True
        self.api.respond_with(verb, response, times)
        self.interrupt_watches(("end", b""))

    @precondition(lambda self: not self.calm)
    @rule()
    def compact(self):
        """Who is behind is told 410."""
        with self.api.changed:
            self.api.compact()
            self.interrupt_watches(("reset", b""))

    @precondition(lambda self: not self.calm)
    @rule()
    def restore(self):
        """All versions are older than they were, by more than is written in the time of a pause."""
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

    # -- what must be true ------------------------------------------------------------------------------------------

    @rule()
    def check_final_state(self):
        """Nothing goes wrong any more, and nothing happens: everybody knows the truth."""
        self.api.responders.clear()
        for waiter in self.all:
            if waiter.heard is None:
                waiter.wait_for(
                    lambda waiter=waiter: waiter.error or known_jobs(waiter) == self._expected_jobs(waiter.key)
                )
        wait_until(lambda: sum(one.name.startswith("watch-") for one in set(threading.enumerate()) - self.others) <= 1)

    def _expected_jobs(self, key):
        with self.api.changed:
            return {job["metadata"]["uid"]: job for name, job in self.api.jobs.items() if key is None or name == key}

    def teardown(self):
        try:
            self.check_final_state()
            self.informer.close()
            for waiter in self.all:
                self._check_handler(waiter)
            self.counts["examples"] += 1
        finally:
            self.open_informer.__exit__(None, None, None)
            self.api.__exit__()

    def _check_handler(self, waiter):
        note(f"{waiter.key}: {waiter.told}")
        assert waiter.heard in (None, len(waiter.changes)), "told after it was closed"
        errors = [n for n, change in enumerate(waiter.changes) if change.error]
        assert errors in ([], [len(waiter.changes) - 1]), "told after an error"
        assert not errors or self.was_refused or "was closed" in str(waiter.error)
        assert waiter.misses <= 1
        for uid, told in events_by_uid(waiter).items():
            self._check_phases(told, self.history[uid], closed=waiter.heard is not None)

    def _check_phases(self, phases, history, *, closed):
        """Each state once and in order; all of them, when somebody watched all the time and nothing was lost."""
        left = iter(history)
        assert all(state in left for state in phases), f"{phases} is not in the order of {history}"
        self.counts["told"] += len(phases)
        if self.is_calm:
            first = history.index(phases[0])
            assert phases == (history[first : first + len(phases)] if closed else history[first:])
            self.counts["told whole"] += len(phases)
            self.counts["ends"] += any(phase in ENDS for _, phase in phases)


def events_by_uid(waiter):
    """What it was told of each job: (version, phase)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for change in waiter.changes:
        if change.found:
            meta = change.found["metadata"]
            state = GONE if change.gone else (meta["resourceVersion"], phase_of(change.found))
            found.setdefault(meta["uid"], []).append(state)
    return found


def known_jobs(waiter):
    """What it takes for true."""
    found = {}
    for change in waiter.changes:
        if change.found:
            found[change.found["metadata"]["uid"]] = change.found
            if change.gone:
                del found[change.found["metadata"]["uid"]]
    return found


def test_whatever_happens(evidence):
    InformerModel.counts.clear()
    examples = settings.default.max_examples * 3 // 5
    chosen = settings(max_examples=examples, stateful_step_count=50, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(InformerModel, settings=chosen)
    done = InformerModel.counts
    fault = f"{done['faults']} faults, {done['writes']} writes and {done['subscribers']} handlers in any order"
    result = f"{done['told']} changes reported, in order and once; {done['told whole']} of them without a gap"
    evidence("faults", fault=fault, runs=done["steps"], result=result)
