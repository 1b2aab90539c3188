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

from tests.integration.client.watch.recording_handler import RecordingHandler, informer_of, phase_of
from tests.integration.client.watch.scripted_api import ScriptedApi, line, page, status
from tests.support.polling import until
from trainjob.client.backoff import Backoff, Pace

PACE = Pace(silence=0.5, steady=0.2, poll=0.02, linger=0.03, refused=30.0, backoff=lambda: Backoff(0.005, 0.02))
NAMES = st.sampled_from("abc")
ENDS = ("Complete", "Failed")
ACTIONS = st.sampled_from(["change", "change", *ENDS, "delete"])
GONE = ("", "gone")  # a list does not tell at which version
HALF = line("MODIFIED", {"metadata": {"uid": "x"}})[:40]
LOSSLESS = [
    ("end", b""),
    ("reset", b""),
    ("close", b""),
    ("silence", b""),
    ("end", HALF),
    ("reset", HALF),
    ("say", b"\n"),
]
NONSENSE = [("say", b"<html>\n"), ("say", b"5\n"), ("say", line("MODIFIED", {})), ("say", line("BOOKMARK", {}))]
ERRORS = [("end", line("ERROR", {"code": code})) for code in (410, 500, 429, 403)]
TROUBLE = [status(429), status(500), status(503), (0, {}, b""), page(b'{"metadata": {"re', Connection="close")]
REFUSALS = [status(401), status(403), status(404), status(410), page(), page(b"{}")]


