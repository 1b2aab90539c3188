"""Watches: what is sent, in which order, from which version, and how they end."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from apiserver_door import Door, pod, serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from trainjob.local.apiserver import Registry
from trainjob.local.apiserver.resources import BY_PLURAL

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def door() -> Iterator[Door]:
    with serving(Registry(history=50)) as opened:
        yield opened


def make(door: Door, name: str, **metadata: Any) -> dict[str, Any]:
    return door.registry.create("configmaps", {"metadata": {"name": name, **metadata}}, "default")


def brief(events: list[Any]) -> list[str]:
    return [f"{event['type']} {event['object']['metadata'].get('name', '')}".strip() for event in events]


def test_the_client_watches_from_a_list(door: Door) -> None:
    api = client.CoreV1Api(door.client())
    make(door, "before")
    listed = api.list_namespaced_config_map("default")

    def write() -> None:
        make(door, "a")
        door.registry.patch("configmaps", "a", {"data": {"x": "y"}}, "default")
        door.registry.delete("configmaps", "a", "default")
        door.registry.create("configmaps", {"metadata": {"name": "else"}}, "kube-system")
        make(door, "last")

    stream = watch.Watch().stream(
        api.list_namespaced_config_map, "default", resource_version=listed.metadata.resource_version, timeout_seconds=20
    )
    threading.Timer(0.1, write).start()
    events = []
    for event in stream:
        events.append((event["type"], event["object"].metadata.name))
        if event["object"].metadata.name == "last":
            break
    assert events == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "last")]


def test_without_a_version_it_starts_with_what_there_is(door: Door) -> None:
    make(door, "a")
    make(door, "b")
    for query in ("watch=1", "watch=true&resourceVersion=0"):
        assert brief(door.watch(f"{CONFIGMAPS}?{query}", 2)) == ["ADDED a", "ADDED b"]


def test_a_deleted_object_shows_the_version_of_its_deletion(door: Door) -> None:
    created = make(door, "a")
    door.registry.delete("configmaps", "a", "default")
    version = created["metadata"]["resourceVersion"]
    (event,) = door.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={version}", 1)
    assert event["type"] == "DELETED"
    assert int(event["object"]["metadata"]["resourceVersion"]) == int(version) + 1


def test_selectors_turn_changes_into_coming_and_going(door: Door) -> None:
    start = door.registry.store.version
    make(door, "a", labels={"color": "blue"})
    for count, color in enumerate(("red", "red", "blue", "red")):
        door.registry.patch("configmaps", "a", {"metadata": {"labels": {"color": color}}}, "default")
        door.registry.patch("configmaps", "a", {"data": {"count": str(count)}}, "default")
    door.registry.delete("configmaps", "a", "default")
    events = door.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={start}&labelSelector=color%3Dred", 7)
    types = [event["type"] for event in events]
    assert types == ["ADDED", "MODIFIED", "MODIFIED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    left = events[types.index("DELETED")]["object"]
    assert left["metadata"]["labels"] == {"color": "red"}  # as it was last selected
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)


def test_field_selectors_too(door: Door) -> None:
    start = door.registry.store.version
    door.registry.create("pods", pod("p"), "default")
    door.registry.create("pods", pod("q"), "default")
    door.registry.patch("pods", "p", {"status": {"phase": "Running"}}, "default", subresource="status")
    door.registry.patch("pods", "p", {"status": {"phase": "Failed"}}, "default", subresource="status")
    base = f"/api/v1/pods?watch=1&resourceVersion={start}&fieldSelector="
    assert brief(door.watch(base + "status.phase%3DRunning", 2)) == ["ADDED p", "DELETED p"]
    assert brief(door.watch(base + "metadata.name%3Dq", 1)) == ["ADDED q"]


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ("resourceVersion=abc", 500, 'resourceVersion: Invalid value: "abc": strconv.ParseUint'),
        ("sendInitialEvents=true", 422, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (
            "resourceVersionMatch=NotOlderThan",
            422,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents",
        ),
        ("labelSelector=a%20in%20(", 400, "unable to parse requirement"),
    ],
)
def test_what_is_refused(door: Door, query: str, code: int, text: str) -> None:
    answer = door.ask("GET", f"{CONFIGMAPS}?watch=1&{query}")
    assert answer.code == code
    assert text in answer.message


def test_a_version_that_is_too_old_is_told_in_the_stream(door: Door) -> None:
    (event,) = door.watch(f"{CONFIGMAPS}?watch=1&resourceVersion=1")
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")
    api = client.CoreV1Api(door.client())
    with pytest.raises(ApiException) as raised:
        list(watch.Watch().stream(api.list_namespaced_config_map, "default", resource_version="1", timeout_seconds=5))
    assert raised.value.status == 410


def test_history_is_bounded(door: Door) -> None:
    start = door.registry.store.version
    for number in range(51):
        make(door, f"c{number}")
    assert door.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={start}")[0]["type"] == "ERROR"
    assert brief(door.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={start + 1}", 1)) == ["ADDED c1"]
    assert door.watch(f"/api/v1/secrets?watch=1&resourceVersion={start}&timeoutSeconds=1") == []  # others are untouched


def test_a_version_from_the_future_waits(door: Door) -> None:
    path = f"{CONFIGMAPS}?watch=1&resourceVersion={door.registry.store.version + 1}"
    with door.open("GET", path) as response:
        make(door, "skipped")
        make(door, "seen")
        assert json.loads(response.readline())["object"]["metadata"]["name"] == "seen"


def test_initial_events_and_their_end(door: Door) -> None:
    make(door, "a")
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with door.open("GET", f"{CONFIGMAPS}?{query}") as response:
        first, end = json.loads(response.readline()), json.loads(response.readline())
        assert first["type"] == "ADDED"
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert end["object"]["metadata"]["resourceVersion"] == str(door.registry.store.version)
        make(door, "b")
        assert json.loads(response.readline())["object"]["metadata"]["name"] == "b"


def test_no_initial_events(door: Door) -> None:
    make(door, "a")
    query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    with door.open("GET", f"{CONFIGMAPS}?{query}") as response:
        make(door, "b")
        assert json.loads(response.readline())["object"]["metadata"]["name"] == "b"


def test_a_watch_ends_when_its_time_is_over(door: Door) -> None:
    version = door.registry.store.version
    assert door.watch(f"{CONFIGMAPS}?watch=1&timeoutSeconds=1&resourceVersion={version}") == []


def test_a_bookmark_comes_two_seconds_before_the_end(door: Door) -> None:
    path = (
        f"{CONFIGMAPS}?watch=1&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion={door.registry.store.version}"
    )
    with door.open("GET", path) as response:
        door.registry.create("secrets", {"metadata": {"name": "s"}}, "default")
        bookmark = json.loads(response.readline())
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"] == {"resourceVersion": str(door.registry.store.version)}


def test_no_bookmark_that_tells_nothing_new(door: Door) -> None:
    path = (
        f"{CONFIGMAPS}?watch=1&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion={door.registry.store.version}"
    )
    assert door.watch(path) == []


def test_events_are_watched_in_both_shapes(door: Door) -> None:
    start = door.registry.store.version
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "p"}, "message": "hello"}
    door.registry.create("events", event, "default")
    query = f"?watch=1&resourceVersion={start}"
    (old,) = door.watch(f"/api/v1/namespaces/default/events{query}", 1)
    (new,) = door.watch(f"/apis/events.k8s.io/v1/namespaces/default/events{query}", 1)
    assert (old["object"]["message"], old["object"]["apiVersion"]) == ("hello", "v1")
    assert (new["object"]["note"], new["object"]["apiVersion"]) == ("hello", "events.k8s.io/v1")


def test_dropped_streams_break_off(door: Door) -> None:
    with door.open("GET", f"{CONFIGMAPS}?watch=1") as response:
        door.server.faults.drop_watches()
        with pytest.raises(http.client.IncompleteRead):
            response.read()


def test_stopping_the_server_ends_streams_properly() -> None:
    with serving() as door, door.open("GET", f"{CONFIGMAPS}?watch=1") as response:
        door.server.stop()
        assert response.read() == b""


def test_many_watches_see_the_same(door: Door) -> None:
    start = door.registry.store.version

    def read(_number: int) -> list[str]:
        return brief(door.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={start}", 20))

    with ThreadPoolExecutor(30) as pool:
        reading = [pool.submit(read, number) for number in range(30)]
        for number in range(20):
            door.ask("POST", CONFIGMAPS, {"metadata": {"name": f"c{number:02}"}})
        seen = {tuple(result.result(timeout=20)) for result in reading}
    assert seen == {tuple(f"ADDED c{number:02}" for number in range(20))}


ACTIONS = st.lists(
    st.tuples(st.sampled_from("cpd"), st.sampled_from("abc"), st.sampled_from(["red", "blue"])), min_size=1, max_size=12
)


def act(registry: Registry, action: str, name: str, color: str) -> None:
    """Does one write; one that can't be done is left out."""
    known = {item["metadata"]["name"] for item in registry.list("configmaps", "default")}
    if action == "c" and name not in known:
        registry.create("configmaps", {"metadata": {"name": name, "labels": {"color": color}}}, "default")
    elif action == "p" and name in known:
        registry.patch("configmaps", name, {"metadata": {"labels": {"color": color}}}, "default")
    elif action == "d" and name in known:
        registry.delete("configmaps", name, "default")


