"""Watches: their events and order, start versions, and ends."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import pytest

from tests.conformance.idle_objects import KINDS, create_objects, error_of, idle_object, names_of, resource_version_of
from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until

INITIAL = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}
FUTURE_VERSION = 10**9


def types_and_names(events):
    return [(event["type"], event["object"]["metadata"].get("name")) for event in events]


def list_names(client, kind, namespace, **query):
    """Return the list's resourceVersion and its objects' names."""
    response = client.request("GET", path_of(kind, namespace), **query)
    return resource_version_of(response.body), names_of(response.body["items"])


def take_events(client, kind, namespace, count, **query):
    """Return that many events; fail if there are fewer."""
    found = list(islice(client.watch_events(path_of(kind, namespace), **query), count))
    assert len(found) == count, found
    return found


def set_labels(client, kind, namespace, name, **labels):
    return client.patch(kind, namespace, name, {"metadata": {"labels": labels}})


@pytest.mark.parametrize("kind", KINDS)
def test_watch_from_the_version_of_a_list(client, namespace, kind):
    """A watch from a list's resourceVersion has every later change once and in order."""
    create_objects(client, namespace, kind, "a")
    start, existing = list_names(client, kind, namespace)
    assert existing == ["a"]
    set_labels(client, kind, namespace, "a", color="red")
    create_objects(client, namespace, kind, "b")
    client.delete(kind, namespace, "a")
    set_labels(client, kind, namespace, "b", color="red")
    events = take_events(client, kind, namespace, 4, resourceVersion=start)
    assert types_and_names(events) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("MODIFIED", "b")]
    versions = [int(resource_version_of(event["object"])) for event in events]
    assert versions == sorted(set(versions)) and versions[0] > int(start)
    assert {event["object"]["kind"] for event in events} == {kind}


