"""Those who share a watch: they come late and leave early, are slow or fail, and none is another's trouble."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from tests.integration.client.watch.recording_handler import FAST, SECONDS, RecordingHandler, informer_of
from tests.integration.client.watch.scripted_api import page, status
from tests.support.polling import until
from trainjob.errors import ClusterUnreachable

RUNNING, COMPLETE, GONE = ("a", "Running"), ("a", "Complete"), ("a", "gone")


def subscribed(informer, key="a"):
    waiter = RecordingHandler()
    waiter.subscription = informer.add_event_handler(key, waiter, waiter.missing)
    return waiter


def watched(api, informer):
    """A waiter on a watch that is open, so that each change is told, and not only the last of several."""
    waiter = subscribed(informer)
    until(lambda: api.watching)
    return waiter


def test_who_comes_late_is_told_what_is_known(api, informer):
    api.write("a")
    subscribed(informer).until(RUNNING)
    late, everything, other = subscribed(informer), subscribed(informer, None), subscribed(informer, "b")
    other.until(lambda: other.misses)
    assert late.told == everything.told == [RUNNING]
    assert (late.misses, everything.misses, other.misses, other.told) == (0, 0, 1, [])
    assert api.asked["list"] == 1


def test_who_comes_before_the_list_and_misses_something(api, informer):
    other, everything = subscribed(informer, "b"), subscribed(informer, None)
    other.until(lambda: other.misses)
    everything.until(lambda: everything.misses)
    api.write("b")
    other.until(("b", "Running"))
    assert (other.misses, everything.misses) == (1, 1)


def test_who_comes_back_finds_the_watch_still_there(api):
    """What happened meanwhile is told."""
    with informer_of(api, replace(FAST, linger=SECONDS)) as informer:
        first = subscribed(informer)
        api.write("a")
        first.until(RUNNING)
        first.subscription.close()
        api.write("a", "Complete")
        second = subscribed(informer)
        second.until(COMPLETE)
    assert (first.told, api.asked["list"]) == ([RUNNING], 1)


def test_who_comes_back_after_long_finds_a_new_one(api):
    with informer_of(api) as informer:
        api.write("a")
        first = subscribed(informer)
        first.until(RUNNING)
        first.subscription.close()
        until(lambda: informer._thread is None)
        with informer._lock:
            assert not informer._cache._objects  # thousands are not kept for nobody
        api.write("a", "Complete")
        second = subscribed(informer)
        assert second.until(COMPLETE) == [COMPLETE]


def test_to_leave_while_being_told(api, informer):
    told = []

    def once(change):
        told.append(change)
        held.close()

    other = watched(api, informer)
    held = informer.add_event_handler("a", once)
    for _ in range(3):
        api.write("a")
    other.until(lambda: len(other.told) == 3)
    assert len(told) == 1


def test_to_put_out_another_while_being_told(api, informer):
    """From then on the other hears nothing, not even of what is being told now."""
    watched(api, informer)
    informer.add_event_handler("a", lambda _: second.subscription.close())
    second = subscribed(informer)
    third = subscribed(informer)
    api.write("a")
    third.until(RUNNING)
    assert second.told == []


def test_to_join_while_being_told(api, informer):
    waiter, joined = RecordingHandler(), []
    watched(api, informer)

    def join(change):
        if not joined:
            joined.append(informer.add_event_handler("a", waiter))

    informer.add_event_handler("a", join)
    api.write("a")
    waiter.until(RUNNING)
    api.write("a", "Complete")
    assert waiter.until(COMPLETE) == [RUNNING, COMPLETE]


def test_to_close_all_while_being_told(api, informer):
    other = watched(api, informer)
    informer.add_event_handler("a", lambda _: informer.close())
    api.write("a")
    other.until(lambda: other.error)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("metadata"), MemoryError(), RuntimeError("loop is closed")]
)
def test_one_that_fails_is_told_so_and_the_others_go_on(api, error, evidence):
    broken = RecordingHandler()

    def fail(change):
        broken(change)
        if change.error is None:
            raise error

    with informer_of(api, replace(FAST, silence=SECONDS)) as informer:
        before = watched(api, informer)
        informer.add_event_handler("a", fail)
        after = subscribed(informer)
        api.write("a")
        api.write("a", "Complete")
        for waiter in (before, after):
            assert waiter.until(COMPLETE) == [RUNNING, COMPLETE]
        assert broken.told == [RUNNING, ("ClusterUnreachable", "error")]
        assert broken.error.__cause__ is error
        assert broken.error.retryable
        assert api.asked["list"] == api.asked["watch"] == 1
    evidence(
        "faults", fault=f"a subscriber raises {type(error).__name__}", runs=1, result=f"others told {after.told[-1][1]}"
    )


def test_one_that_fails_at_once_has_not_joined(api, informer):
    api.write("a")
    other = subscribed(informer)
    other.until(RUNNING)

    def fail(_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        informer.add_event_handler("a", fail)
    api.write("a", "Complete")
    assert other.until(COMPLETE) == [RUNNING, COMPLETE]


def test_one_that_fails_on_missing(api, informer):
    broken = RecordingHandler()

    def fail():
        raise ValueError("no")

    informer.add_event_handler("b", broken, fail)
    other = subscribed(informer)
    other.until(lambda: other.misses)
    assert isinstance(broken.error, ClusterUnreachable)


def test_a_slow_one_loses_nothing(api, informer, evidence):
    """It holds the others up only while it is being told."""
    slow, fast = RecordingHandler(), watched(api, informer)

    def be_slow(change):
        time.sleep(0.01)  # what it does takes that long
        slow(change)

    informer.add_event_handler("a", be_slow)
    for n in range(100):
        api.write("a", f"Step{n}")
    expected = [("a", f"Step{n}") for n in range(100)]
    assert slow.until(("a", "Step99")) == expected
    assert fast.until(("a", "Step99")) == expected
    evidence("faults", fault="a slow subscriber", runs=100, result=f"{len(fast.told)} changes told to the others")


def test_a_flood_of_one_jobs_changes(api, informer, evidence):
    """Changes are told in the order they happened: another's end waits for what was before it, and no longer."""
    api.write("a")
    api.write("busy")
    everything, other = subscribed(informer, None), watched(api, informer)
    writing = threading.Thread(target=lambda: [api.write("busy", f"Step{n}") for n in range(2000)])
    writing.start()
    until(lambda: api.version > 1000)
    end = int(api.write("a", "Complete")["metadata"]["resourceVersion"])
    other.until(COMPLETE)
    everything.until(lambda: len(everything.told) == 2003)
    writing.join(SECONDS)
    versions = [int(change.found["metadata"]["resourceVersion"]) for change in everything.changes]
    assert versions == sorted(versions)
    assert len(versions) == 2003
    after = len(versions) - 1 - versions.index(end)
    evidence("faults", fault="2000 changes of one job", runs=1, result=f"another's end told before {after} later ones")


