"""Every fault of a long watch, on a real wire: who waits sees what happened, in order and once."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.integration.client.watch.recording_handler import FAST_PACE, SECONDS, RecordingHandler, run_informer
from tests.integration.client.watch.scripted_api import error_response, foreign_response, trainjob, watch_line
from tests.support.polling import wait_until
from trainjob.errors import InvalidResponse

IMPATIENT_PACE = replace(FAST_PACE, refused=0.5)
RUNNING, COMPLETE, GONE = ("a", "Running"), ("a", "Complete"), ("a", "gone")
OTHER = trainjob("b", "uid-b", 1000, "Running")


def start_waiting(api, informer, key="a"):
    """Job `a` is running, and somebody waits for it on an open watch."""
    api.write("a")
    waiter = RecordingHandler()
    informer.add_event_handler(key, waiter, waiter.on_missing)
    waiter.wait_for(RUNNING)
    wait_until(lambda: api.watching)
    return waiter


def finish_and_delete(api, waiter):
    """The job ends and is deleted at once; what the waiter was told."""
    api.write("a", "Complete")
    api.delete("a")
    return waiter.until(GONE)


def without_field(event, *path):
    copy = json.loads(event)
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return json.dumps(copy).encode() + b"\n"


MODIFIED, BOOKMARK = watch_line("MODIFIED", OTHER), watch_line("BOOKMARK", {"metadata": {"resourceVersion": "1000"}})
STREAMS = {
    "stream ends": ("end", b""),
    "connection reset": ("reset", b""),
    "stream cut in a chunk": ("close", b""),
    "line cut in the middle": ("end", MODIFIED[:50]),
    "line cut, connection reset": ("reset", MODIFIED[:50]),
    "half-open: silence": ("silence", b""),
    "half-open in a line": ("silence", MODIFIED[:50]),
    "empty lines": ("say", b"\n\n\n"),
    "ERROR event 410": ("end", watch_line("ERROR", {"kind": "Status", "code": 410})),
    "ERROR event 410, stream stays open": ("say", watch_line("ERROR", {"kind": "Status", "code": 410})),
    "ERROR event 500": ("end", watch_line("ERROR", {"kind": "Status", "code": 500})),
    "ERROR event 429": ("end", watch_line("ERROR", {"kind": "Status", "code": 429})),
    "ERROR event 403": ("end", watch_line("ERROR", {"kind": "Status", "code": 403})),
    "ERROR event without a code": ("end", watch_line("ERROR", {})),
    "ERROR event whose code is a string": ("end", watch_line("ERROR", {"kind": "Status", "code": "x"})),
    "ERROR event that is a number": ("end", watch_line("ERROR", 5)),
    "line that is not JSON": ("say", b"<html>bad gateway</html>\n"),
    "bytes that are not text": ("say", b"\xff\xfe\x00\n"),
    "JSON that is a number": ("say", b"5\n"),
    "JSON that is a list": ("say", b"[]\n"),
    "JSON without a type": ("say", without_field(MODIFIED, "type")),
    "JSON without an object": ("say", without_field(MODIFIED, "object")),
    "event of an unknown type": ("say", watch_line("PING", OTHER)),
    "object without metadata": ("say", without_field(MODIFIED, "object", "metadata")),
    "object without a uid": ("say", without_field(MODIFIED, "object", "metadata", "uid")),
    "object without a name": ("say", without_field(MODIFIED, "object", "metadata", "name")),
    "object without a version": ("say", without_field(MODIFIED, "object", "metadata", "resourceVersion")),
    "object whose metadata is a list": ("say", watch_line("MODIFIED", {"metadata": []})),
    "BOOKMARK without metadata": ("say", without_field(BOOKMARK, "object", "metadata")),
    "BOOKMARK without a version": ("say", without_field(BOOKMARK, "object", "metadata", "resourceVersion")),
    "JSON nested 100,000 deep": ("say", b"[" * 100_000 + b"\n"),
}


RELISTING_STREAMS = ("ERROR event 410", "ERROR event 410, stream stays open", "ERROR event 403")  # after which it lists


@pytest.mark.parametrize("fault", STREAMS)
def test_on_the_stream(api, informer, evidence, fault):
    waiter = start_waiting(api, informer)
    wait_until(lambda: api.cut(*STREAMS[fault]))
    if fault in RELISTING_STREAMS:
        api.write("a", "Complete")
        waiter.wait_for(COMPLETE)
        api.delete("a")
        waiter.wait_for(GONE)
    assert (waiter.phases if fault in RELISTING_STREAMS else finish_and_delete(api, waiter)) == [
        RUNNING,
        COMPLETE,
        GONE,
    ]
    evidence("faults", fault=fault, runs=1, result=f"reported {' > '.join(phase for _, phase in waiter.phases)}")


def test_nonsense_again_and_again(api, informer, evidence):
    """What the server says after a version is never understood: then its list is."""
    waiter = start_waiting(api, informer)
    with api.changed:
        api.write("b")
        api._history[-1] = (api.version, b"nonsense\n")
        api.write("a", "Complete")
    assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence(
        "faults", fault="invalid line in each watch", runs=api.asked["watch"], result=f"reported {waiter.phases[-1][1]}"
    )


@pytest.mark.parametrize("at", range(1, len(MODIFIED), 40))
def test_cut_at_any_byte(api, informer, at):
    """Half a change is none, and comes again whole."""
    waiter = start_waiting(api, informer)
    api.cut("reset", MODIFIED[:at])
    assert finish_and_delete(api, waiter) == [RUNNING, COMPLETE, GONE]


RESPONSES = {
    "watch: HTTP 410": ("watch", error_response(410), 3),
    "watch: 429, Retry-After 1": ("watch", error_response(429, **{"Retry-After": "1"}), 1),
    "watch: 429, Retry-After is a day": ("watch", error_response(429, **{"Retry-After": "86400"}), 3),
    "watch: 429, Retry-After is a date": (
        "watch",
        error_response(429, **{"Retry-After": "Sat, 21 Nov 2099 20:00:00 GMT"}),
        3,
    ),
    "watch: 429, Retry-After is not a number": ("watch", error_response(429, **{"Retry-After": "soon"}), 3),
    "watch: 429, Retry-After is a non-ASCII digit": ("watch", error_response(429, **{"Retry-After": "\u00b2"}), 3),
    "watch: 429, Retry-After has 400 digits": ("watch", error_response(429, **{"Retry-After": "9" * 400}), 3),
    "watch: 500": ("watch", error_response(500), 3),
    "watch: 503": ("watch", error_response(503), 3),
    "watch: 504": ("watch", error_response(504), 3),
    "watch: 403 for a while": ("watch", error_response(403), 3),
    "watch: 401 for a while": ("watch", error_response(401), 3),
    "watch: 404 for a while": ("watch", error_response(404), 3),
    "watch: 400": ("watch", error_response(400), 3),
    "watch: reset instead of a response": ("watch", (0, {}, b""), 3),
    "watch: 200 with a proxy's page": ("watch", foreign_response(), 3),
    "watch: 200 with an empty body": ("watch", foreign_response(b""), 3),
    "watch: 302 to a login page": ("watch", foreign_response(code=302, Location="/login"), 3),
    "list: 401 for a while": ("list", error_response(401), 4),
    "list: 403 for a while": ("list", error_response(403), 3),
    "list: 404 for a while": ("list", error_response(404), 3),
    "list: 429": ("list", error_response(429, **{"Retry-After": "0"}), 3),
    "list: 500": ("list", error_response(500), 3),
    "list: reset instead of a response": ("list", (0, {}, b""), 3),
    "list: 200 with a proxy's page": ("list", foreign_response(), 3),
    "list: 200 with JSON that is not a list": ("list", foreign_response(b'{"status": "ok"}'), 3),
    "list: JSON that is not an object": ("list", foreign_response(b"[]"), 3),
    "list: items that are not objects": (
        "list",
        foreign_response(b'{"metadata": {"resourceVersion": "1"}, "items": [5]}'),
        3,
    ),
    "list: an item without metadata": (
        "list",
        foreign_response(b'{"metadata": {"resourceVersion": "1"}, "items": [{}]}'),
        3,
    ),
    "list: without a version": ("list", foreign_response(b'{"metadata": {}, "items": []}'), 3),
    "list: JSON cut off": ("list", foreign_response(b'{"metadata": {"resour', Connection="close"), 3),
    "list: fewer bytes than announced": (
        "list",
        foreign_response(b'{"meta', Connection="close", **{"Content-Length": "99"}),
        3,
    ),
    "version: 500": ("version", error_response(500), 3),
    "version: 403 for a while": ("version", error_response(403), 3),
    "version: 410": ("version", error_response(410), 3),
}


@pytest.mark.parametrize("fault", RESPONSES)
def test_instead_of_an_answer(api, informer, evidence, fault):
    verb, answer, times = RESPONSES[fault]
    waiter = start_waiting(api, informer)
    before = api.asked[verb]
    api.instead(verb, answer, times)
    with api.changed:
        api.cut("end")
        if verb == "list":  # which is asked for after a 410 only
            api.write("b")
            api.compact()
    wait_until(lambda: api.asked[verb] >= before + times)
    api.write("a", "Complete")
    assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence("faults", fault=fault, runs=times, result=f"reported {' > '.join(phase for _, phase in waiter.phases)}")


def test_refused_connections(api, informer, evidence):
    waiter = start_waiting(api, informer)
    api.go_away()
    api.write("a", "Complete")
    api.come_back()
    assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence("faults", fault="server away, connections refused", runs=1, result=f"reported {waiter.phases[-1][1]}")


def test_a_stream_that_is_not_chunked(api, evidence):
    """As a proxy of HTTP/1.0 sends it: each line counts when it is there, not when all have come."""
    api.plain = True
    with run_informer(api, replace(FAST_PACE, silence=SECONDS)) as informer:
        waiter = start_waiting(api, informer)
        assert finish_and_delete(api, waiter) == [RUNNING, COMPLETE, GONE]
        assert api.asked["watch"] == 1
    evidence(
        "faults",
        fault="stream without chunks (HTTP/1.0 proxy)",
        runs=1,
        result=f"reported in {api.asked['watch']} watch",
    )


def test_a_bookmark_is_where_it_goes_on(api, informer):
    """What was compacted meanwhile is not asked for."""
    waiter = start_waiting(api, informer)
    api.version += 1000
    api.bookmark()
    wait_until(lambda: informer._version == str(api.version))
    api._floor = api.version
    api.cut("end")
    lists = api.asked["list"]
    assert finish_and_delete(api, waiter) == [RUNNING, COMPLETE, GONE]
    assert api.asked["list"] == lists


# -- another epoch of versions --------------------------------------------------------------------------------------


def test_versions_that_go_back(api, informer, evidence):
    """A watch from a version of the future would say nothing for ever."""
    waiter = start_waiting(api, informer)
    api.version = 5000
    api.bookmark()
    wait_until(lambda: informer._version == "5000")
    api.restore(50)
    api.write("a", "Complete")
    assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence("faults", fault="etcd restored: versions go back", runs=1, result=f"reported {waiter.phases[-1][1]}")


def test_versions_that_go_back_behind_a_silent_stream(api, informer, evidence):
    """A load balancer keeps the connection, and behind it there is another server."""
    waiter = start_waiting(api, informer)
    api.version = 5000
    api.bookmark()
    wait_until(lambda: informer._version == "5000")
    with api.changed:
        api.cut("silence")
        api.version, api._floor, api._history = 50, 50, []
        api.write("a", "Complete")
    assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence(
        "faults", fault="versions go back behind a half-open stream", runs=1, result=f"reported {waiter.phases[-1][1]}"
    )


def test_equal_versions_of_other_states(api, informer, evidence):
    """After a restore a version may be given out again, for another state of the same object."""
    waiter = start_waiting(api, informer)
    before = api.jobs["a"]["metadata"]
    with api.changed:
        api.restore(int(before["resourceVersion"]) - 1)
        api.compact()
        api.write("a", "Complete")
        assert api.jobs["a"]["metadata"] == before
        api.write("b")
        api.compact()
    assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence("faults", fault="one resourceVersion for two states", runs=1, result=f"reported {waiter.phases[-1][1]}")


def test_equal_versions_of_other_objects(api, informer, evidence):
    """The cluster was made anew: the same name and version, and not the same job."""
    waiter = start_waiting(api, informer)
    version = api.jobs["a"]["metadata"]["resourceVersion"]
    with api.changed:
        api.jobs = {"a": trainjob("a", "another", int(version), "Running")}
        api.restore(int(version))
        api.write("b")
        api.compact()
    waiter.wait_for(GONE)
    uids = [(change.object["metadata"]["uid"], change.deleted) for change in waiter.events]
    assert [gone for _, gone in uids] == [False, False, True]
    assert uids[1][0] == "another" and uids[2][0] == uids[0][0]
    evidence("faults", fault="cluster recreated: same names and versions, other UIDs", runs=1, result="reported gone")


# -- who we are -----------------------------------------------------------------------------------------------------


def test_a_token_that_is_replaced_in_its_file(api, tmp_path, evidence):
    token = tmp_path / "token"
    token.write_text("first")
    api.token = "first"
    with run_informer(api, server=api.url, token_file=str(token)) as informer:
        waiter = start_waiting(api, informer)
        with api.changed:
            api.token = "second"
            api.cut("reset")
        wait_until(lambda: api.asked["version"] >= 2)  # refused, for a moment
        token.write_text("second")
        assert finish_and_delete(api, waiter) == [RUNNING, COMPLETE, GONE]
    evidence("faults", fault="token rotated in its file, late", runs=1, result=f"reported {waiter.phases[-2][1]}")


def test_a_token_that_a_program_gives(api, tmp_path, evidence):
    """A kubeconfig's exec plugin, as clouds have them."""
    token, program = tmp_path / "token", tmp_path / "login"
    token.write_text("first")
    credential = '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s"}}'
    program.write_text(f"#!/bin/sh\nprintf '{credential}' \"$(cat {token})\"\n")
    program.chmod(0o700)
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(program),
        "interactiveMode": "Never",
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {"exec": login}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    api.token = "first"
    with run_informer(api, kubeconfig=str(path)) as informer:
        waiter = start_waiting(api, informer)
        with api.changed:
            api.token = "second"
            token.write_text("second")
            api.cut("reset")
        assert finish_and_delete(api, waiter) == [RUNNING, COMPLETE, GONE]
    evidence(
        "faults", fault="token rotated by a kubeconfig's program", runs=1, result=f"reported {waiter.phases[-2][1]}"
    )


