"""Tests of every fault of a long watch over real sockets: a handler gets each event in order and once."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.integration.client.watch.recording_handler import FAST_TIMINGS, SECONDS, RecordingHandler, run_informer
from tests.integration.client.watch.scripted_api import error_response, foreign_response, trainjob, watch_line
from tests.support.polling import wait_until
from trainjob.errors import InvalidResponse

IMPATIENT_TIMINGS = replace(FAST_TIMINGS, refusal_timeout=0.5)
RUNNING, COMPLETE, GONE = ("a", "Running"), ("a", "Complete"), ("a", "gone")
OTHER = trainjob("b", "uid-b", 1000, "Running")


def start_waiting(api, informer, key="a"):
    """Create a running job `a`, and return a handler that waits for it on an open watch."""
    api.write("a")
    handler = RecordingHandler()
    informer.add_event_handler(key, handler, handler.on_missing)
    handler.wait_for(RUNNING)
    wait_until(lambda: api.open_watches)
    return handler


def finish_and_delete(api, handler):
    """Finish the job and delete it at once; return the phases that the handler got."""
    api.write("a", "Complete")
    api.delete("a")
    return handler.wait_for(GONE)


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
    "empty lines": ("send", b"\n\n\n"),
    "ERROR event 410": ("end", watch_line("ERROR", {"kind": "Status", "code": 410})),
    "ERROR event 410, stream stays open": ("send", watch_line("ERROR", {"kind": "Status", "code": 410})),
    "ERROR event 500": ("end", watch_line("ERROR", {"kind": "Status", "code": 500})),
    "ERROR event 429": ("end", watch_line("ERROR", {"kind": "Status", "code": 429})),
    "ERROR event 403": ("end", watch_line("ERROR", {"kind": "Status", "code": 403})),
    "ERROR event without a code": ("end", watch_line("ERROR", {})),
    "ERROR event whose code is a string": ("end", watch_line("ERROR", {"kind": "Status", "code": "x"})),
    "ERROR event that is a number": ("end", watch_line("ERROR", 5)),
    "line that is not JSON": ("send", b"<html>bad gateway</html>\n"),
    "bytes that are not text": ("send", b"\xff\xfe\x00\n"),
    "JSON that is a number": ("send", b"5\n"),
    "JSON that is a list": ("send", b"[]\n"),
    "JSON without a type": ("send", without_field(MODIFIED, "type")),
    "JSON without an object": ("send", without_field(MODIFIED, "object")),
    "event of an unknown type": ("send", watch_line("PING", OTHER)),
    "object without metadata": ("send", without_field(MODIFIED, "object", "metadata")),
    "object without a uid": ("send", without_field(MODIFIED, "object", "metadata", "uid")),
    "object without a name": ("send", without_field(MODIFIED, "object", "metadata", "name")),
    "object without a version": ("send", without_field(MODIFIED, "object", "metadata", "resourceVersion")),
    "object whose metadata is a list": ("send", watch_line("MODIFIED", {"metadata": []})),
    "BOOKMARK without metadata": ("send", without_field(BOOKMARK, "object", "metadata")),
    "BOOKMARK without a version": ("send", without_field(BOOKMARK, "object", "metadata", "resourceVersion")),
    "JSON nested 100,000 deep": ("send", b"[" * 100_000 + b"\n"),
}


# The faults after which the informer relists.
RELISTING_STREAMS = ("ERROR event 410", "ERROR event 410, stream stays open", "ERROR event 403")


@pytest.mark.parametrize("fault", STREAMS)
def test_no_event_is_lost_after_a_fault_of_a_stream(api, informer, evidence, fault):
    handler = start_waiting(api, informer)
    wait_until(lambda: api.interrupt_watches(*STREAMS[fault]))
    if fault in RELISTING_STREAMS:
        api.write("a", "Complete")
        handler.wait_for(COMPLETE)
        api.delete("a")
        handler.wait_for(GONE)
    assert (handler.phases if fault in RELISTING_STREAMS else finish_and_delete(api, handler)) == [
        RUNNING,
        COMPLETE,
        GONE,
    ]
    evidence("faults", fault=fault, runs=1, result=f"reported {' > '.join(phase for _, phase in handler.phases)}")


def test_an_invalid_line_in_each_watch_leads_to_a_relist(api, informer, evidence):
    """The informer relists when the line after a resourceVersion is invalid again."""
    handler = start_waiting(api, informer)
    with api.changed:
        api.write("b")
        api._history[-1] = (api.version, b"invalid\n")
        api.write("a", "Complete")
    assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence(
        "faults",
        fault="invalid line in each watch",
        runs=api.request_counts["watch"],
        result=f"reported {handler.phases[-1][1]}",
    )


@pytest.mark.parametrize("at", range(1, len(MODIFIED), 40))
def test_an_event_that_is_cut_at_any_byte_is_received_later(api, informer, at):
    """A part of an event has no effect; the complete event arrives in the next stream."""
    handler = start_waiting(api, informer)
    api.interrupt_watches("reset", MODIFIED[:at])
    assert finish_and_delete(api, handler) == [RUNNING, COMPLETE, GONE]


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
def test_no_event_is_lost_after_error_responses(api, informer, evidence, fault):
    verb, response, times = RESPONSES[fault]
    handler = start_waiting(api, informer)
    before = api.request_counts[verb]
    api.respond_with(verb, response, times)
    with api.changed:
        api.interrupt_watches("end")
        if verb == "list":  # the informer relists only after a 410
            api.write("b")
            api.compact()
    wait_until(lambda: api.request_counts[verb] >= before + times)
    api.write("a", "Complete")
    assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence("faults", fault=fault, runs=times, result=f"reported {' > '.join(phase for _, phase in handler.phases)}")


def test_no_event_is_lost_after_refused_connections(api, informer, evidence):
    handler = start_waiting(api, informer)
    api.disconnect()
    api.write("a", "Complete")
    api.start_listening()
    assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence("faults", fault="server away, connections refused", runs=1, result=f"reported {handler.phases[-1][1]}")


def test_lines_of_a_stream_without_chunks_are_read_as_they_arrive(api, evidence):
    """A proxy of HTTP/1.0 sends such a stream."""
    api.is_unchunked = True
    with run_informer(api, replace(FAST_TIMINGS, max_silence=SECONDS)) as informer:
        handler = start_waiting(api, informer)
        assert finish_and_delete(api, handler) == [RUNNING, COMPLETE, GONE]
        assert api.request_counts["watch"] == 1
    evidence(
        "faults",
        fault="stream without chunks (HTTP/1.0 proxy)",
        runs=1,
        result=f"reported in {api.request_counts['watch']} watch",
    )


def test_a_watch_resumes_at_a_bookmark(api, informer):
    """The versions before the bookmark were compacted, and are not requested."""
    handler = start_waiting(api, informer)
    api.version += 1000
    api.bookmark()
    wait_until(lambda: informer._resource_version == str(api.version))
    api._oldest_version = api.version
    api.interrupt_watches("end")
    lists = api.request_counts["list"]
    assert finish_and_delete(api, handler) == [RUNNING, COMPLETE, GONE]
    assert api.request_counts["list"] == lists


# -- versions that are set back ---------------------------------------------------------------------------------------


def test_the_informer_relists_if_versions_are_set_back(api, informer, evidence):
    """A watch from a version that is higher than the server's would never get an event."""
    handler = start_waiting(api, informer)
    api.version = 5000
    api.bookmark()
    wait_until(lambda: informer._resource_version == "5000")
    api.restore(50)
    api.write("a", "Complete")
    assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence("faults", fault="etcd restored: versions go back", runs=1, result=f"reported {handler.phases[-1][1]}")


