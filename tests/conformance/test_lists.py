"""Lists: selectors, pages, resourceVersions, and invalid options."""

from __future__ import annotations

import pytest

from tests.conformance.idle_objects import KINDS, create_objects, error_of, idle_object, names_of, resource_version_of
from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until

LIMIT, TOKEN = "limit", "continue"


def list_page(client, kind, namespace, **query):
    """Return the names of a page's objects, and the list's metadata."""
    # 504: within 3 s the server's cache has not received a version that etcd has
    path = path_of(kind, namespace)
    response = wait_until(lambda: (found := client.request("GET", path, **query)).code != 504 and found)
    assert response.ok, response.message
    return names_of(response.body["items"]), response.body["metadata"]


@pytest.mark.parametrize("kind", KINDS)
def test_pages(client, namespace, kind):
    """All pages of a list show the same version, without later writes."""
    create_objects(client, namespace, kind, "abcde", labels={"age": "old"})
    first, head = list_page(client, kind, namespace, limit=2)
    assert (first, head["remainingItemCount"]) == (["a", "b"], 3)
    create_objects(client, namespace, kind, ["bb"])
    client.patch(kind, namespace, "c", {"metadata": {"labels": {"age": "new"}}})
    client.delete(kind, namespace, "e")
    token, seen = head[TOKEN], []
    for more in ([1], []):
        response = client.request("GET", path_of(kind, namespace), limit=2, **{TOKEN: token}).body
        seen += [(item["metadata"]["name"], item["metadata"]["labels"]["age"]) for item in response["items"]]
        assert resource_version_of(response) == head["resourceVersion"]
        token = response["metadata"].get(TOKEN)
        assert response["metadata"].get("remainingItemCount") == (more[0] if more else None)
    assert seen == [("c", "old"), ("d", "old"), ("e", "old")]
    assert not token
    assert list_page(client, kind, namespace)[0] == ["a", "b", "bb", "c", "d"]
    assert list_page(client, kind, namespace, limit=100)[0] == ["a", "b", "bb", "c", "d"]


def test_pages_of_a_selection(client, namespace):
    """Pages of a list with a selector are full, and have no remainingItemCount."""
    create_objects(client, namespace, "Secret", "ace", labels={"color": "red"})
    create_objects(client, namespace, "Secret", "bdf")
    query = {"limit": 2, "labelSelector": "color=red"}
    found, head = list_page(client, "Secret", namespace, **query)
    assert found == ["a", "c"] and "remainingItemCount" not in head
    assert list_page(client, "Secret", namespace, **query, **{TOKEN: head[TOKEN]})[0] == ["e"]


@pytest.mark.parametrize("kind", KINDS)
def test_resource_versions(client, namespace, kind):
    """resourceVersionMatch requests a list of exactly a resourceVersion, or of one that is not older."""
    (first,) = create_objects(client, namespace, kind, "a")
    (second,) = create_objects(client, namespace, kind, "b")
    client.delete(kind, namespace, "a")
    early, late = resource_version_of(first), resource_version_of(second)
    exact = {"resourceVersionMatch": "Exact"}
    found, head = list_page(client, kind, namespace, resourceVersion=early, **exact)
    assert (found, head["resourceVersion"]) == (["a"], early)
    assert list_page(client, kind, namespace, resourceVersion=late, **exact)[0] == ["a", "b"]
    not_older = {"resourceVersionMatch": "NotOlderThan"}
    for oldest in ("0", early, late):  # from a cache, which may not have received the deletion yet
        found, head = list_page(client, kind, namespace, resourceVersion=oldest, **not_older)
        assert set(found) <= {"a", "b"} and int(head["resourceVersion"]) >= int(oldest)
    newest = list_page(client, kind, namespace)[1]["resourceVersion"]
    assert list_page(client, kind, namespace, resourceVersion=newest, **not_older)[0] == ["b"]
    assert list_page(client, kind, namespace, limit=1, resourceVersion=late, **exact)[0] == ["a"]


def test_namespaces_of_a_list(client, namespace):
    """A list can span all namespaces. The list of a missing namespace is empty."""
    for place in (namespace, "default"):
        client.create(idle_object("Secret", namespace, labels={"test": namespace}), place)
    response = client.request("GET", path_of("Secret"), labelSelector=f"test={namespace}").body
    client.delete("Secret", "default", namespace)
    assert [item["metadata"]["namespace"] for item in response["items"]] == sorted(["default", namespace])
    for kind in KINDS:
        assert list_page(client, kind, f"no-{namespace}")[0] == []