@pytest.mark.parametrize("code", [401, 403, 404])
def test_refused_from_the_start(api, informer, code, evidence):
    """Nothing mends that by itself: at once, and with the reason."""
    api.instead("list", error_response(code), 10)
    waiter = RecordingHandler()
    informer.add_event_handler("a", waiter)
    waiter.wait_for(lambda: waiter.error)
    assert waiter.error.status == code
    assert api.asked["list"] <= 2  # 401: once more with new credentials
    evidence("faults", fault=f"list: {code} from the start", runs=1, result=f"reported {waiter.phases[-1][0]}")


@pytest.mark.parametrize("code", [401, 403, 404])
def test_refused_from_now_on(api, code, evidence):
    """What was permitted may come back in a moment; in the end it is an error."""
    with run_informer(api, IMPATIENT_PACE) as informer:
        waiter = start_waiting(api, informer)
        with api.changed:
            api.write("b")
            api.compact()
            api.instead("list", error_response(code), 1_000_000)
            api.instead("version", error_response(code), 1_000_000)
            api.cut("reset")
        waiter.wait_for(lambda: waiter.error)
        assert waiter.error.status == code
        assert api.asked["list"] + api.asked["version"] > 2  # the first list, and at least two that were refused
        again = RecordingHandler()
        api.answers.clear()
        informer.add_event_handler("a", again)
        again.wait_for(RUNNING)
    evidence("faults", fault=f"list: {code} from now on", runs=1, result=f"reported {waiter.phases[-1][0]}")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"metadata": null}', b'{"metadata": {"resourceVersion": "1"}}'])