def test_the_informer_relists_if_versions_are_set_back_during_a_silent_stream(api, informer, evidence):
    """A load balancer keeps the connection open while another server replaces the first one."""
    handler = start_waiting(api, informer)
    api.version = 5000
    api.bookmark()
    wait_until(lambda: informer._resource_version == "5000")
    with api.changed:
        api.interrupt_watches("silence")
        api.version, api._oldest_version, api._history = 50, 50, []
        api.write("a", "Complete")
    assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence(
        "faults", fault="versions go back behind a half-open stream", runs=1, result=f"reported {handler.phases[-1][1]}"
    )


def test_an_object_that_is_missing_after_a_restored_server_has_passed_the_version_is_reported(api, evidence):
    """The watch from the known version is accepted, and no event ever reports the missing object."""
    with run_informer(api, replace(FAST_TIMINGS, outage=0.0)) as informer:
        handler = start_waiting(api, informer)
        api.disconnect()
        known = api.version
        api.restore(50)
        del api.jobs["a"]
        while api.version < known + 10:
            api.write("b")
        api.start_listening()
        assert handler.wait_for(GONE) == [RUNNING, GONE]
    evidence("faults", fault="etcd restored, and already at later versions", runs=1, result="reported gone")


def test_a_lost_event_is_noticed_by_the_next_list_which_reports_nothing_else(api, evidence):
    with run_informer(api, replace(FAST_TIMINGS, relist_interval=0.0)) as informer:
        handler, unchanged = start_waiting(api, informer), RecordingHandler()
        api.write("b")
        informer.add_event_handler("b", unchanged)
        unchanged.wait_for(("b", "Running"))
        del api.jobs["a"]  # without an event
        assert handler.wait_for(GONE) == [RUNNING, GONE]
        assert unchanged.phases == [("b", "Running")]
    evidence("faults", fault="an event that was never sent", runs=1, result="reported gone")


