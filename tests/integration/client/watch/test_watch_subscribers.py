"""Those who share a watch: they come late and leave early, are slow or fail, and none is another's trouble."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from tests.integration.client.watch.recording_handler import FAST_PACE, SECONDS, RecordingHandler, run_informer
from tests.integration.client.watch.scripted_api import error_response, foreign_response
from tests.support.polling import wait_until
from trainjob.errors import ClusterUnreachable

RUNNING, COMPLETE, GONE = ("a", "Running"), ("a", "Complete"), ("a", "gone")


def add_handler(informer, key="a"):
    waiter = RecordingHandler()
    waiter.subscription = informer.add_event_handler(key, waiter, waiter.on_missing)
    return waiter


def add_watching_handler(api, informer):
    """A waiter on a watch that is open, so that each change is told, and not only the last of several."""
    waiter = add_handler(informer)
    wait_until(lambda: api.watching)
    return waiter


def test_who_comes_late_is_told_what_is_known(api, informer):
    api.write("a")
    add_handler(informer).wait_for(RUNNING)
    late, everything, other = add_handler(informer), add_handler(informer, None), add_handler(informer, "b")
    other.wait_for(lambda: other.misses)
    assert late.phases == everything.phases == [RUNNING]
    assert (late.misses, everything.misses, other.misses, other.phases) == (0, 0, 1, [])
    assert api.asked["list"] == 1


def test_who_comes_before_the_list_and_misses_something(api, informer):
    other, everything = add_handler(informer, "b"), add_handler(informer, None)
    other.wait_for(lambda: other.misses)
    everything.wait_for(lambda: everything.misses)
    api.write("b")
    other.wait_for(("b", "Running"))
    assert (other.misses, everything.misses) == (1, 1)


def test_who_comes_back_finds_the_watch_still_there(api):
    """What happened meanwhile is told."""
    with run_informer(api, replace(FAST_PACE, linger=SECONDS)) as informer:
        first = add_handler(informer)
        api.write("a")
        first.wait_for(RUNNING)
        first.subscription.close()
        api.write("a", "Complete")
        second = add_handler(informer)
        second.wait_for(COMPLETE)
    assert (first.phases, api.asked["list"]) == ([RUNNING], 1)


def test_who_comes_back_after_long_finds_a_new_one(api):
    with run_informer(api) as informer:
        api.write("a")
        first = add_handler(informer)
        first.wait_for(RUNNING)
        first.subscription.close()
        wait_until(lambda: informer._thread is None)
        with informer._lock:
            assert not informer._cache._objects  # thousands are not kept for nobody
        api.write("a", "Complete")
        second = add_handler(informer)
        assert second.wait_for(COMPLETE) == [COMPLETE]


def test_to_leave_while_being_told(api, informer):
    told = []

    def once(change):
        told.append(change)
        held.close()

    other = add_watching_handler(api, informer)
    held = informer.add_event_handler("a", once)
    for _ in range(3):
        api.write("a")
    other.wait_for(lambda: len(other.phases) == 3)
    assert len(told) == 1


def test_to_put_out_another_while_being_told(api, informer):
    """From then on the other hears nothing, not even of what is being told now."""
    add_watching_handler(api, informer)
    informer.add_event_handler("a", lambda _: second.subscription.close())
    second = add_handler(informer)
    third = add_handler(informer)
    api.write("a")
    third.wait_for(RUNNING)
    assert second.phases == []


def test_to_join_while_being_told(api, informer):
    waiter, joined = RecordingHandler(), []
    add_watching_handler(api, informer)

    def join(change):
        if not joined:
            joined.append(informer.add_event_handler("a", waiter))

    informer.add_event_handler("a", join)
    api.write("a")
    waiter.wait_for(RUNNING)
    api.write("a", "Complete")
    assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]


def test_to_close_all_while_being_told(api, informer):
    other = add_watching_handler(api, informer)
    informer.add_event_handler("a", lambda _: informer.close())
    api.write("a")
    other.wait_for(lambda: other.error)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("metadata"), MemoryError(), RuntimeError("loop is closed")]
)
def test_one_that_fails_is_told_so_and_the_others_go_on(api, error, evidence):
    broken = RecordingHandler()

    def fail(change):
        broken(change)
        if change.error is None:
            raise error

    with run_informer(api, replace(FAST_PACE, silence=SECONDS)) as informer:
        before = add_watching_handler(api, informer)
        informer.add_event_handler("a", fail)
        after = add_handler(informer)
        api.write("a")
        api.write("a", "Complete")
        for waiter in (before, after):
            assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]
        assert broken.phases == [RUNNING, ("ClusterUnreachable", "error")]
        assert broken.error.__cause__ is error
        assert broken.error.retryable
        assert api.asked["list"] == api.asked["watch"] == 1
    evidence(
        "faults",
        fault=f"an event handler raises {type(error).__name__}",
        runs=1,
        result=f"others: reported {after.phases[-1][1]}",
    )


def test_one_that_fails_at_once_has_not_joined(api, informer):
    api.write("a")
    other = add_handler(informer)
    other.wait_for(RUNNING)

    def fail(_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        informer.add_event_handler("a", fail)
    api.write("a", "Complete")
    assert other.wait_for(COMPLETE) == [RUNNING, COMPLETE]


def test_one_that_fails_on_missing(api, informer):
    broken = RecordingHandler()

    def fail():
        raise ValueError("no")

    informer.add_event_handler("b", broken, fail)
    other = add_handler(informer)
    other.wait_for(lambda: other.misses)
    assert isinstance(broken.error, ClusterUnreachable)


def test_a_slow_one_loses_nothing(api, informer, evidence):
    """It holds the others up only while it is being told."""
    slow, fast = RecordingHandler(), add_watching_handler(api, informer)

    def be_slow(change):
        time.sleep(0.01)  # what it does takes that long
        slow(change)

    informer.add_event_handler("a", be_slow)
    for n in range(100):
        api.write("a", f"Step{n}")
    expected = [("a", f"Step{n}") for n in range(100)]
    assert slow.wait_for(("a", "Step99")) == expected
    assert fast.wait_for(("a", "Step99")) == expected
    evidence(
        "faults", fault="a slow event handler", runs=100, result=f"{len(fast.phases)} changes reported to the others"
    )


def test_a_flood_of_one_jobs_changes(api, informer, evidence):
    """Changes are told in the order they happened: another's end waits for what was before it, and no longer."""
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
    versions = [int(change.object["metadata"]["resourceVersion"]) for change in everything.events]
    assert versions == sorted(versions)
    assert len(versions) == 2003
    after = len(versions) - 1 - versions.index(end)
    evidence(
        "faults",
        fault="2000 changes of one job",
        runs=1,
        result=f"end of another job reported before {after} later changes",
    )