def test_a_list_that_is_none(api, informer, body, evidence):
    """It may be the first one, and is requested again for a while; then the waiters get a typed error."""
    api.instead("list", foreign_response(body), 3)
    api.write("a")
    served, waiter = RecordingHandler(), RecordingHandler()
    informer.add_event_handler("a", served)
    served.wait_for(RUNNING)
    api.instead("list", foreign_response(body), 1_000_000)
    with run_informer(api, IMPATIENT_PACE) as other:
        other.add_event_handler("a", waiter)
        waiter.wait_for(lambda: waiter.error)
    assert isinstance(waiter.error, InvalidResponse)
    assert f"{api.url} answered 200 to the request to list trainjobs" in str(waiter.error)
    evidence(
        "faults",
        fault=f"list: 200 with the body {body.decode() or '(empty)'}",
        runs=2,
        result="reported InvalidResponse",
    )


def test_refused_now_and_then(api, informer, monkeypatch, evidence):
    """Each time counts from its own beginning, however long ago the last was."""
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr("trainjob.client.informer.time", clock)
    waiter = start_waiting(api, informer)
    for n in range(3):
        before = api.asked["version"]
        api.instead("version", error_response(403), 2)
        api.cut("end")
        wait_until(lambda before=before: api.asked["version"] >= before + 3)
        passed[0] += 2 * FAST_PACE.refusal_timeout
        api.write("a", f"Step{n}")
        waiter.wait_for(("a", f"Step{n}"))
    assert waiter.error is None
    evidence("faults", fault="list: 403 now and then", runs=3, result=f"reported {len(waiter.phases) - 1} changes")


