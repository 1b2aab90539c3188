"""Tests of handlers that share a watch: late, short, slow or failing handlers do not affect the others."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from tests.integration.client.watch.recording_handler import FAST_TIMINGS, SECONDS, RecordingHandler, run_informer
from tests.integration.client.watch.scripted_api import error_response, foreign_response
from tests.support.polling import wait_until
from trainjob.errors import ClusterUnreachable

RUNNING, COMPLETE, GONE = ("a", "Running"), ("a", "Complete"), ("a", "gone")


def add_handler(informer, key="a"):
    handler = RecordingHandler()
    handler.registration = informer.add_event_handler(key, handler, handler.on_missing)
    return handler


def add_watching_handler(api, informer):
    """Return a handler on an open watch, so that it gets each event."""
    handler = add_handler(informer)
    wait_until(lambda: api.open_watches)
    return handler


def test_a_late_handler_gets_the_known_objects(api, informer):
    api.write("a")
    add_handler(informer).wait_for(RUNNING)
    late, everything, other = add_handler(informer), add_handler(informer, None), add_handler(informer, "b")
    other.wait_for(lambda: other.misses)
    assert late.phases == everything.phases == [RUNNING]
    assert (late.misses, everything.misses, other.misses, other.phases) == (0, 0, 1, [])
    assert api.request_counts["list"] == 1


def test_a_handler_without_an_object_is_called_once_after_the_first_list(api, informer):
    other, everything = add_handler(informer, "b"), add_handler(informer, None)
    other.wait_for(lambda: other.misses)
    everything.wait_for(lambda: everything.misses)
    api.write("b")
    other.wait_for(("b", "Running"))
    assert (other.misses, everything.misses) == (1, 1)


def test_a_new_handler_within_the_stop_delay_uses_the_same_watch(api):
    """It gets the events that happened in between."""
    with run_informer(api, replace(FAST_TIMINGS, stop_delay=SECONDS)) as informer:
        first = add_handler(informer)
        api.write("a")
        first.wait_for(RUNNING)
        first.registration.close()
        api.write("a", "Complete")
        second = add_handler(informer)
        second.wait_for(COMPLETE)
    assert (first.phases, api.request_counts["list"]) == ([RUNNING], 1)


def test_a_new_handler_after_the_stop_delay_starts_a_new_watch(api):
    with run_informer(api) as informer:
        api.write("a")
        first = add_handler(informer)
        first.wait_for(RUNNING)
        first.registration.close()
        wait_until(lambda: informer._thread is None)
        with informer._lock:
            assert not informer._cache._objects  # the cache is empty without handlers
        api.write("a", "Complete")
        second = add_handler(informer)
        assert second.wait_for(COMPLETE) == [COMPLETE]


def test_a_handler_may_close_itself_in_its_callback(api, informer):
    events = []

    def close_at_first_event(event):
        events.append(event)
        registration.close()

    other = add_watching_handler(api, informer)
    registration = informer.add_event_handler("a", close_at_first_event)
    for _ in range(3):
        api.write("a")
    other.wait_for(lambda: len(other.phases) == 3)
    assert len(events) == 1


def test_a_handler_may_close_another_in_its_callback(api, informer):
    """The other handler gets no more events, not even the current one."""
    add_watching_handler(api, informer)
    others = []
    informer.add_event_handler("a", lambda _: others[0].registration.close())
    others.append(add_handler(informer))
    third = add_handler(informer)
    api.write("a")
    third.wait_for(RUNNING)
    assert others[0].phases == []


def test_a_handler_may_add_another_in_its_callback(api, informer):
    handler, added = RecordingHandler(), []
    add_watching_handler(api, informer)

    def add_another(event):
        if not added:
            added.append(informer.add_event_handler("a", handler))

    informer.add_event_handler("a", add_another)
    api.write("a")
    handler.wait_for(RUNNING)
    api.write("a", "Complete")
    assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]


def test_a_handler_may_close_the_informer_in_its_callback(api, informer):
    other = add_watching_handler(api, informer)
    informer.add_event_handler("a", lambda _: informer.close())
    api.write("a")
    other.wait_for(lambda: other.error)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("metadata"), MemoryError(), RuntimeError("loop is closed")]
)
def test_a_handler_that_raises_gets_the_error_and_the_others_continue(api, error, evidence):
    broken = RecordingHandler()

    def fail(event):
        broken(event)
        if event.error is None:
            raise error

    with run_informer(api, replace(FAST_TIMINGS, max_silence=SECONDS)) as informer:
        before = add_watching_handler(api, informer)
        informer.add_event_handler("a", fail)
        after = add_handler(informer)
        api.write("a")
        api.write("a", "Complete")
        for handler in (before, after):
            assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]
        reported = after.phases[-1][1]  # before the informer is closed, which is an error of all handlers
        assert broken.phases == [RUNNING, ("ClusterUnreachable", "error")]
        assert broken.error.__cause__ is error
        assert broken.error.retryable
        assert api.request_counts["list"] == api.request_counts["watch"] == 1
    evidence(
        "faults",
        fault=f"an event handler raises {type(error).__name__}",
        runs=1,
        result=f"others: reported {reported}",
    )


def test_a_handler_that_raises_when_it_is_added_is_not_added(api, informer):
    api.write("a")
    other = add_handler(informer)
    other.wait_for(RUNNING)

    def fail(_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        informer.add_event_handler("a", fail)
    api.write("a", "Complete")
    assert other.wait_for(COMPLETE) == [RUNNING, COMPLETE]


def test_a_handler_that_raises_in_on_missing_gets_the_error(api, informer):
    broken = RecordingHandler()

    def fail():
        raise ValueError("no")

    informer.add_event_handler("b", broken, fail)
    other = add_handler(informer)
    other.wait_for(lambda: other.misses)
    assert isinstance(broken.error, ClusterUnreachable)


def test_a_slow_handler_loses_no_event(api, informer, evidence):
    """It delays the others only during its callback."""
    slow, fast = RecordingHandler(), add_watching_handler(api, informer)

    def handle_slowly(event):
        time.sleep(0.01)
        slow(event)

    informer.add_event_handler("a", handle_slowly)
    for n in range(100):
        api.write("a", f"Step{n}")
    expected = [("a", f"Step{n}") for n in range(100)]
    assert slow.wait_for(("a", "Step99")) == expected
    assert fast.wait_for(("a", "Step99")) == expected
    evidence(
        "faults", fault="a slow event handler", runs=100, result=f"{len(fast.phases)} changes reported to the others"
    )


def test_many_events_of_a_job_do_not_delay_another_job(api, informer, evidence):
    """Events are delivered in their order: the end of another job waits only for earlier events."""
    api.write("a")
    api.write("busy")
    everything, other = add_handler(informer, None), add_watching_handler(api, informer)
    writing = threading.Thread(target=lambda: [api.write("busy", f"Step{n}") for n in range(2000)])
    writing.start()
    wait_until(lambda: api.version > 1000)
    end = int(api.write("a", "Complete")["metadata"]["resourceVersion"])
    other.wait_for(COMPLETE)
    everything.wait_for(lambda: len(everything.phases) == 2003)
    writing.join(SECONDS)
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in everything.events]
    assert versions == sorted(versions)
    assert len(versions) == 2003
    after = len(versions) - 1 - versions.index(end)
    evidence(
        "faults",
        fault="2000 changes of one job",
        runs=1,
        result=f"end of another job reported before {after} later changes",
    )


def test_ten_thousand_jobs_are_each_reported_once(api, informer, evidence):
    """The list is read in pages; after a relist, only changes are reported."""
    for n in range(10_000):
        api.write(f"j{n:05}")
    everything, single = add_handler(informer, None), add_handler(informer, "j09999")
    single.wait_for(("j09999", "Running"), 60)
    everything.wait_for(lambda: len(everything.phases) == 10_000, 60)
    assert api.request_counts["more"] == 99
    wait_until(lambda: api.open_watches)
    with api.changed:
        api.write("j09999", "Complete")
        api.delete("j00000")
        api.compact()
        api.interrupt_watches("reset")
    everything.wait_for(("j00000", "gone"), 60)
    assert single.phases == [("j09999", "Running"), ("j09999", "Complete")]
    assert len(everything.phases) == 10_002
    evidence(
        "faults", fault="410 with 10,000 jobs", runs=1, result=f"{len(everything.phases) - 10_000} changes reported"
    )


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_handler_gets_an_error_when_the_informer_is_closed(api, informer):
    handler = add_handler(informer)
    api.write("a")
    handler.wait_for(RUNNING)
    informer.close()
    assert handler.phases == [RUNNING, ("ClusterUnreachable", "error")]
    informer.close()
    api.write("a", "Complete")
    late = add_handler(informer)
    assert late.phases == [("ClusterUnreachable", "error")]
    assert len(handler.phases) == 2
    wait_until(lambda: not api.open_watches)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_close_does_not_wait_for_a_response(api, informer, verb):
    """The server delays its response."""
    requested, released, responded = threading.Event(), threading.Event(), threading.Event()

    def hold():
        requested.set()
        released.wait()
        responded.set()

    api.responders[verb] = hold
    handler = add_handler(informer)
    assert requested.wait(SECONDS)
    informer.close()
    assert not responded.is_set()
    api.write("a")
    released.set()
    wait_until(lambda: informer._thread is None)
    assert handler.phases == [("ClusterUnreachable", "error")]


def test_a_watch_ends_if_the_last_handler_is_closed_before_its_stream_is_open(api):
    """The informer ends such a stream itself, and does not wait until it was silent for long."""
    requested, released, responded = threading.Event(), threading.Event(), threading.Event()

    def hold():
        requested.set()
        released.wait()
        responded.set()

    api.responders["watch"] = hold
    with run_informer(api, replace(FAST_TIMINGS, max_silence=10 * SECONDS)) as informer:
        handler = add_handler(informer)
        assert requested.wait(SECONDS)
        handler.registration.close()
        released.set()
        wait_until(lambda: informer._thread is None)
        wait_until(lambda: not api.open_watches)


@pytest.mark.parametrize("error", [ZeroDivisionError("bug"), MemoryError(), RecursionError()])
def test_a_bug_of_the_informer_is_reported_to_all_handlers(api, error, evidence):
    """If its thread ended silently, the handlers would wait forever."""
    with run_informer(api) as informer:
        handlers = [add_handler(informer), add_handler(informer, "b"), add_handler(informer, None)]
        handlers[1].wait_for(lambda: handlers[1].misses)
        key, informer._key = informer._key, lambda _: (_ for _ in ()).throw(error)
        api.write("a")
        for handler in handlers:
            handler.wait_for(lambda handler=handler: handler.error)
            assert handler.error.__cause__ is error
        informer._key = key
        assert add_handler(informer).wait_for(RUNNING) == [RUNNING]
    reported = sum(handler.error is not None for handler in handlers)
    evidence(
        "faults",
        fault=f"{type(error).__name__} in the watch's thread",
        runs=1,
        result=f"{reported} of 3 handlers got the error",
    )


def test_short_waits_do_not_count_as_failures(api, informer):
    """Each wait ends a stream, which does not delay the next stream."""
    api.write("a")
    for n in range(5):
        handler = add_handler(informer)
        handler.wait_for(RUNNING)
        wait_until(lambda n=n: api.open_watches and api.request_counts["watch"] > n and informer._stream is not None)
        handler.registration.close()
        wait_until(lambda: not api.open_watches)
    assert informer._backoff.next() <= 2 * FAST_TIMINGS.backoff().initial_delay


def test_a_forked_child_starts_its_own_watch(api):
    """Threads and sockets do not survive a fork, and a lock may be held during it; Airflow's workers fork."""
    api.write("a")
    script = """
import os, queue, sys
from trainjob.client import Connection, shared_cluster

def get_informer():
    return shared_cluster(Connection(server=sys.argv[1])).trainjob_informer("default")

def read_name():
    events = queue.Queue()
    with get_informer().add_event_handler("a", events.put):
        return events.get(timeout=60).object["metadata"]["name"]

get_informer().add_event_handler("a", lambda _: None)  # keeps the parent's thread running during the fork
print(read_name(), flush=True)
child = os.fork()
if not child:
    print(read_name(), flush=True)
    os._exit(0)
print(read_name(), os.waitpid(child, 0)[1], flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, api.url], capture_output=True, text=True, timeout=60
    )
    assert sorted(done.stdout.split()) == ["0", "a", "a", "a"], done.stderr
    assert api.request_counts["list"] == 2


def test_a_list_of_a_cluster_starts_again_if_a_page_has_expired(api):
    from trainjob.client import Cluster, Connection
    from trainjob.errors import ClusterError, Expired

    for n in range(250):
        api.write(f"j{n:03}")
    cluster = Cluster(Connection(server=api.url), retry_seconds=SECONDS)
    api.respond_with("more", error_response(410), 2)
    assert len(cluster.list_trainjobs("default")) == 250
    api.respond_with("more", error_response(410), 1000)
    with pytest.raises(Expired):
        cluster.list_trainjobs("default")
    api.responders.clear()
    api.respond_with("list", foreign_response())
    with pytest.raises(ClusterError, match="not from a Kubernetes API server: <html>log in"):
        cluster.list_trainjobs("default")
    api.respond_with("list", foreign_response(b'{"items": [{"meta', Connection="close"))
    assert len(cluster.list_trainjobs("default")) == 250
    cluster.close()