def test_another_state_with_the_same_version_is_reported(api, informer, evidence):
    """After a restore, a version may be used again for another state of the same object."""
    handler = start_waiting(api, informer)
    before = api.jobs["a"]["metadata"]
    with api.changed:
        api.restore(int(before["resourceVersion"]) - 1)
        api.compact()
        api.write("a", "Complete")
        assert api.jobs["a"]["metadata"] == before
        api.write("b")
        api.compact()
    assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    evidence("faults", fault="one resourceVersion for two states", runs=1, result=f"reported {handler.phases[-1][1]}")


def test_another_object_with_the_same_name_and_version_is_reported(api, informer, evidence):
    """The cluster was created again, with another job of the same name and version."""
    handler = start_waiting(api, informer)
    version = api.jobs["a"]["metadata"]["resourceVersion"]
    with api.changed:
        api.jobs = {"a": trainjob("a", "another", int(version), "Running")}
        api.restore(int(version))
        api.write("b")
        api.compact()
    handler.wait_for(GONE)
    uids = [(event.object["metadata"]["uid"], event.deleted) for event in handler.events]
    assert [deleted for _, deleted in uids] == [False, False, True]
    assert uids[1][0] == "another" and uids[2][0] == uids[0][0]
    evidence("faults", fault="cluster recreated: same names and versions, other UIDs", runs=1, result="reported gone")


# -- credentials ------------------------------------------------------------------------------------------------------


def test_a_watch_survives_a_token_that_is_replaced_in_its_file(api, tmp_path, evidence):
    token = tmp_path / "token"
    token.write_text("first")
    api.token = "first"
    with run_informer(api, server=api.url, token_file=str(token)) as informer:
        handler = start_waiting(api, informer)
        with api.changed:
            api.token = "second"
            api.interrupt_watches("reset")
        wait_until(lambda: api.request_counts["version"] >= 2)  # refused, for a moment
        token.write_text("second")
        assert finish_and_delete(api, handler) == [RUNNING, COMPLETE, GONE]
    evidence("faults", fault="token rotated in its file, late", runs=1, result=f"reported {handler.phases[-2][1]}")


def test_a_watch_survives_a_token_that_an_exec_plugin_replaces(api, tmp_path, evidence):
    """The kubeconfigs of cloud providers have exec plugins."""
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
        handler = start_waiting(api, informer)
        with api.changed:
            api.token = "second"
            token.write_text("second")
            api.interrupt_watches("reset")
        assert finish_and_delete(api, handler) == [RUNNING, COMPLETE, GONE]
    evidence(
        "faults", fault="token rotated by a kubeconfig's program", runs=1, result=f"reported {handler.phases[-2][1]}"
    )


@pytest.mark.parametrize("code", [401, 403, 404])
def test_a_refused_first_list_is_an_error_at_once(api, informer, code, evidence):
    """A retry would not help, so the handler gets the error with its reason."""
    api.respond_with("list", error_response(code), 10)
    handler = RecordingHandler()
    informer.add_event_handler("a", handler)
    handler.wait_for(lambda: handler.error)
    assert handler.error.status == code
    assert api.request_counts["list"] <= 2  # after a 401, the request is repeated with new credentials
    evidence("faults", fault=f"list: {code} from the start", runs=1, result=f"reported {handler.phases[-1][0]}")


