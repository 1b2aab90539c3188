"""Tests of watches: their events and order, the version from which they start, and their end."""

from __future__ import annotations

import contextlib
import http.client
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.local.served_registry import ServedRegistry, serve_registry
from trainjob_local.apiserver import Registry
from trainjob_local.apiserver.resources import BY_PLURAL

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def served() -> Iterator[ServedRegistry]:
    with serve_registry(Registry(history=50)) as opened:
        yield opened


def create_config_map(served: ServedRegistry, name: str, **metadata: Any) -> dict[str, Any]:
    return served.registry.create("configmaps", {"metadata": {"name": name, **metadata}}, "default")


def format_events(events: list[Any]) -> list[str]:
    return [f"{event['type']} {event['object']['metadata'].get('name', '')}".strip() for event in events]


def test_history_is_bounded(served: ServedRegistry) -> None:
    start = served.registry.store.version
    for number in range(51):
        create_config_map(served, f"c{number}")
    assert served.watch_events(f"{CONFIGMAPS}?watch=1&resourceVersion={start}")[0]["type"] == "ERROR"
    assert format_events(served.watch_events(f"{CONFIGMAPS}?watch=1&resourceVersion={start + 1}", 1)) == ["ADDED c1"]
    assert (
        served.watch_events(f"/api/v1/secrets?watch=1&resourceVersion={start}&timeoutSeconds=1") == []
    )  # others are untouched


def test_events_are_watched_in_both_shapes(served: ServedRegistry) -> None:
    start = served.registry.store.version
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "p"}, "message": "hello"}
    served.registry.create("events", event, "default")
    query = f"?watch=1&resourceVersion={start}"
    (old,) = served.watch_events(f"/api/v1/namespaces/default/events{query}", 1)
    (new,) = served.watch_events(f"/apis/events.k8s.io/v1/namespaces/default/events{query}", 1)
    assert (old["object"]["message"], old["object"]["apiVersion"]) == ("hello", "v1")
    assert (new["object"]["note"], new["object"]["apiVersion"]) == ("hello", "events.k8s.io/v1")


def test_a_bookmark_has_the_version_of_changes_that_are_not_selected(served: ServedRegistry) -> None:
    start = served.registry.store.version
    create_config_map(served, "shown")
    create_config_map(served, "hidden")
    last = served.registry.store.version
    query = f"watch=1&resourceVersion={start}&timeoutSeconds=3&allowWatchBookmarks=true"
    shown, bookmark = served.watch_events(f"{CONFIGMAPS}?{query}&fieldSelector=metadata.name%3Dshown")
    assert format_events([shown]) == ["ADDED shown"]
    assert (bookmark["type"], bookmark["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", str(last))
    assert format_events(served.watch_events(f"{CONFIGMAPS}?{query}&fieldSelector=metadata.name%3Dhidden")) == [
        "ADDED hidden"
    ]


def test_dropped_streams_break_off(served: ServedRegistry) -> None:
    with served.open_request("GET", f"{CONFIGMAPS}?watch=1") as response:
        served.server.faults.drop_watches()
        with pytest.raises(http.client.IncompleteRead):
            response.read()


def test_stopping_the_server_ends_streams_properly() -> None:
    with serve_registry() as served, served.open_request("GET", f"{CONFIGMAPS}?watch=1") as response:
        served.server.stop()
        assert response.read() == b""


ACTIONS = st.lists(
    st.tuples(st.sampled_from("cpd"), st.sampled_from("abc"), st.sampled_from(["red", "blue"])), min_size=1, max_size=12
)


def execute_write(registry: Registry, action: str, name: str, color: str) -> None:
    """Execute one write; skip a write that is not possible."""
    known = {item["metadata"]["name"] for item in registry.list("configmaps", "default")}
    if action == "c" and name not in known:
        registry.create("configmaps", {"metadata": {"name": name, "labels": {"color": color}}}, "default")
    elif action == "p" and name in known:
        registry.patch("configmaps", name, {"metadata": {"labels": {"color": color}}}, "default")
    elif action == "d" and name in known:
        registry.delete("configmaps", name, "default")


def replay(state: dict[str, Any], events: list[Any]) -> dict[str, Any]:
    """Apply events to a listed state, as an informer does; fail if an event does not fit."""
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
def shared_server() -> Iterator[ServedRegistry]:
    with serve_registry(Registry(history=5000)) as opened:
        yield opened


def list_items(served: ServedRegistry, selector: str) -> tuple[str, dict[str, Any]]:
    """Return a list's resourceVersion and its items by name.

    The items have kind and apiVersion, as in watches.
    """
    found = served.request("GET", f"{CONFIGMAPS}?{selector}").json
    items = {item["metadata"]["name"]: {"kind": "ConfigMap", "apiVersion": "v1", **item} for item in found["items"]}
    return found["metadata"]["resourceVersion"], items


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(ACTIONS, st.sampled_from(["", "&labelSelector=color%3Dred", "&fieldSelector=metadata.name%21%3Db"]))
def test_replaying_from_any_version_gives_the_listed_state(
    shared_server: ServedRegistry, actions: list[tuple[str, str, str]], selector: str
) -> None:
    points = [list_items(shared_server, selector)]
    for action in actions:
        execute_write(shared_server.registry, *action)
        points.append(list_items(shared_server, selector))
    marker = create_config_map(shared_server, f"marker-{uuid.uuid4()}", labels={"color": "red"})["metadata"]["name"]
    _, final = list_items(shared_server, selector)
    for version, state in points:
        events: list[Any] = []
        with shared_server.open_request("GET", f"{CONFIGMAPS}?watch=1&resourceVersion={version}{selector}") as response:
            while not events or events[-1]["object"]["metadata"]["name"] != marker:
                events.append(json.loads(response.readline()))
        assert replay(state, events) == final


@settings(max_examples=25)
@given(ACTIONS, ACTIONS)
def test_every_earlier_version_can_be_listed(
    early: list[tuple[str, str, str]], late: list[tuple[str, str, str]]
) -> None:
    with contextlib.closing(Registry()) as registry:
        for action in early:
            execute_write(registry, *action)
        version, then = registry.store.version, registry.list("configmaps", "default")
        for action in late:
            execute_write(registry, *action)
        assert [
            stored.copy() for stored in registry.store.list_objects_at(BY_PLURAL["configmaps"], version, "default")
        ] == then
