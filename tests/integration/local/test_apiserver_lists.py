"""Lists: selectors, pages, versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.local.served_registry import ServedRegistry, pod, serve_registry
from trainjob_local.apiserver import Registry

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def served() -> Iterator[ServedRegistry]:
    with serve_registry() as opened:
        opened.registry.create("namespaces", {"metadata": {"name": "other"}})
        for name, color in (("a", "red"), ("b", "blue"), ("c", None)):
            labels = {"color": color} if color else {}
            opened.registry.create("pods", pod(name, labels=labels), "default")
        opened.registry.create("pods", pod("d"), "other")
        opened.registry.bind("b", "node-1", "default")
        yield opened


def test_a_list_continues_from_the_current_version_if_its_version_has_expired() -> None:
    with serve_registry(Registry(history=3)) as served:
        for name in "abcd":
            served.registry.create("configmaps", {"metadata": {"name": name}}, "default")
        token = served.request("GET", f"{CONFIGMAPS}?limit=2").json["metadata"]["continue"]
        for count in range(4):
            served.registry.patch("configmaps", "a", {"data": {"n": str(count)}}, "default")
        expired = served.request("GET", f"{CONFIGMAPS}?limit=2&continue={token}")
        assert (expired.code, expired.json["reason"]) == (410, "Expired")
        assert expired.message.startswith("The provided continue parameter is too old")
        again = served.request("GET", f"{CONFIGMAPS}?limit=2&continue={expired.json['metadata']['continue']}").json
        assert [item["metadata"]["name"] for item in again["items"]] == ["c", "d"]