@pytest.mark.parametrize("code", [401, 403, 404])
def test_a_list_that_is_refused_later_is_repeated_for_a_while(api, code, evidence):
    """The permission may be granted again in a moment; after the time limit, the handler gets the error."""
    with run_informer(api, IMPATIENT_TIMINGS) as informer:
        handler = start_waiting(api, informer)
        with api.changed:
            api.write("b")
            api.compact()
            api.respond_with("list", error_response(code), 1_000_000)
            api.respond_with("version", error_response(code), 1_000_000)
            api.interrupt_watches("reset")
        handler.wait_for(lambda: handler.error)
        assert handler.error.status == code
        assert (
            api.request_counts["list"] + api.request_counts["version"] > 2
        )  # the first list, and at least two that were refused
        again = RecordingHandler()
        api.responders.clear()
        informer.add_event_handler("a", again)
        again.wait_for(RUNNING)
    evidence("faults", fault=f"list: {code} from now on", runs=1, result=f"reported {handler.phases[-1][0]}")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"metadata": null}', b'{"metadata": {"resourceVersion": "1"}}'])
def test_an_invalid_list_is_requested_again_for_a_while(api, informer, body, evidence):
    """This is also true of the first list; after the time limit, the handlers get a typed error."""
    api.respond_with("list", foreign_response(body), 3)
    api.write("a")
    served, handler = RecordingHandler(), RecordingHandler()
    informer.add_event_handler("a", served)
    served.wait_for(RUNNING)
    api.respond_with("list", foreign_response(body), 1_000_000)
    with run_informer(api, IMPATIENT_TIMINGS) as other:
        other.add_event_handler("a", handler)
        handler.wait_for(lambda: handler.error)
    assert isinstance(handler.error, InvalidResponse)
    assert f"{api.url} returned 200 for the request to list trainjobs" in str(handler.error)
    evidence(
        "faults",
        fault=f"list: 200 with the body {body.decode() or '(empty)'}",
        runs=2,
        result="reported InvalidResponse",
    )


def test_the_time_limit_of_refusals_starts_again_after_a_success(api, informer, monkeypatch, evidence):
    """Each series of refusals is measured from its own beginning."""
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr("trainjob.client.informer.time", clock)
    handler = start_waiting(api, informer)
    for n in range(3):
        before = api.request_counts["version"]
        api.respond_with("version", error_response(403), 2)
        api.interrupt_watches("end")
        wait_until(lambda before=before: api.request_counts["version"] >= before + 3)
        passed[0] += 2 * FAST_TIMINGS.refusal_timeout
        api.write("a", f"Step{n}")
        handler.wait_for(("a", f"Step{n}"))
    assert handler.error is None
    evidence("faults", fault="list: 403 now and then", runs=3, result=f"reported {len(handler.phases) - 1} changes")


def test_without_the_permission_to_watch_one_list_serves_all_handlers(api, informer, evidence):
    """The informer lists repeatedly, once for all handlers."""
    api.respond_with("watch", error_response(403), 1_000_000)
    api.write("a")
    handlers, lists = [RecordingHandler() for _ in range(10)], []

    def count_lists(handler):
        def on_event(event):
            handler(event)
            if handler.phases[-1] == COMPLETE:
                lists.append(api.request_counts["list"])

        return on_event

    for handler in handlers:
        informer.add_event_handler("a", count_lists(handler))
        handler.wait_for(RUNNING)
    api.write("a", "Complete")
    for handler in handlers:
        assert handler.wait_for(COMPLETE) == [RUNNING, COMPLETE]
    wait_until(lambda: len(lists) == 10)
    assert len(set(lists)) == 1
    evidence("faults", fault="no permission to watch", runs=10, result=f"{len(set(lists))} list for 10 handlers")


