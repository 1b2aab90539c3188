"""Pod specs of Jobs that the API server rejects; a TrainJob or runtime that needs such a Job never starts."""

from __future__ import annotations

import pytest

from tests.support.kubernetes_client import path_of

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
REPLACEMENTS = {
    "s": "spec.template.spec",
    "c": "spec.template.spec.containers[0]",
    "affinity": f"spec.template.spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
    "subdomain": (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
        "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
        "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    ),
    "label": (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
        "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
        "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    ),
    "qualified": (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
        "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
        "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ),
    "value": (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
        "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
        "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    ),
    "key": (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
        "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    ),
}


def pod_rule(title, text, container=None, pod=None, job=None):
    """Return a case: title, Job spec, and error message, empty if it is accepted."""
    own = {"name": "node", "image": "x", **(container or {})}
    spec = {"restartPolicy": "Never", "containers": [own], **(pod or {})}
    body = {"template": {"spec": spec}, **(job or {})}
    for key, meaning in REPLACEMENTS.items():
        text = text.replace(f"{{{key}}}", meaning)
    return title, body, text


ROWS = [
    pod_rule(
        "a variable's name",
        (
            '{c}.env[0].name: Invalid value: "a b=c": a valid environment variable name must consist only of '
            "printable ASCII characters other than '='"
        ),
        container={"env": [{"name": "a b=c"}]},
    ),
    pod_rule(
        "a variable without a name", "{c}.env[0].name: Required value", container={"env": [{"name": "", "value": "x"}]}
    ),
    pod_rule(
        "a variable with value and valueFrom",
        '{c}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
        container={"env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    ),
    pod_rule(
        "a variable with an empty valueFrom",
        (
            '{c}.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, '
            "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        ),
        container={"env": [{"name": "A", "valueFrom": {}}]},
    ),
    pod_rule(
        "a variable of a nameless Secret",
        '{c}.env[0].valueFrom.secretKeyRef.name: Invalid value: "": {subdomain}',
        container={"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}]},
    ),
    pod_rule(
        "an invalid key",
        '{c}.env[0].valueFrom.secretKeyRef.key: Invalid value: "a b": {key}',
        container={"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a b"}}}]},
    ),
    pod_rule(
        "a mount without its volume",
        '{c}.volumeMounts[0].name: Not found: "v"',
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
    ),
    pod_rule(
        "a mount without a path",
        "{c}.volumeMounts[0].mountPath: Required value",
        container={"volumeMounts": [{"name": "v", "mountPath": ""}]},
        pod={"volumes": [{"name": "v"}]},
    ),
    pod_rule(
        "two mounts at one path",
        '{c}.volumeMounts[1].mountPath: Invalid value: "/v": must be unique',
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]},
        pod={"volumes": [{"name": "v"}]},
    ),
    pod_rule(
        "a subPath with ..",
        "{c}.volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'",
        container={"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "../x"}]},
        pod={"volumes": [{"name": "v"}]},
    ),
    pod_rule(
        "a volume twice",
        '{s}.volumes[1].name: Duplicate value: "v"',
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        pod={"volumes": [{"name": "v"}, {"name": "v"}]},
    ),
    pod_rule(
        "a volume's name",
        '{s}.volumes[0].name: Invalid value: "V_x": {label}',
        container={"volumeMounts": []},
        pod={"volumes": [{"name": "V_x"}]},
    ),
    pod_rule(
        "a volume of two kinds",
        (
            "[{s}.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type, "
            '{c}.volumeMounts[0].name: Not found: "v"]'
        ),
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        pod={"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
    ),
    pod_rule(
        "a claim without a name",
        '[{s}.volumes[0].persistentVolumeClaim.claimName: Required value, {c}.volumeMounts[0].name: Not found: "v"]',
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        pod={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": ""}}]},
    ),
    pod_rule(
        "a Secret without a name",
        '[{s}.volumes[0].secret.secretName: Required value, {c}.volumeMounts[0].name: Not found: "v"]',
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        pod={"volumes": [{"name": "v", "secret": {}}]},
    ),
    pod_rule(
        "a volume of no kind",
        "",
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        pod={"volumes": [{"name": "v"}]},
    ),
    pod_rule(
        "a request above the limit",
        '{c}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        container={"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
    ),
    pod_rule(
        "a negative limit",
        '{c}.resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        container={"resources": {"limits": {"cpu": "-1"}}},
    ),
    pod_rule(
        "half a GPU",
        '{c}.resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
        container={"resources": {"limits": {"nvidia.com/gpu": "0.5"}}},
    ),
    pod_rule(
        "a GPU request below the limit",
        '{c}.resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
        container={"resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}},
    ),
    pod_rule(
        "a GPU request without a limit",
        "{c}.resources.limits: Required value: Limit must be set for non overcommitable resources",
        container={"resources": {"requests": {"nvidia.com/gpu": "1"}}},
    ),
    pod_rule(
        "only huge pages",
        "{c}.resources: Forbidden: HugePages require cpu or memory",
        container={"resources": {"limits": {"hugepages-2Mi": "4Mi"}}},
    ),
    pod_rule(
        "a selector's key", '{s}.nodeSelector: Invalid value: "a b": {qualified}', pod={"nodeSelector": {"a b": "x"}}
    ),
    pod_rule(
        "a selector's value", '{s}.nodeSelector: Invalid value: "x y": {value}', pod={"nodeSelector": {"a": "x y"}}
    ),
    pod_rule(
        "a toleration's operator",
        '{s}.tolerations[0].operator: Unsupported value: "Nope": supported values: "Equal", "Exists"',
        pod={"tolerations": [{"key": "a", "operator": "Nope"}]},
    ),
    pod_rule(
        "a toleration's effect",
        (
            '{s}.tolerations[0].effect: Unsupported value: "Nope": supported values: "NoSchedule", '
            '"PreferNoSchedule", "NoExecute"'
        ),
        pod={"tolerations": [{"key": "a", "effect": "Nope"}]},
    ),
    pod_rule(
        "a toleration of everything with a value",
        (
            '{s}.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is '
            'empty, which means "match all values and all keys"'
        ),
        pod={"tolerations": [{"operator": "Equal", "value": "x"}]},
    ),
    pod_rule(
        "tolerationSeconds with NoSchedule",
        (
            "{s}.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when "
            "`tolerationSeconds` is set"
        ),
        pod={"tolerations": [{"key": "a", "tolerationSeconds": 5, "effect": "NoSchedule"}]},
    ),
    pod_rule(
        "a value with Exists",
        "{s}.tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
        pod={"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
    ),
    pod_rule("a toleration of everything", "", pod={"tolerations": [{"operator": "Exists"}]}),
    pod_rule("a nameless pull secret", "", pod={"imagePullSecrets": [{"name": ""}]}),
    pod_rule(
        "an account's name",
        '{s}.serviceAccountName: Invalid value: "A_b": {subdomain}',
        pod={"serviceAccountName": "A_b"},
    ),
    pod_rule(
        "a negative parallelism",
        "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
        job={"parallelism": -1},
    ),
    pod_rule(
        "a user below 0",
        "{s}.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        pod={"securityContext": {"runAsUser": -1}},
    ),
    pod_rule(
        "no affinity terms",
        "{affinity}: Required value: must have at least one node selector term",
        pod={"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
    ),
    pod_rule(
        "an affinity's operator",
        '{affinity}[0].matchExpressions[0].operator: Invalid value: "Nope": not a valid selector operator',
        pod={
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Nope"}]}]}
                }
            }
        },
    ),
    pod_rule(
        "In without values",
        (
            "{affinity}[0].matchExpressions[0].values: Required value: must be specified when `operator` is "
            "'In' or 'NotIn'"
        ),
        pod={
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}
                }
            }
        },
    ),
    pod_rule(
        "a weight of 0",
        (
            "{s}.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid "
            "value: 0: must be in the range 1-100"
        ),
        pod={"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}},
    ),
    pod_rule(
        "a gate's name",
        '{s}.schedulingGates[0]: Invalid value: "a b": {qualified}',
        pod={"schedulingGates": [{"name": "a b"}]},
    ),
    pod_rule("an image with a space", "", container={"image": "x y"}),
    pod_rule("a container's name", '{c}.name: Invalid value: "Node": {label}', container={"name": "Node"}),
    pod_rule(
        "an init container of the same name",
        '{s}.initContainers[0].name: Duplicate value: "node"',
        pod={"initContainers": [{"name": "node", "image": "x"}]},
    ),
    pod_rule("no containers", "{s}.containers: Required value", pod={"containers": []}),
    pod_rule(
        "no restartPolicy",
        '{s}.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        pod={"restartPolicy": None},
    ),
]


# Rules without which the kubelet could not run the pod, and pods that are accepted.
CHECKED_BY_ALL_BACKENDS = {
    "a variable's name",
    "a variable without a name",
    "a volume's name",
    "a container's name",
    "a mount without its volume",
    "a mount without a path",
    "a claim without a name",
    "a Secret without a name",
    "a volume of no kind",
    "a toleration of everything",
    "a nameless pull secret",
    "an image with a space",
    "a negative parallelism",
    "no containers",
    "no restartPolicy",
}


def dry_run_rows(client, namespace, rows):
    found, expected = {}, {}
    for title, spec, text in rows:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
        response = client.request("POST", path_of("Job", namespace), job, dryRun="All")
        found[title] = (response.code, "" if response.ok else response.message)
        expected[title] = (422, f'Job.batch "j" is invalid: {text}') if text else (201, "")
    return found, expected


def test_pods_that_cannot_run(client, namespace):
    """A Job is rejected if its pods lack a container, an image, a volume or a name."""
    found, expected = dry_run_rows(client, namespace, [row for row in ROWS if row[0] in CHECKED_BY_ALL_BACKENDS])
    assert found == expected


@pytest.mark.differs("laptop", "the laptop cluster checks only the fields that the kubelet needs to run the pod")
def test_validation_of_pods(client, namespace):
    """Names, variables, mounts, volumes, quantities, placement and IDs in a Job's pods are validated."""
    found, expected = dry_run_rows(client, namespace, [row for row in ROWS if row[0] not in CHECKED_BY_ALL_BACKENDS])
    assert found == expected