def test_no_right_to_watch(api, informer, evidence):
    """One list for all, again and again."""
    api.instead("watch", error_response(403), 1_000_000)
    api.write("a")
    waiters, lists = [RecordingHandler() for _ in range(10)], []

    def noting(waiter):
        def deliver(change):
            waiter(change)
            if waiter.told[-1] == COMPLETE:
                lists.append(api.asked["list"])

        return deliver

    for waiter in waiters:
        informer.add_event_handler("a", noting(waiter))
        waiter.wait_for(RUNNING)
    api.write("a", "Complete")
    for waiter in waiters:
        assert waiter.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    wait_until(lambda: len(lists) == 10)
    assert len(set(lists)) == 1
    evidence("faults", fault="no permission to watch", runs=10, result=f"{len(set(lists))} list for 10 handlers")


# -- servers that keep one busy -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("watch", error_response(410)),
        ("watch", foreign_response(b"")),
        ("watch", foreign_response()),
        ("list", error_response(500)),
        ("more", error_response(410)),
    ],
    ids=["always-410", "ends-at-once", "page", "always-500", "always-410-in-pages"],
)
def test_trouble_without_end_is_no_flood(api, verb, answer, evidence):
    """Each failure waits longer than the one before, whatever it is."""
    for n in range(150):
        api.write(f"j{n}")
    api.instead(verb, answer, 1_000_000)
    with run_informer(api, replace(FAST_PACE, steady=SECONDS)) as informer:
        informer.add_event_handler("a", RecordingHandler())
        wait_until(lambda: api.asked[verb] >= 12)
        # 0.02 s, then twice as long each time up to 0.1 s, less half at most for the jitter
        assert [informer._backoff.next() >= 0.05 for _ in range(3)] == [True] * 3
    evidence("faults", fault=f"{verb} answered {answer[0]} permanently", runs=12, result="growing pauses")