def test_kinds_of_items(client, namespace):
    """Items of a custom kind have kind and apiVersion. Items of a built-in kind do not."""
    for kind in KINDS:
        create_objects(client, namespace, kind, "a")
    secrets, runtimes = (client.request("GET", path_of(kind, namespace)).body for kind in KINDS)
    assert (secrets["kind"], secrets["apiVersion"]) == ("SecretList", "v1")
    assert set(secrets["items"][0]) == {"metadata", "type"}
    assert (runtimes["kind"], runtimes["items"][0]["kind"]) == ("TrainingRuntimeList", "TrainingRuntime")
    assert runtimes["apiVersion"] == runtimes["items"][0]["apiVersion"] == "trainer.kubeflow.org/v1alpha1"


KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
OPERATORS = "in, notin, =, ==, !=, gt, lt"
LABELS = {  # of a (n=0, env=prod), b (n=1, env=prod, color=red), c (n=2), d (n=10, color=red)
    "color": "bd",
    "!color": "ac",
    "color=red": "bd",
    "color==red": "bd",
    "color!=red": "ac",
    "color in (red,blue)": "bd",
    "color notin (red)": "ac",
    "env in (prod),n>0": "b",
    "n>1": "cd",
    "n<2": "ab",
    "env in ()": "",
    "env in (,prod)": "ab",
    "color=": "",
    " color = red , !env ": "d",
    "in": "",
}
UNREADABLE = {
    "n>x": "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
    "a b": f"found 'b', expected: {OPERATORS}",
    "n gt 1": f"found 'gt', expected: {OPERATORS}",
    "color===red": "found '=', expected: identifier",
    "!": "found '', expected: identifier",
    "color in red": "found 'red' expected: '('",
    "color in (red": "found '', expected: ',' or ')'",
    "color in (": "found '', expected: ',', ')' or identifier",
    "color in (red blue)": "found 'blue', expected: ',' or ')'",
    "-x=1": f'<nil>: Invalid value: "-x": {KEY}',
    "/x=1": '<nil>: Invalid value: "/x": prefix part must be non-empty',
    "x=-y": f'values[0][x]: Invalid value: "-y": {VALUE}',
    "color=red,": "found '', expected: identifier after ','",
    "=x": "found '=', expected: !, identifier, or 'end of string'",
    ",color": "found ',', expected: !, identifier, or 'end of string'",
    "!color=red": "found '=', expected: ',' or 'end of string'",
}


def test_label_selectors(client, namespace):
    """Label selectors select by equality, sets, presence and numbers. An invalid selector gets 400."""
    labels = [
        {"n": "0", "env": "prod"},
        {"n": "1", "env": "prod", "color": "red"},
        {"n": "2"},
        {"n": "10", "color": "red"},
    ]
    for name, own in zip("abcd", labels, strict=True):
        create_objects(client, namespace, "Secret", name, labels=own)
    path = path_of("Secret", namespace)
    response_of = {selector: client.request("GET", path, labelSelector=selector) for selector in LABELS}
    found = {selector: names_of(response.body["items"]) for selector, response in response_of.items()}
    assert found == {selector: list(expected) for selector, expected in LABELS.items()}
    codes = {selector: client.request("GET", path, labelSelector=selector).code for selector in UNREADABLE}
    assert codes == dict.fromkeys(UNREADABLE, 400)


@pytest.mark.differs("laptop", "the message has the part that cannot be parsed, not what was expected instead")
def test_label_selector_errors(client, namespace):
    """The error for an invalid label selector says what was found and what was expected."""
    found = {}
    for selector in UNREADABLE:
        response = client.request("GET", path_of("Secret", namespace), labelSelector=selector)
        found[selector] = response.message.removeprefix("unable to parse requirement: ")
    assert found == UNREADABLE