def test_concurrent_writes(client, namespace):
    """An object written during a list is either in the list or in the watch from its version, never in both."""
    expected = {f"{writer}-{number}" for writer in range(4) for number in range(6)}

    def write(writer):
        return [create_objects(client, namespace, "Secret", [f"{writer}-{number}"]) for number in range(6)]

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, writer) for writer in range(4)]
        start, existing = list_names(client, "Secret", namespace)
        seen = list(existing)
        for event in client.watch_events(path_of("Secret", namespace), resourceVersion=start):
            assert event["type"] == "ADDED"
            seen.append(event["object"]["metadata"]["name"])
            if set(seen) == expected:
                break
        assert [future.result() for future in writing]
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_watch_without_a_version(client, namespace, kind):
    """Without a resourceVersion, or from resourceVersion 0, a watch starts with all existing objects as ADDED."""
    create_objects(client, namespace, kind, "ab")
    for query in ({}, {"resourceVersion": "0"}, INITIAL):
        assert sorted(types_and_names(take_events(client, kind, namespace, 2, **query))) == [
            ("ADDED", "a"),
            ("ADDED", "b"),
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_deletion_events(client, namespace, kind):
    """DELETED has the last state of the object, with the resourceVersion of the deletion."""
    create_objects(client, namespace, kind, "a")
    last = set_labels(client, kind, namespace, "a", color="red")
    client.delete(kind, namespace, "a")
    ((only),) = take_events(client, kind, namespace, 1, resourceVersion=resource_version_of(last))
    assert only["type"] == "DELETED"
    assert int(resource_version_of(only["object"])) > int(resource_version_of(last))
    only["object"]["metadata"]["resourceVersion"] = resource_version_of(last)
    assert only["object"] == last


@pytest.mark.parametrize("kind", KINDS)
def test_label_selector(client, namespace, kind):
    """With a label selector, an object that starts to match is ADDED. One that stops is DELETED, in its last state."""
    (first,) = create_objects(client, namespace, kind, "a", labels={"color": "blue"})
    for color, size in (("red", "1"), ("red", "2"), ("blue", "3"), ("blue", "4"), ("red", "5")):
        set_labels(client, kind, namespace, "a", color=color, size=size)
    client.delete(kind, namespace, "a")
    events = take_events(
        client, kind, namespace, 5, resourceVersion=resource_version_of(first), labelSelector="color in (red,green)"
    )
    labels = [event["object"]["metadata"]["labels"] for event in events]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    assert [label["size"] for label in labels] == ["1", "2", "2", "5", "5"]
    assert {label["color"] for label in labels} == {"red"}
    versions = [int(resource_version_of(event["object"])) for event in events]
    assert versions == sorted(set(versions))


def test_field_selectors(client, namespace):
    """A watch can select objects by name, and pods by phase."""
    start, _ = list_names(client, "Pod", namespace)
    containers = [{"name": "c", "image": "none"}]
    for name in "ab":
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        client.create({**body, "spec": {"containers": containers, "schedulerName": "nobody"}}, namespace)
    for phase in ("Running", "Failed"):
        client.patch("Pod", namespace, "a", {"status": {"phase": phase}}, "status")
    running = {"resourceVersion": start, "fieldSelector": "status.phase=Running"}
    assert types_and_names(take_events(client, "Pod", namespace, 2, **running)) == [("ADDED", "a"), ("DELETED", "a")]
    one = {"resourceVersion": start, "fieldSelector": "metadata.name=b"}
    assert types_and_names(take_events(client, "Pod", namespace, 1, **one)) == [("ADDED", "b")]


def test_namespaces(client, namespace):
    """A watch has only events of its namespace. A watch of all namespaces has all, one of a missing namespace none."""
    (first,) = create_objects(client, namespace, "TrainingRuntime", "a")
    path, since = (
        path_of("TrainingRuntime"),
        {"resourceVersion": resource_version_of(first), "labelSelector": f"test={namespace}"},
    )
    for other in ("default", namespace):
        client.create(idle_object("TrainingRuntime", namespace, labels={"test": namespace}), other)
    client.delete("TrainingRuntime", "default", namespace)
    events = list(islice(client.watch_events(path, **since), 3))
    assert [(event["type"], event["object"]["metadata"]["namespace"]) for event in events] == [
        ("ADDED", "default"), ("ADDED", namespace), ("DELETED", "default")
    ]  # fmt: skip
    assert types_and_names(take_events(client, "TrainingRuntime", namespace, 1, **since)) == [("ADDED", namespace)]
    assert list(client.watch_events(path_of("TrainingRuntime", f"no-{namespace}"), seconds=1)) == []


def test_concurrent_watches(client, namespace):
    """All watchers of the same objects get the same events in the same order."""
    start, _ = list_names(client, "Secret", namespace)

    def read_events(_number):
        return [
            (event["type"], resource_version_of(event["object"]))
            for event in take_events(client, "Secret", namespace, 20, **since)
        ]

    since = {"resourceVersion": start}
    with ThreadPoolExecutor(5) as pool:
        watching = [pool.submit(read_events, number) for number in range(4)]
        for name in map(str, range(10)):
            create_objects(client, namespace, "Secret", [name])
            client.delete("Secret", namespace, name)
        seen = {tuple(future.result()) for future in watching}
    assert len(seen) == 1
    assert [kind for kind, _ in seen.pop()] == ["ADDED", "DELETED"] * 10


@pytest.mark.parametrize("kind", KINDS)
def test_bookmark_before_the_end(client, namespace, kind):
    """With allowWatchBookmarks, a BOOKMARK has the resourceVersion of changes that the selector excludes."""
    start, _ = list_names(client, kind, namespace)
    path, query = path_of(kind, namespace), {"resourceVersion": start, "seconds": 8}
    create_objects(client, namespace, kind, ["shown"])
    (hidden,) = create_objects(client, namespace, kind, ["hidden"])

    def find_bookmark():
        """Return a watch's bookmark; None if the server had no time to send it."""
        selected = client.watch_events(path, fieldSelector="metadata.name=shown", allowWatchBookmarks=True, **query)
        shown, *others = list(selected)
        assert types_and_names([shown]) == [("ADDED", "shown")]
        assert {event["type"] for event in others} <= {"BOOKMARK"}
        return others[0] if others else None

    with ThreadPoolExecutor(1) as pool:
        plain = pool.submit(lambda: list(client.watch_events(path, **query)))
        bookmark = wait_until(find_bookmark)
        assert types_and_names(plain.result()) == [("ADDED", "shown"), ("ADDED", "hidden")]
    meta, at = bookmark["object"]["metadata"], resource_version_of(bookmark["object"])
    assert int(at) >= int(resource_version_of(hidden))
    assert bookmark["object"]["kind"] == kind
    assert {key: value for key, value in meta.items() if value} == {"resourceVersion": at}


def test_no_bookmark_without_changes(client, namespace):
    """A BOOKMARK is not sent if nothing has changed since the last event."""
    (last,) = create_objects(client, namespace, "TrainingRuntime", "a")
    query = {
        "allowWatchBookmarks": True,
        "fieldSelector": "metadata.name=other",
        "resourceVersion": resource_version_of(last),
    }
    events = list(client.watch_events(path_of("TrainingRuntime", namespace), seconds=3, **query))
    assert [event for event in events if resource_version_of(event["object"]) == resource_version_of(last)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_end_of_initial_events(client, namespace, kind):
    """With sendInitialEvents, an annotated BOOKMARK separates the existing objects from later changes."""
    (existing,) = create_objects(client, namespace, kind, "a")
    events = client.watch_events(path_of(kind, namespace), allowWatchBookmarks=True, **INITIAL)
    assert types_and_names([next(events)]) == [("ADDED", "a")]
    mark = next(events)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(resource_version_of(mark["object"])) >= int(resource_version_of(existing))
    create_objects(client, namespace, kind, "b")
    assert types_and_names([next(events)]) == [("ADDED", "b")]
    events.close()


def test_no_initial_events(client, namespace):
    """With sendInitialEvents=false and no resourceVersion, a watch starts with the next change."""
    create_objects(client, namespace, "TrainingRuntime", "a")
    events = client.watch_events(path_of("TrainingRuntime", namespace), **{**INITIAL, "sendInitialEvents": False})
    with ThreadPoolExecutor(1) as pool:
        first, names = pool.submit(next, events), map("next-{}".format, count())
        while not first.done():  # the watch starts at some time in this loop, and ends after a minute
            create_objects(client, namespace, "TrainingRuntime", [next(names)])
        kind, name = types_and_names([first.result()])[0]
    events.close()
    assert kind == "ADDED" and name.startswith("next-")


def test_compacted_version(client, namespace):
    """A watch from a resourceVersion that is too old gets an ERROR event with code 410, and ends."""
    (event,) = client.watch_events(path_of("TrainJob", namespace), resourceVersion="1")
    status = event["object"]
    assert (event["type"], status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")
    assert re.fullmatch(r"too old resource version: 1 \(\d+\)", status["message"])


def test_future_version(client, namespace):
    """A watch from a future resourceVersion waits without events. With sendInitialEvents it ends with 504."""
    path, future = path_of("TrainingRuntime", namespace), {"resourceVersion": str(FUTURE_VERSION)}
    with ThreadPoolExecutor(1) as pool:
        initial = pool.submit(lambda: list(client.watch_events(path, **future, **INITIAL)))
        events = client.watch_events(path, seconds=1, **future)
        create_objects(client, namespace, "TrainingRuntime", "a")
        assert list(events) == []
        (event,) = initial.result()
    status = event["object"]
    assert (event["type"], status["code"], status["reason"]) == ("ERROR", 504, "Timeout")
    assert re.fullmatch(rf"Timeout: Too large resource version: {FUTURE_VERSION}, current: \d+", status["message"])


def test_timeout(client, namespace):
    """A watch ends after timeoutSeconds."""
    started = time.monotonic()
    assert list(client.watch_events(path_of("Secret", namespace), seconds=1)) == []
    assert time.monotonic() - started > 0.9


INVALID_OPTIONS = 'ListOptions.meta.k8s.io "" is invalid: '
MATCH = "resourceVersionMatch: Forbidden: "
MATCH_FORBIDDEN = f"{MATCH}resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
MATCH_REQUIRED = f"{MATCH}sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
EXACT = 'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"'
NUMBER = 'resourceVersion: Invalid value: "{0}": strconv.ParseUint: parsing "{0}": '
REFUSALS = [
    ({"resourceVersion": "abc"}, 500, "", f"{NUMBER.format('abc')}invalid syntax"),
    ({"resourceVersion": "-1"}, 500, "", f"{NUMBER.format('-1')}invalid syntax"),
    ({"resourceVersion": str(2**64)}, 500, "", f"{NUMBER.format(2**64)}value out of range"),
    ({"sendInitialEvents": True}, 422, "Invalid", f"{INVALID_OPTIONS}{MATCH_REQUIRED}"),
    ({"sendInitialEvents": False}, 422, "Invalid", f"{INVALID_OPTIONS}{MATCH_REQUIRED}"),
    ({**INITIAL, "resourceVersionMatch": "Exact"}, 422, "Invalid", f"{INVALID_OPTIONS}[{MATCH_REQUIRED}, {EXACT}]"),
    ({"resourceVersionMatch": "NotOlderThan"}, 422, "Invalid", f"{INVALID_OPTIONS}{MATCH_FORBIDDEN}"),
    (
        {"resourceVersionMatch": "Exact", "resourceVersion": "5"},
        422,
        "Invalid",
        f"{INVALID_OPTIONS}[{MATCH_FORBIDDEN}, {EXACT}]",
    ),
    (
        {"continue": "abc"},
        422,
        "Invalid",
        f"{INVALID_OPTIONS}{MATCH}resourceVersionMatch is forbidden when continue is provided",
    ),
    ({"timeoutSeconds": "x"}, 400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax'),
    ({"fieldSelector": "spec.suspend=true"}, 400, "BadRequest", "field label not supported: spec.suspend"),
]


def test_invalid_options(client, namespace):
    """Invalid watch options are rejected before the watch starts."""
    path = path_of("TrainJob", namespace)
    options = [{"watch": True, "timeoutSeconds": 1, **row[0]} for row in REFUSALS]
    assert [error_of(client.request("GET", path, **each)) for each in options] == [tuple(row[1:]) for row in REFUSALS]
    assert client.request("GET", path, watch=True, labelSelector="a in (").code == 400