def test_ten_thousand_jobs(api, informer, evidence):
    """Read in pages, each told once, also when all has to be read again; only news is told then."""
    for n in range(10_000):
        api.write(f"j{n:05}")
    everything, one = subscribed(informer, None), subscribed(informer, "j09999")
    one.until(("j09999", "Running"), 60)
    everything.until(lambda: len(everything.told) == 10_000, 60)
    assert api.asked["more"] == 99
    until(lambda: api.watching)
    with api.changed:
        api.write("j09999", "Complete")
        api.delete("j00000")
        api.compact()
        api.cut("reset")
    everything.until(("j00000", "gone"), 60)
    assert one.told == [("j09999", "Running"), ("j09999", "Complete")]
    assert len(everything.told) == 10_002
    evidence("faults", fault="410 with 10,000 jobs", runs=1, result=f"{len(everything.told) - 10_000} news told")


# -- the end --------------------------------------------------------------------------------------------------------


def test_who_waits_when_it_is_closed_is_told(api, informer):
    waiter = subscribed(informer)
    api.write("a")
    waiter.until(RUNNING)
    informer.close()
    assert waiter.told == [RUNNING, ("ClusterUnreachable", "error")]
    informer.close()
    api.write("a", "Complete")
    late = subscribed(informer)
    assert late.told == [("ClusterUnreachable", "error")]
    assert len(waiter.told) == 2
    until(lambda: not api.watching)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_closing_waits_for_no_answer(api, informer, verb):
    """The server takes its time."""
    asked, may_answer, answered = threading.Event(), threading.Event(), threading.Event()

    def hold():
        asked.set()
        may_answer.wait()
        answered.set()

    api.answers[verb] = hold
    waiter = subscribed(informer)
    assert asked.wait(SECONDS)
    informer.close()
    assert not answered.is_set()
    api.write("a")
    may_answer.set()
    until(lambda: informer._thread is None)
    assert waiter.told == [("ClusterUnreachable", "error")]