NO_FIELD = "field label not supported: "
NOT_KNOWN = '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'
FIELDS = [
    ("Secret", "metadata.name=a", "a"),
    ("Secret", "metadata.name!=a", "b"),
    ("Secret", "metadata.name==a,metadata.name==b", ""),
    ("Secret", "type=Opaque,metadata.name=b,", "b"),
    ("TrainingRuntime", "metadata.name=a", "a"),
    ("TrainingRuntime", "metadata.name=a\\,b", ""),
    ("Secret", "metadata.labels.n=1", f"{NO_FIELD}metadata.labels.n"),
    ("Secret", "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ("Secret", "x=y=z", "invalid field selector: unescaped character in value: 61"),
    ("Secret", "x=\\y", "invalid field selector: invalid escape sequence: \\y"),
    ("TrainJob", "status.phase=x", f"{NO_FIELD}status.phase"),
    ("JobSet", "x=y", f"{NO_FIELD}x"),
    ("Job", "x=y", 'field label "x" not supported for Job'),
    ("Job", "status.successful=1", ""),
    ("Pod", "status.startTime=x", f"{NO_FIELD}status.startTime"),
    ("Pod", "spec.nodeName=x,status.phase!=Failed", ""),
    ("Event", "involvedObject.name=x,reason=y,type=Warning", ""),
    ("ConfigMap", "data.x=y", NOT_KNOWN.format("data.x")),
    ("PersistentVolumeClaim", "status.phase=Bound", NOT_KNOWN.format("status.phase")),
    ("Role", "x=y", NOT_KNOWN.format("x")),
]


def test_field_selectors(client, namespace):
    """Field selectors accept name and namespace, for some built-in kinds a few more fields, and no others."""
    for kind in KINDS:
        create_objects(client, namespace, kind, "ab")
    responses = []
    for kind, selector, _ in FIELDS:
        response = client.request("GET", path_of(kind, namespace), fieldSelector=selector)
        assert response.code == (200 if response.ok else 400)
        responses.append(
            (kind, selector, "".join(names_of(response.body["items"])) if response.ok else response.message)
        )
    assert responses == FIELDS


INVALID_OPTIONS = 'ListOptions.meta.k8s.io "" is invalid: '
MATCH = "resourceVersionMatch: Forbidden: resourceVersionMatch"
UNKNOWN = 'resourceVersionMatch: Unsupported value: "x": supported values: "Exact", "NotOlderThan", ""'
NUMBER = 'invalid resource version: resourceVersion: Invalid value: "{0}": strconv.ParseUint: parsing "{0}": '
REFUSALS = [
    ({"resourceVersion": "abc"}, 400, "BadRequest", f"{NUMBER.format('abc')}invalid syntax"),
    ({"resourceVersion": "1.5"}, 400, "BadRequest", f"{NUMBER.format('1.5')}invalid syntax"),
    ({"limit": "x"}, 400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax'),
    (
        {"resourceVersionMatch": "Exact"},
        422,
        "Invalid",
        f"{INVALID_OPTIONS}{MATCH} is forbidden unless resourceVersion is provided",
    ),
    (
        {"resourceVersionMatch": "x"},
        422,
        "Invalid",
        f"{INVALID_OPTIONS}[{MATCH} is forbidden unless resourceVersion is provided, {UNKNOWN}]",
    ),
    (
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        422,
        "Invalid",
        f'{INVALID_OPTIONS}{MATCH} "exact" is forbidden for resourceVersion "0"',
    ),
    (
        {"resourceVersionMatch": "Exact", "resourceVersion": "5", TOKEN: "x"},
        422,
        "Invalid",
        f"{INVALID_OPTIONS}{MATCH} is forbidden when continue is provided",
    ),
    (
        {"sendInitialEvents": True},
        422,
        "Invalid",
        f"{INVALID_OPTIONS}sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
    ),
]


def test_invalid_options(client, namespace):
    """Invalid list options are rejected, all problems at once."""
    for kind in KINDS:
        responses = [error_of(client.request("GET", path_of(kind, namespace), **row[0])) for row in REFUSALS]
        assert responses == [tuple(row[1:]) for row in REFUSALS]
        create_objects(client, namespace, kind, "ab")
        token = list_page(client, kind, namespace, limit=1)[1][TOKEN]
        text = "specifying resource version is not allowed when using continue"
        response = client.request("GET", path_of(kind, namespace), **{TOKEN: token, "resourceVersion": "5"})
        assert error_of(response) == (400, "BadRequest", text)
        code, reason, text = error_of(client.request("GET", path_of(kind, namespace), **{TOKEN: "abc"}))
        assert (code, reason) == (400, "BadRequest")
        assert text.startswith("invalid continue token: continue key is not valid: ")


def test_future_resource_versions(client, namespace):
    """A list or get with a resourceVersion that does not exist yet gets 504 and Retry-After."""
    create_objects(client, namespace, "Secret", "a")
    for path in (path_of("Secret", namespace), path_of("Secret", namespace, "a")):
        response = client.request("GET", path, resourceVersion=str(10**9))
        assert (response.code, response.reason) == (504, "Timeout")
        assert response.message.startswith(f"Timeout: Too large resource version: {10**9}, current: ")
        assert response.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert response.headers["retry-after"] == "1"


def test_resource_version_of_a_get(client, namespace):
    """An object can be read from a cache with resourceVersion 0. An invalid resourceVersion is an error."""
    create_objects(client, namespace, "Secret", "a")
    path = path_of("Secret", namespace, "a")
    # The cache may not have received the object yet.
    cached = wait_until(lambda: (response := client.request("GET", path, resourceVersion="0")).ok and response.body)
    assert cached["metadata"]["name"] == "a"
    text = 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    assert error_of(client.request("GET", path, resourceVersion="abc")) == (500, "", text)
