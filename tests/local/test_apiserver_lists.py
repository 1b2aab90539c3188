"""Lists: selectors, pages, versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from apiserver_door import TRAINJOBS, Door, pod, serving, trainjob
from kubernetes import client

from trainjob.local.apiserver import Registry

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with serving() as opened:
        opened.registry.create("namespaces", {"metadata": {"name": "other"}})
        for name, color in (("a", "red"), ("b", "blue"), ("c", None)):
            labels = {"color": color} if color else {}
            opened.registry.create("pods", pod(name, labels=labels), "default")
        opened.registry.create("pods", pod("d"), "other")
        opened.registry.bind("b", "node-1", "default")
        yield opened


@pytest.fixture(scope="module")
def core(door: Door) -> client.CoreV1Api:
    return client.CoreV1Api(door.client())


def names(found: client.V1PodList) -> str:
    return "".join(item.metadata.name for item in found.items)


def test_namespaces_and_selectors(core: client.CoreV1Api) -> None:
    assert names(core.list_pod_for_all_namespaces()) == "abcd"
    assert names(core.list_namespaced_pod("default")) == "abc"
    assert names(core.list_namespaced_pod("nowhere")) == ""
    assert names(core.list_namespaced_pod("default", label_selector="color in (red,blue),color!=red")) == "b"
    assert names(core.list_namespaced_pod("default", label_selector="!color")) == "c"
    assert names(core.list_namespaced_pod("default", field_selector="metadata.name=a")) == "a"
    assert names(core.list_namespaced_pod("default", field_selector="spec.nodeName=node-1,status.phase=Pending")) == "b"
    assert names(core.list_pod_for_all_namespaces(field_selector="metadata.namespace!=default")) == "d"


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ("labelSelector=a%20in%20(", 400, "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("fieldSelector=spec.foo%3Db", 400, "field label not supported: spec.foo"),
        ("limit=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            "resourceVersion=abc",
            400,
            'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint',
        ),
        ("resourceVersion=99999999", 504, "Timeout: Too large resource version: 99999999, current: "),
        ("resourceVersionMatch=Exact", 422, 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden'),
        (
            "resourceVersionMatch=Foo&resourceVersion=3",
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch',
        ),
        ("sendInitialEvents=true", 422, "ListOptions.meta.k8s.io"),
        ("continue=abc", 400, "invalid continue token: continue key is not valid"),
        ("resourceVersion=1&resourceVersionMatch=Exact", 410, "The resourceVersion for the provided list is too old."),
    ],
)
def test_what_is_refused(door: Door, query: str, code: int, text: str) -> None:
    answer = door.ask("GET", f"/api/v1/namespaces/default/pods?{query}")
    assert answer.code == code, answer.text
    assert answer.message.startswith(text)


def test_pages_show_one_moment(core: client.CoreV1Api, door: Door) -> None:
    core.create_namespace({"metadata": {"name": "pages"}})
    for name in "abcde":
        core.create_namespaced_config_map("pages", {"metadata": {"name": name}, "data": {"n": "old"}})
    first = core.list_namespaced_config_map("pages", limit=2)
    assert [item.metadata.name for item in first.items] == ["a", "b"]
    assert first.metadata.remaining_item_count == 3
    core.create_namespaced_config_map("pages", {"metadata": {"name": "bb"}})
    core.patch_namespaced_config_map("c", "pages", {"data": {"n": "new"}})
    core.delete_namespaced_config_map("e", "pages")
    second = core.list_namespaced_config_map("pages", limit=2, _continue=first.metadata._continue)
    third = core.list_namespaced_config_map("pages", limit=2, _continue=second.metadata._continue)
    assert [(item.metadata.name, item.data["n"]) for item in second.items + third.items] == [
        ("c", "old"), ("d", "old"), ("e", "old")
    ]  # fmt: skip
    assert {page.metadata.resource_version for page in (first, second, third)} == {first.metadata.resource_version}
    assert third.metadata._continue is None
    wrong = f"/api/v1/namespaces/pages/configmaps?continue={first.metadata._continue}&resourceVersion=5"
    assert door.ask("GET", wrong).code == 400


def test_a_page_of_the_past_that_is_gone_can_be_gone_on_with() -> None:
    with serving(Registry(history=3)) as door:
        for name in "abcd":
            door.registry.create("configmaps", {"metadata": {"name": name}}, "default")
        token = door.ask("GET", f"{CONFIGMAPS}?limit=2").json["metadata"]["continue"]
        for count in range(4):
            door.registry.patch("configmaps", "a", {"data": {"n": str(count)}}, "default")
        expired = door.ask("GET", f"{CONFIGMAPS}?limit=2&continue={token}")
        assert (expired.code, expired.json["reason"]) == (410, "Expired")
        assert expired.message.startswith("The provided continue parameter is too old")
        again = door.ask("GET", f"{CONFIGMAPS}?limit=2&continue={expired.json['metadata']['continue']}").json
        assert [item["metadata"]["name"] for item in again["items"]] == ["c", "d"]


def test_lists_of_an_exact_version(door: Door) -> None:
    created = door.ask("POST", TRAINJOBS, trainjob("exact")).json
    version = created["metadata"]["resourceVersion"]
    door.ask("DELETE", f"{TRAINJOBS}/exact")
    exact = door.ask("GET", f"{TRAINJOBS}?resourceVersion={version}&resourceVersionMatch=Exact").json
    assert [item["metadata"]["name"] for item in exact["items"]] == ["exact"]
    assert exact["metadata"]["resourceVersion"] == version
    newer = door.ask("GET", f"{TRAINJOBS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan").json
    assert newer["items"] == []


def test_items_of_builtin_kinds_have_no_kind(door: Door) -> None:
    door.ask("POST", TRAINJOBS, trainjob("kinds"))
    assert "kind" not in door.ask("GET", "/api/v1/pods").json["items"][0]
    assert door.ask("GET", TRAINJOBS).json["items"][0]["kind"] == "TrainJob"