def test_ten_thousand_jobs(api, informer, evidence):
    """Read in pages, each told once, also when all has to be read again; only news is told then."""
    for n in range(10_000):
        api.write(f"j{n:05}")
    everything, one = add_handler(informer, None), add_handler(informer, "j09999")
    one.wait_for(("j09999", "Running"), 60)
    everything.wait_for(lambda: len(everything.phases) == 10_000, 60)
    assert api.asked["more"] == 99
    wait_until(lambda: api.watching)
    with api.changed:
        api.write("j09999", "Complete")
        api.delete("j00000")
        api.compact()
        api.cut("reset")
    everything.wait_for(("j00000", "gone"), 60)
    assert one.phases == [("j09999", "Running"), ("j09999", "Complete")]
    assert len(everything.phases) == 10_002
    evidence(
        "faults", fault="410 with 10,000 jobs", runs=1, result=f"{len(everything.phases) - 10_000} changes reported"
    )


# -- the end --------------------------------------------------------------------------------------------------------


def test_who_waits_when_it_is_closed_is_told(api, informer):
    waiter = add_handler(informer)
    api.write("a")
    waiter.wait_for(RUNNING)
    informer.close()
    assert waiter.phases == [RUNNING, ("ClusterUnreachable", "error")]
    informer.close()
    api.write("a", "Complete")
    late = add_handler(informer)
    assert late.phases == [("ClusterUnreachable", "error")]
    assert len(waiter.phases) == 2
    wait_until(lambda: not api.watching)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_closing_waits_for_no_answer(api, informer, verb):
    """The server takes its time."""
    asked, may_answer, answered = threading.Event(), threading.Event(), threading.Event()

    def hold():
        asked.set()
        may_answer.wait()
        answered.set()

    api.answers[verb] = hold
    waiter = add_handler(informer)
    assert asked.wait(SECONDS)
    informer.close()
    assert not answered.is_set()
    api.write("a")
    may_answer.set()
    wait_until(lambda: informer._thread is None)
    assert waiter.phases == [("ClusterUnreachable", "error")]