def test_more_pages_that_have_expired(api, informer, evidence):
    """Between two pages the server forgets: the list begins anew, and is whole."""
    for n in range(250):
        api.write(f"j{n:03}")
    api.instead("more", error_response(410), 2)
    waiter = RecordingHandler()
    informer.add_event_handler(None, waiter)
    waiter.wait_for(lambda: len({name for name, _ in waiter.phases}) == 250)
    assert len(waiter.phases) == 250  # nothing twice
    assert api.asked["list"] == 3
    evidence("faults", fault="410 between two pages", runs=2, result=f"{len(waiter.phases)} of 250 reported, once")


def test_a_list_without_end(api, informer, evidence):
    """`continue` leads back to where it came from."""
    body = {"metadata": {"resourceVersion": "1", "continue": "again"}, "items": [OTHER]}
    api.answers = dict.fromkeys(("list", "more"), lambda: foreign_response(json.dumps(body).encode()))
    waiter = RecordingHandler()
    informer.add_event_handler("a", waiter)
    waiter.wait_for(lambda: waiter.error)
    assert "begins anew" in str(waiter.error)
    evidence("faults", fault="list whose pages never end", runs=1, result=f"reported {waiter.phases[-1][0]}")


def test_a_line_without_end(api, evidence):
    """A proxy sends and sends: it is not kept for ever."""
    with run_informer(api, replace(FAST_PACE, silence=10 * SECONDS)) as informer:
        waiter = start_waiting(api, informer)
        watches = api.asked["watch"]
        api.cut("say", b"x" * (20 * 2**20))
        wait_until(lambda: api.asked["watch"] > watches)
        assert finish_and_delete(api, waiter) == [RUNNING, COMPLETE, GONE]
    evidence("faults", fault="line of 20 MB without a newline", runs=1, result=f"reported {waiter.phases[-2][1]}")


