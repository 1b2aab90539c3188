"""The states of a TrainJob over time, as a watch reports them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.support.kubernetes_client import Client, Object, path_of
from tests.support.trainjobs import counters, is_finished


def watch_states(
    client: Client, trainjob: Object, condition: Callable[[Object], Any] = is_finished, *, seconds: float = 100
) -> list[Object]:
    """Return the states of a TrainJob after `trainjob`, until the condition holds.

    Args:
        client: a client that may watch TrainJobs.
        trainjob: the TrainJob as the API server returned it.
        condition: a predicate; by default the job has to finish.
        seconds: how long to wait.
    """
    meta, states = trainjob["metadata"], [trainjob]
    query = {"resourceVersion": meta["resourceVersion"], "fieldSelector": f"metadata.name={meta['name']}"}
    for event in client.watch_events(path_of("TrainJob", meta["namespace"]), seconds=seconds, **query):
        assert event["type"] == "MODIFIED", event
        states.append(event["object"])
        if condition(states[-1]):
            return states
    raise AssertionError(f"not within {seconds} s; last state: {states[-1].get('status')}")


def counter_states(states: Iterable[Object]) -> list[dict[str, dict[str, int]]]:
    """Return the counters of these states without repetitions.

    The result starts with the first state that has any counters.
    """
    result: list[dict[str, dict[str, int]]] = []
    for found in map(counters, states):
        if found and (not result or result[-1] != found):
            result.append(found)
    return result


def job_counter_states(states: Iterable[Object], name: str = "node") -> list[dict[str, int]]:
    """Return the counters of one replicated job without repetitions."""
    result: list[dict[str, int]] = []
    for found in counter_states(states):
        if not result or result[-1] != found[name]:
            result.append(found[name])
    return result


def is_subsequence(seen: list[dict[str, int]], expected: Iterable[dict[str, int]]) -> bool:
    """Return whether these counters occur in the expected order.

    A watch can miss states that last only a moment.
    """
    rest = iter(expected)
    return all(any(one == state for state in rest) for one in seen)