def test_the_last_one_leaves_before_the_stream_is_open(api):
    """Then nobody is there to interrupt it: it ends by itself, and not only when the stream was silent for long."""
    asked, may_answer, answered = threading.Event(), threading.Event(), threading.Event()

    def hold():
        asked.set()
        may_answer.wait()
        answered.set()

    api.answers["watch"] = hold
    with run_informer(api, replace(FAST_PACE, silence=10 * SECONDS)) as informer:
        waiter = add_handler(informer)
        assert asked.wait(SECONDS)
        waiter.subscription.close()
        may_answer.set()
        wait_until(lambda: informer._thread is None)
        wait_until(lambda: not api.watching)


@pytest.mark.parametrize("error", [ZeroDivisionError("bug"), MemoryError(), RecursionError()])
def test_a_mistake_of_ours_is_told_to_all(api, error, evidence):
    """A thread that dies silently would keep them waiting for ever."""
    with run_informer(api) as informer:
        waiters = [add_handler(informer), add_handler(informer, "b"), add_handler(informer, None)]
        waiters[1].wait_for(lambda: waiters[1].misses)
        key, informer._key = informer._key, lambda _: (_ for _ in ()).throw(error)
        api.write("a")
        for waiter in waiters:
            waiter.wait_for(lambda waiter=waiter: waiter.error)
            assert waiter.error.__cause__ is error
        informer._key = key
        assert add_handler(informer).wait_for(RUNNING) == [RUNNING]
    told = sum(waiter.error is not None for waiter in waiters)
    evidence(
        "faults",
        fault=f"{type(error).__name__} in the watch's thread",
        runs=1,
        result=f"{told} of 3 handlers got the error",
    )


def test_short_waits_are_no_failures(api, informer):
    """Each ends a stream; the next one does not pay for that."""
    api.write("a")
    for n in range(5):
        waiter = add_handler(informer)
        waiter.wait_for(RUNNING)
        wait_until(lambda n=n: api.watching and api.asked["watch"] > n and informer._stream is not None)
        waiter.subscription.close()
        wait_until(lambda: not api.watching)
    assert informer._backoff.next() <= 2 * FAST_PACE.backoff().initial_delay


def test_a_forked_child_watches_by_itself(api):
    """Threads and sockets do not survive a fork; Airflow's workers fork."""
    api.write("a")
    script = """
import os, queue, sys
from trainjob.client import Connection, shared_cluster

informer = shared_cluster(Connection(server=sys.argv[1])).trainjob_informer("default")

def look():
    told = queue.Queue()
    with informer.add_event_handler("a", told.put):
        return told.get(timeout=60).found["metadata"]["name"]

informer.add_event_handler("a", lambda _: None)  # the parent's thread goes on, however long the fork takes
print(look(), flush=True)
child = os.fork()
if not child:
    print(look(), flush=True)
    os._exit(0)
print(look(), os.waitpid(child, 0)[1], flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, api.url], capture_output=True, text=True, timeout=60
    )
    assert sorted(done.stdout.split()) == ["0", "a", "a", "a"], done.stderr
    assert api.asked["list"] == 2


def test_a_clusters_lists_begin_again_when_a_page_has_expired(api):
    from trainjob.client import Cluster, Connection
    from trainjob.errors import ClusterError, Expired

    for n in range(250):
        api.write(f"j{n:03}")
    cluster = Cluster(Connection(server=api.url), retry_seconds=SECONDS)
    api.instead("more", error_response(410), 2)
    assert len(cluster.list_trainjobs("default")) == 250
    api.instead("more", error_response(410), 1000)
    with pytest.raises(Expired):
        cluster.list_trainjobs("default")
    api.answers.clear()
    api.instead("list", foreign_response())
    with pytest.raises(ClusterError, match="no answer of a Kubernetes API server: <html>log in"):
        cluster.list_trainjobs("default")
    api.instead("list", foreign_response(b'{"items": [{"meta', Connection="close"))
    assert len(cluster.list_trainjobs("default")) == 250
    cluster.close()