def test_the_clock_jumps(api, informer, monkeypatch, evidence):
    """Neither limits nor pauses look at the time of day."""
    real = time.time
    waiter = start_waiting(api, informer)
    for jump in (86_400, -86_400):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        api.cut("reset")
        api.write("a", f"Since{jump}")
        waiter.wait_for(("a", f"Since{jump}"))
    assert len(waiter.phases) == 3
    evidence(
        "faults",
        fault="clock jumps by a day, forward and back",
        runs=2,
        result=f"reported {len(waiter.phases) - 1} changes",
    )


def test_threads_that_come_and_go(api, informer, evidence):
    """Hundreds of short waits, from several threads, while streams break: each hears of it, and one thread watches."""
    api.write("a")
    failures, others = [], set(threading.enumerate())

    def wait_shortly(n):
        for _ in range(40):
            waiter = RecordingHandler()
            with informer.add_event_handler("a", waiter, waiter.on_missing):
                try:
                    waiter.wait_for(lambda waiter=waiter: waiter.phases, 60)
                except AssertionError as error:
                    failures.append(error)
                if n == 0:
                    api.cut("reset")
            heard = len(waiter.phases)
            api.write("a")
            if len(waiter.phases) != heard:
                failures.append("told after it was closed")

    threads = [threading.Thread(target=wait_shortly, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    with informer.add_event_handler(
        "a", RecordingHandler()
    ):  # keeps each thread that still watches; one that has given up ends by itself
        wait_until(lambda: [one.name[:6] for one in set(threading.enumerate()) - others].count("watch-") == 1)
    evidence("faults", fault="short waits from 6 threads, streams reset", runs=240, result=f"{len(failures)} failed")