# -- permanent faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "response"),
    [
        ("watch", error_response(410)),
        ("watch", foreign_response(b"")),
        ("watch", foreign_response()),
        ("list", error_response(500)),
        ("more", error_response(410)),
    ],
    ids=["always-410", "ends-at-once", "page", "always-500", "always-410-in-pages"],
)
def test_permanent_failures_lead_to_growing_pauses(api, verb, response, evidence):
    """Each pause is longer than the one before, for every kind of failure."""
    for n in range(150):
        api.write(f"j{n}")
    api.respond_with(verb, response, 1_000_000)
    with run_informer(api, replace(FAST_TIMINGS, stable_after=SECONDS)) as informer:
        informer.add_event_handler("a", RecordingHandler())
        wait_until(lambda: api.request_counts[verb] >= 12)
        # 0.02 s, then twice as long each time up to 0.1 s, less half at most for the jitter
        assert [informer._backoff.next() >= 0.05 for _ in range(3)] == [True] * 3
    evidence("faults", fault=f"{verb} returns {response[0]} permanently", runs=12, result="growing pauses")


def test_a_list_starts_again_if_a_page_has_expired(api, informer, evidence):
    """The server drops its history between two pages; the informer then reads the whole list again."""
    for n in range(250):
        api.write(f"j{n:03}")
    api.respond_with("more", error_response(410), 2)
    handler = RecordingHandler()
    informer.add_event_handler(None, handler)
    handler.wait_for(lambda: len({name for name, _ in handler.phases}) == 250)
    assert len(handler.phases) == 250  # each job is reported once
    assert api.request_counts["list"] == 3
    evidence("faults", fault="410 between two pages", runs=2, result=f"{len(handler.phases)} of 250 reported, once")


def test_a_list_without_end_is_an_error(api, informer, evidence):
    """The `continue` token of a page is the same again and again."""
    body = {"metadata": {"resourceVersion": "1", "continue": "again"}, "items": [OTHER]}
    api.responders = dict.fromkeys(("list", "more"), lambda: foreign_response(json.dumps(body).encode()))
    handler = RecordingHandler()
    informer.add_event_handler("a", handler)
    handler.wait_for(lambda: handler.error)
    assert "repeats the continue token" in str(handler.error)
    evidence("faults", fault="list whose pages never end", runs=1, result=f"reported {handler.phases[-1][0]}")


def test_a_line_without_end_is_not_kept_in_memory(api, evidence):
    """A proxy sends data without a newline; the informer ends that watch."""
    with run_informer(api, replace(FAST_TIMINGS, max_silence=10 * SECONDS)) as informer:
        handler = start_waiting(api, informer)
        watches = api.request_counts["watch"]
        api.interrupt_watches("send", b"x" * (20 * 2**20))
        wait_until(lambda: api.request_counts["watch"] > watches)
        assert finish_and_delete(api, handler) == [RUNNING, COMPLETE, GONE]
    evidence("faults", fault="line of 20 MB without a newline", runs=1, result=f"reported {handler.phases[-2][1]}")


def test_a_change_of_the_clock_has_no_effect(api, informer, monkeypatch, evidence):
    """Limits and pauses use a monotonic clock."""
    real = time.time
    handler = start_waiting(api, informer)
    for jump in (86_400, -86_400):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        api.interrupt_watches("reset")
        api.write("a", f"Since{jump}")
        handler.wait_for(("a", f"Since{jump}"))
    assert len(handler.phases) == 3
    evidence(
        "faults",
        fault="clock jumps by a day, forward and back",
        runs=2,
        result=f"reported {len(handler.phases) - 1} changes",
    )


def test_hundreds_of_short_waits_share_one_thread(api, informer, evidence):
    """Waiters on several threads add and close handlers while streams break; each handler gets its event."""
    api.write("a")
    failures, others = [], set(threading.enumerate())

    def wait_shortly(n):
        for _ in range(40):
            handler = RecordingHandler()
            with informer.add_event_handler("a", handler, handler.on_missing):
                try:
                    handler.wait_for(lambda handler=handler: handler.phases, 60)
                except AssertionError as error:
                    failures.append(error)
                if n == 0:
                    api.interrupt_watches("reset")
            received = len(handler.phases)
            api.write("a")
            if len(handler.phases) != received:
                failures.append("called after it was closed")

    threads = [threading.Thread(target=wait_shortly, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    # The handler keeps the active watch thread alive; the other watch threads end by themselves.
    with informer.add_event_handler("a", RecordingHandler()):
        wait_until(lambda: [thread.name[:6] for thread in set(threading.enumerate()) - others].count("watch-") == 1)
    evidence("faults", fault="short waits from 6 threads, streams reset", runs=240, result=f"{len(failures)} failed")