def replayed(state: dict[str, Any], events: list[Any]) -> dict[str, Any]:
    """Applies events to a listed state, as an informer does; each must fit."""
    state = dict(state)
    for event in events:
        name = event["object"]["metadata"]["name"]
        assert (event["type"] == "ADDED") == (name not in state)
        if event["type"] == "DELETED":
            del state[name]
        else:
            state[name] = event["object"]
    return state


@pytest.fixture(scope="module")
def shared() -> Iterator[Door]:
    with serving(Registry(history=5000)) as opened:
        yield opened


def listed(door: Door, selector: str) -> tuple[str, dict[str, Any]]:
    """Lists with kind and apiVersion put back in, as watches send them."""
    found = door.ask("GET", f"{CONFIGMAPS}?{selector}").json
    items = {item["metadata"]["name"]: {"kind": "ConfigMap", "apiVersion": "v1", **item} for item in found["items"]}
    return found["metadata"]["resourceVersion"], items


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(ACTIONS, st.sampled_from(["", "&labelSelector=color%3Dred", "&fieldSelector=metadata.name%21%3Db"]))
def test_replaying_from_any_version_gives_the_listed_state(
    shared: Door, actions: list[tuple[str, str, str]], selector: str
) -> None:
    points = [listed(shared, selector)]
    for action in actions:
        act(shared.registry, *action)
        points.append(listed(shared, selector))
    marker = make(shared, f"marker-{uuid.uuid4()}", labels={"color": "red"})["metadata"]["name"]
    _, final = listed(shared, selector)
    for version, state in points:
        events: list[Any] = []
        with shared.open("GET", f"{CONFIGMAPS}?watch=1&resourceVersion={version}{selector}") as response:
            while not events or events[-1]["object"]["metadata"]["name"] != marker:
                events.append(json.loads(response.readline()))
        assert replayed(state, events) == final


@settings(max_examples=25)
@given(ACTIONS, ACTIONS)
def test_every_version_of_the_past_can_be_listed(
    early: list[tuple[str, str, str]], late: list[tuple[str, str, str]]
) -> None:
    with contextlib.closing(Registry()) as registry:
        for action in early:
            act(registry, *action)
        version, then = registry.store.version, registry.list("configmaps", "default")
        for action in late:
            act(registry, *action)
        assert [stored.copy() for stored in registry.store.at(BY_PLURAL["configmaps"], version, "default")] == then
