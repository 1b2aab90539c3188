"""What happened to a TrainJob, state by state, as a watch tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.support.kubernetes_client import Client, Object, path_of
from tests.support.trainjobs import counters, finished


def history(
    client: Client, since: Object, until: Callable[[Object], Any] = finished, *, seconds: float = 100
) -> list[Object]:
    """Every state of a TrainJob after `since`, an answer of the API server, up to the first that `until` accepts."""
    meta, states = since["metadata"], [since]
    query = {"resourceVersion": meta["resourceVersion"], "fieldSelector": f"metadata.name={meta['name']}"}
    for event in client.stream(path_of("TrainJob", meta["namespace"]), seconds=seconds, **query):
        assert event["type"] == "MODIFIED", event
        states.append(event["object"])
        if until(states[-1]):
            return states
    raise AssertionError(f"not within {seconds} s; last seen: {states[-1].get('status')}")


def lives(states: Iterable[Object]) -> list[dict[str, dict[str, int]]]:
    """The counters of these states, without repetitions and without the time before the first."""
    result: list[dict[str, dict[str, int]]] = []
    for found in map(counters, states):
        if found and (not result or result[-1] != found):
            result.append(found)
    return result


def steps_of(states: Iterable[Object], name: str = "node") -> list[dict[str, int]]:
    """The counters of one step, without repetitions."""
    result: list[dict[str, int]] = []
    for found in lives(states):
        if not result or result[-1] != found[name]:
            result.append(found[name])
    return result


def in_order(seen: list[dict[str, int]], possible: Iterable[dict[str, int]]) -> bool:
    """Whether what was seen is in this order; a watch may miss states that last a moment."""
    rest = iter(possible)
    return all(any(one == state for state in rest) for one in seen)