def test_the_last_one_leaves_before_the_stream_is_open(api):
    """Then nobody is there to interrupt it: it ends by itself, and not only when the stream was silent for long."""
    asked, may_answer, answered = threading.Event(), threading.Event(), threading.Event()

    def hold():
        asked.set()
        may_answer.wait()
        answered.set()

    api.answers["watch"] = hold
    with informer_of(api, replace(FAST, silence=10 * SECONDS)) as informer:
        waiter = subscribed(informer)
        assert asked.wait(SECONDS)
        waiter.subscription.close()
        may_answer.set()
        until(lambda: informer._thread is None)
        until(lambda: not api.watching)


@pytest.mark.parametrize("error", [ZeroDivisionError("bug"), MemoryError(), RecursionError()])
def test_a_mistake_of_ours_is_told_to_all(api, error, evidence):
    """A thread that dies silently would keep them waiting for ever."""
    with informer_of(api) as informer:
        waiters = [subscribed(informer), subscribed(informer, "b"), subscribed(informer, None)]
        waiters[1].until(lambda: waiters[1].misses)
        key, informer._key = informer._key, lambda _: (_ for _ in ()).throw(error)
        api.write("a")
        for waiter in waiters:
            waiter.until(lambda waiter=waiter: waiter.error)
            assert waiter.error.__cause__ is error
        informer._key = key
        assert subscribed(informer).until(RUNNING) == [RUNNING]
    told = sum(waiter.error is not None for waiter in waiters)
    evidence("faults", fault=f"{type(error).__name__} in the watch's thread", runs=1, result=f"{told} of 3 told")


def test_short_waits_are_no_failures(api, informer):
    """Each ends a stream; the next one does not pay for that."""
    api.write("a")
    for n in range(5):
        waiter = subscribed(informer)
        waiter.until(RUNNING)
        until(lambda n=n: api.watching and api.asked["watch"] > n and informer._stream is not None)
        waiter.subscription.close()
        until(lambda: not api.watching)
    assert informer._backoff.next() <= 2 * FAST.backoff().first


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
    cluster = Cluster(Connection(server=api.url), patience=SECONDS)
    api.instead("more", status(410), 2)
    assert len(cluster.list_trainjobs("default")) == 250
    api.instead("more", status(410), 1000)
    with pytest.raises(Expired):
        cluster.list_trainjobs("default")
    api.answers.clear()
    api.instead("list", page())
    with pytest.raises(ClusterError, match="no answer of a Kubernetes API server: <html>log in"):
        cluster.list_trainjobs("default")
    api.instead("list", page(b'{"items": [{"meta', Connection="close"))
    assert len(cluster.list_trainjobs("default")) == 250
    cluster.close()