class Model(RuleBasedStateMachine):
    """An informer, a server that holds the truth, and what each waiter must have been told."""

    waiters = Bundle("waiters")
    done: ClassVar[Counter[str]] = Counter()

    def __init__(self):
        super().__init__()
        self.api = ScriptedApi()
        self.api.version = self.api._floor = 1_000_000
        self.others = set(threading.enumerate())
        self.opened = informer_of(self.api, PACE)
        self.informer = self.opened.__enter__()
        self.history: dict[str, list[tuple[str, str]]] = {}  # by uid: (version, phase), `gone` at its end
        self.all: list[RecordingHandler] = []
        self.refused = False  # whether it may have given up

    @initialize(calm=st.booleans())
    def begin(self, calm):
        """When nothing makes it list anew, and somebody stays so that the watch is never given up, nothing is lost."""
        self.calm = calm
        if calm:
            self._subscribe(None)

    # -- what happens in the cluster ------------------------------------------------------------------------------

    def _write(self, name, phase):
        with self.api.changed:  # who reads the truth must find both
            made = self.api.write(name, phase)
            self.history.setdefault(made["metadata"]["uid"], []).append((made["metadata"]["resourceVersion"], phase))
        self.done["writes"] += 1

    @rule(
        actions=st.lists(
            st.tuples(NAMES, st.sampled_from(["change", "change", *ENDS, "delete"])), min_size=1, max_size=8
        )
    )
    def happen(self, actions):
        """Several at once: with luck they are told in one piece, or are cut apart."""
        for name, action in actions:
            if action == "delete":
                self._delete(name)
            elif name not in self.api.jobs or action == "change":
                self._write(name, phase_of(self.api.jobs[name]) if name in self.api.jobs else "Running")
            elif phase_of(self.api.jobs[name]) == "Running":
                self._write(name, action)

    @rule(name=NAMES, how=st.sampled_from(ENDS))
    def end_and_go(self, name, how):
        """It ends, and is deleted right after."""
        if name not in self.api.jobs or phase_of(self.api.jobs[name]) != "Running":
            self._delete(name)
            self._write(name, "Running")
        self._write(name, how)
        self._delete(name)

    def _delete(self, name):
        with self.api.changed:
            if name in self.api.jobs:
                uid = self.api.jobs[name]["metadata"]["uid"]
                self.api.delete(name)
                self.history[uid].append(GONE)
                self.done["writes"] += 1

    @rule()
    def bookmark(self):
        self.api.bookmark()

    # -- who waits --------------------------------------------------------------------------------------------------

    @rule(target=waiters, key=st.one_of(st.none(), NAMES))
    def subscribe(self, key):
        return self._subscribe(key)

    def _subscribe(self, key):
        waiter = RecordingHandler()
        waiter.key, waiter.heard = key, None
        waiter.subscription = self.informer.add_event_handler(key, waiter, waiter.missing)
        self.all.append(waiter)
        self.done["subscribers"] += 1
        return waiter

    @rule(waiter=consumes(waiters))
    def unsubscribe(self, waiter):
        waiter.subscription.close()
        waiter.heard = len(waiter.changes)

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    @rule(cut=st.sampled_from(LOSSLESS))
    def cut(self, cut):
        self.done["faults"] += bool(self.api.cut(*cut))

    @precondition(lambda self: not self.calm)
    @rule(cut=st.sampled_from(NONSENSE + ERRORS))
    def say(self, cut):
        self.done["faults"] += bool(self.api.cut(*cut))

    @rule(verb=st.sampled_from(["list", "watch", "version"]), answer=st.sampled_from(TROUBLE), times=st.integers(1, 3))
    def trouble(self, verb, answer, times):
        self.api.instead(verb, answer, times)
        self.cut(("end", b""))

    @precondition(lambda self: not self.calm)
    @rule(verb=st.sampled_from(["list", "watch", "version"]), answer=st.sampled_from(REFUSALS), times=st.integers(1, 3))
    def refuse(self, verb, answer, times):
        self.refused = True
        self.api.instead(verb, answer, times)
        self.cut(("end", b""))

    @precondition(lambda self: not self.calm)
    @rule()
    def compact(self):
        """Who is behind is told 410."""
        with self.api.changed:
            self.api.compact()
            self.cut(("reset", b""))

    @precondition(lambda self: not self.calm)
    @rule()
    def restore(self):
        """All versions are older than they were, by more than is written in the time of a pause."""
        with self.api.changed:
            self.api.restore(self.api.version - 1000)
            self.done["faults"] += 1

    @rule()
    def go_away(self):
        self.api.go_away()
        self.api.come_back()
        self.done["faults"] += 1

    @invariant()
    def count(self):
        self.done["steps"] += 1

    # -- what must be true ------------------------------------------------------------------------------------------

    @rule()
    def quiet(self):
        """Nothing goes wrong any more, and nothing happens: everybody knows the truth."""
        self.api.answers.clear()
        for waiter in self.all:
            if waiter.heard is None:
                waiter.until(lambda waiter=waiter: waiter.error or known(waiter) == self._truth(waiter.key))
        until(lambda: sum(one.name.startswith("watch-") for one in set(threading.enumerate()) - self.others) <= 1)

    def _truth(self, key):
        with self.api.changed:
            return {job["metadata"]["uid"]: job for name, job in self.api.jobs.items() if key is None or name == key}

    def teardown(self):
        try:
            self.quiet()
            self.informer.close()
            for waiter in self.all:
                self._check(waiter)
            self.done["examples"] += 1
        finally:
            self.opened.__exit__(None, None, None)
            self.api.__exit__()

    def _check(self, waiter):
        note(f"{waiter.key}: {waiter.told}")
        assert waiter.heard in (None, len(waiter.changes)), "told after it was closed"
        errors = [n for n, change in enumerate(waiter.changes) if change.error]
        assert errors in ([], [len(waiter.changes) - 1]), "told after an error"
        assert not errors or self.refused or "was closed" in str(waiter.error)
        assert waiter.misses <= 1
        for uid, told in by_uid(waiter).items():
            self._check_told(told, self.history[uid], closed=waiter.heard is not None)

    def _check_told(self, told, history, *, closed):
        """Each state once and in order; all of them, when somebody watched all the time and nothing was lost."""
        left = iter(history)
        assert all(state in left for state in told), f"{told} is not in the order of {history}"
        self.done["told"] += len(told)
        if self.calm:
            first = history.index(told[0])
            assert told == (history[first : first + len(told)] if closed else history[first:])
            self.done["told whole"] += len(told)
            self.done["ends"] += any(phase in ENDS for _, phase in told)


def by_uid(waiter):
    """What it was told of each job: (version, phase)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for change in waiter.changes:
        if change.found:
            meta = change.found["metadata"]
            state = GONE if change.gone else (meta["resourceVersion"], phase_of(change.found))
            found.setdefault(meta["uid"], []).append(state)
    return found


def known(waiter):
    """What it takes for true."""
    found = {}
    for change in waiter.changes:
        if change.found:
            found[change.found["metadata"]["uid"]] = change.found
            if change.gone:
                del found[change.found["metadata"]["uid"]]
    return found


def test_whatever_happens(evidence):
    Model.done.clear()
    examples = settings.default.max_examples * 3 // 5
    chosen = settings(max_examples=examples, stateful_step_count=50, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Model, settings=chosen)
    done = Model.done
    fault = f"{done['faults']} faults, {done['writes']} writes and {done['subscribers']} subscribers in any order"
    result = (
        f"{done['told']} changes told, each in order and once; of those with nothing lost ({done['told whole']}) all"
    )
    evidence("faults", fault=fault, runs=done["steps"], result=result)
