"""Each field of a TrainJob: the table of docs/reference/trainjob-fields.md, and requests that set the fields."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.built_jobsets import (
    create_jobsets,
    find_container,
    find_pod_spec,
    find_replicated_job,
    read_environment,
)
from tests.conformance.runtimes import create_own_runtime, replicated_job
from tests.conformance.test_every_manifest import build_manifest, dry_run
from tests.conformance.test_openapi import schema_of
from tests.support.trainjobs import train_job
from tools.parameters.trainjob_fields import list_fields, list_schema_fields
from trainjob import (
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    InvalidSpec,
    Placement,
    Runtime,
    TorchTuneConfig,
    TrainJob,
)
from trainjob.trainjob_schema import find_schema, load_trainjob_schema

MANAGER = "example.org/team"
PATCH = "spec.runtimePatches[]"
# What the API has and a patch may not set: the Trainer sets the time, and names have no effect.
LEFT_OUT = ("time", "name", "namespace", "finalizers")
SOURCES = {
    "NODE": {"fieldRef": {"fieldPath": "spec.nodeName"}},
    "REGION": {"configMapKeyRef": {"name": "settings", "key": "region", "optional": True}},
    "TOKEN": {"secretKeyRef": {"name": "s", "key": "k"}},
    "LIMIT": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "node", "divisor": "1m"}},
}


@pytest.mark.since("2.0")
def test_fields_of_the_table(client, target):
    """The table of the fields of a TrainJob has exactly the fields of the Trainer."""
    properties = schema_of(client, "TrainJob")["properties"]
    found = [path for part in ("spec", "status") for path in list_schema_fields(properties[part], part)]
    assert sorted(found) == list_fields(".".join(map(str, target.trainer)))


@pytest.mark.since("2.3")
def test_schema_of_a_request(client):
    """The schema that checks requests is that of the API."""
    published, ours = schema_of(client, "TrainJob")["properties"], load_trainjob_schema()["properties"]
    assert {part: without_descriptions(published[part]) for part in ("spec", "status")} == {
        part: ours[part] for part in ("spec", "status")
    }


def without_descriptions(schema):
    if not isinstance(schema, dict):
        return schema
    found = {key: without_descriptions(value) for key, value in schema.items() if key != "description"}
    if isinstance(fields := schema.get("properties"), dict):
        found["properties"] = {name: without_descriptions(field) for name, field in fields.items()}
    return found


def select(values, names):
    return {name: values.get(name) for name in names}


@pytest.mark.since("2.0")
def test_values_of_variables(client, namespace, target):
    """Variables with values from fields, ConfigMaps and resources are in the container."""
    trainer = CustomTrainerContainer(command=("true",), env=SOURCES)
    manifest = build_manifest(TrainJob(trainer=trainer), namespace, target)
    container = find_container(create_jobsets(client, namespace, {"job": manifest})["job"])
    assert select(read_environment(container), SOURCES) == SOURCES


def test_a_key_of_a_file_is_dropped(client, namespace):
    """A variable of the trainer whose value is a key of a file reaches the container without its source."""
    source = {"fileKeyRef": {"volumeName": "files", "path": "a.env", "key": "A", "optional": False}}
    job = train_job("true", trainer={"env": [{"name": "SETTING", "valueFrom": source}]})
    container = find_container(create_jobsets(client, namespace, {"job": job})["job"])
    assert read_environment(container)["SETTING"] == {}


@pytest.mark.since("2.0")
def test_requests_that_differ_from_limits(client, namespace, target):
    """Requests and limits of a request are in the container, as they were given."""
    resources = {"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"cpu": "2", "gpu": "1"}}
    trainer = CustomTrainerContainer(command=("true",), resources_per_node=resources)
    manifest = build_manifest(TrainJob(trainer=trainer), namespace, target)
    found = find_container(create_jobsets(client, namespace, {"job": manifest})["job"])["resources"]
    assert found == {"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}


@pytest.mark.since("2.0")
def test_resource_claims_are_dropped(client, namespace):
    """Resource claims of a TrainJob reach no container; with resourcesPerNode, those of its runtime do not either."""
    job = replicated_job()
    pod = job["template"]["spec"]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    pod["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    own = create_own_runtime(client, namespace, job)
    resources = {"limits": {"cpu": "1"}}
    jobs = {
        "plain": train_job(**own),
        "amounts": train_job(trainer={"resourcesPerNode": resources}, **own),
        "claims": train_job(trainer={"resourcesPerNode": {**resources, "claims": [{"name": "gpus"}]}}),
    }
    jobsets = create_jobsets(client, namespace, jobs)
    found = {name: find_container(jobset).get("resources", {}).get("claims") for name, jobset in jobsets.items()}
    assert found == {"plain": [{"name": "gpus"}], "amounts": None, "claims": None}


@pytest.mark.since("2.0")
def test_variables_of_initializers(client, namespace, target):
    """Variables of the initializers of a request are in their containers."""
    env = {"HTTPS_PROXY": "http://proxy:3128", "NODE": SOURCES["NODE"]}
    step = FineTune(
        model="llama3.2-1b",
        dataset={"storage_uri": "hf://o/n", "env": env},
        model_initializer={"storage_uri": "hf://o/m", "env": env},
        config=TorchTuneConfig(),
    )
    manifest = build_manifest(step, namespace, target)
    jobset = create_jobsets(client, namespace, {"job": manifest})["job"]
    for name in ("dataset-initializer", "model-initializer"):
        assert select(read_environment(find_container(jobset, name)), env) == env, name


STEPS = (
    TrainJob(),
    InitializeDataset(storage_uri="hf://o/n", workspace="w"),
    InitializeModel(storage_uri="hf://o/n", workspace="w"),
    FineTune(model="llama3.2-1b", workspace="w", config=TorchTuneConfig()),
    ExportModel(destination="s3://a/b", workspace="w"),
)


@pytest.mark.since("2.0")
@pytest.mark.parametrize("manager", ["trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"])
def test_manager_of_each_step(client, namespace, target, manager):
    """Each kind of step can be given to another controller, and can be created suspended."""
    for step in STEPS:
        manifest = build_manifest(step.model_copy(update={"managed_by": manager, "suspend": True}), namespace, target)
        spec = dry_run(client, namespace, manifest).body["spec"]
        assert (spec["managedBy"], spec["suspend"]) == (manager, True), type(step)


@pytest.mark.since("2.0")
def test_suspended_creation(client, namespace, target):
    """A TrainJob that is created suspended has no pod until it is resumed."""
    manifest = build_manifest(
        TrainJob(trainer=CustomTrainerContainer(command=("true",)), suspend=True), namespace, target
    )
    client.create(manifest, namespace)
    assert client.wait_for("JobSet", namespace, "job", bool)["spec"]["suspend"]
    assert client.list("Pod", namespace) == []
    client.patch("TrainJob", namespace, "job", {"spec": {"suspend": False}})
    client.wait_for("Pod", namespace, "", bool)


def runtime_patch(*jobs, **jobset):
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {**jobset, "spec": {"replicatedJobs": [*jobs]}}}}


def job_patch(name, pod=None, **template):
    spec = {"spec": {"template": {"spec": pod}}} if pod else {}
    return {"name": name, "template": {**template, **spec}}


@pytest.mark.since("2.2")
def test_runtime_patches(client, namespace, target):
    """Patches of any job and container of a runtime take effect, after those of the request's other fields."""
    driver = replicated_job()
    driver.update(name="rollout")
    driver["template"]["metadata"] = {}
    driver["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "server"
    node = replicated_job()
    sidecar, setup = ({"name": name, "image": "example.org/i"} for name in ("sidecar", "setup"))
    node["template"]["spec"]["template"]["spec"]["containers"].append(sidecar)
    node["template"]["spec"]["template"]["spec"]["initContainers"] = [setup]
    own = create_own_runtime(client, namespace, node, driver)
    variable, mount = {"name": "A", "value": "1"}, {"name": "scratch", "mountPath": "/s", "subPathExpr": "$(A)"}
    container = {"env": [variable], "volumeMounts": [mount], "securityContext": {"procMount": "Default"}}
    pod = {
        "containers": [{"name": "sidecar", **container}],
        "initContainers": [{"name": "setup", **container}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "schedulingGates": [{"name": "example.org/gate"}],
        "nodeSelector": {"pool": "b"},
    }
    exclusive = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}
    patch = runtime_patch(
        job_patch("node", pod, metadata={"labels": {"of": "job"}}),
        job_patch("rollout", {"containers": [{"name": "server", "env": [variable]}]}),
        metadata=exclusive,
    )
    request = TrainJob(
        trainer=CustomTrainerContainer(command=("true",)),
        runtime=Runtime(name=own["runtime"], kind=own["kind"]),
        placement=Placement(node_selector={"pool": "a", "os": "linux"}),
        runtime_patches=[patch],
    )
    jobset = create_jobsets(client, namespace, {"job": build_manifest(request, namespace, target)})["job"]
    assert jobset["metadata"]["annotations"].items() >= exclusive["annotations"].items()
    assert find_replicated_job(jobset)["template"]["metadata"]["labels"]["of"] == "job"
    found = find_pod_spec(jobset)
    assert found["nodeSelector"] == {"pool": "b", "os": "linux"}
    assert found["schedulingGates"] == pod["schedulingGates"]
    (patched,) = (one for one in found["containers"] if one["name"] == "sidecar")
    for one in (patched, found["initContainers"][0]):
        assert {name: one[name] for name in container} == container
    assert find_pod_spec(jobset, "rollout")["containers"][0]["env"] == [variable]


@pytest.mark.since("2.2")
def test_all_security_contexts(client, namespace, target):
    """All fields of the security contexts are in the pod."""
    context = {
        "run_as_user": 1000,
        "supplemental_groups": (2000,),
        "supplemental_groups_policy": "Strict",
        "se_linux_change_policy": "MountOption",
        "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
        "windows_options": {"runAsUserName": "user"},
    }
    own = {"proc_mount": "Default", "windows_options": {"hostProcess": False}}
    request = TrainJob(
        trainer=CustomTrainerContainer(command=("true",)),
        placement=Placement(security_context=context, container_security_context=own),
    )
    jobset = create_jobsets(client, namespace, {"job": build_manifest(request, namespace, target)})["job"]
    assert find_pod_spec(jobset)["securityContext"] == {
        "runAsUser": 1000,
        "supplementalGroups": [2000],
        "supplementalGroupsPolicy": "Strict",
        "seLinuxChangePolicy": "MountOption",
        "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
        "windowsOptions": {"runAsUserName": "user"},
    }
    assert find_container(jobset)["securityContext"] == {
        "procMount": "Default",
        "windowsOptions": {"hostProcess": False},
    }


# -- every field of a patch -------------------------------------------------------------------------------------------


def fill(schema: dict[str, Any], name: str = "") -> Any:
    """Return a value with all fields of a schema that a patch may have."""
    if "x-kubernetes-int-or-string" in schema:
        return "1Gi"
    if schema["type"] == "object" and "properties" in schema:
        is_metadata = name == "metadata"
        kept = {field: one for field, one in schema["properties"].items() if not (is_metadata and field in LEFT_OUT)}
        return {field: fill(one, field) for field, one in kept.items() if field != "time"}
    if schema["type"] == "object":
        return {"example.org/key": fill(schema["additionalProperties"])}
    if schema["type"] == "array":
        return [fill(schema["items"], name)]
    plain = {"integer": max(1, schema.get("minimum", 1)), "boolean": True, "string": "a"}
    return MANAGER if name == "manager" else plain[schema["type"]]


def broken_patches(
    schema: dict[str, Any], value: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the path of each part of a value with a value that is not allowed there."""
    if isinstance(value, dict) and "properties" in schema:
        yield (*path, "unknown"), "x"
        for name, inner in value.items():
            yield from broken_patches(schema["properties"][name], inner, (*path, name))
    elif isinstance(value, list):
        yield path, "text"
        yield from broken_patches(schema["items"], value[0], (*path, 0))
    else:
        yield path, [] if isinstance(value, str) else "text"


def replace_part(value: Any, path: tuple[Any, ...], part: Any) -> Any:
    changed = copy.deepcopy(value)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = part
    return changed


@pytest.mark.since("2.3")
def test_every_field_of_a_patch_takes_effect(client, namespace):
    """Every field of a patch is in the JobSet."""
    node = replicated_job()
    pod = node["template"]["spec"]["template"]["spec"]
    pod["containers"].append({"name": "a", "image": "example.org/i"})
    pod["initContainers"] = [{"name": "a", "image": "example.org/i"}]
    own = create_own_runtime(client, namespace, node)
    patch = fill(find_schema(PATCH))
    job_patch = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    job_patch["name"] = "node"
    pod = job_patch["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": kind.lower(), kind: one} for kind, one in pod["volumes"][0].items() if kind != "name"]
    for container in (*pod["containers"], *pod["initContainers"]):
        container["volumeMounts"][0]["name"] = pod["volumes"][0]["name"]
        sources = container["env"][0]["valueFrom"]
        container["env"] = [{"name": kind.upper(), "valueFrom": {kind: one}} for kind, one in sources.items()]
    found = create_jobsets(client, namespace, {"job": train_job(runtimePatches=[patch], **own)})["job"]
    assert list(find_differences(patch["trainingRuntimeSpec"]["template"], found, "")) == []


def find_differences(given: Any, found: Any, path: str) -> Iterator[str]:
    """Yield the paths of values that were given and not found.

    Items of lists are found by their names.
    """
    if isinstance(given, dict) and isinstance(found, dict):
        for name, one in given.items():
            yield from find_differences(one, found.get(name), f"{path}.{name}")
    elif isinstance(given, list) and isinstance(found, list):
        for number, one in enumerate(given):
            name = one.get("name") if isinstance(one, dict) else None
            same = [each for each in found if name and each["name"] == name] or found[number : number + 1] or [None]
            yield from find_differences(one, same[0], f"{path}[{number}]")
    elif given != found:
        yield path


@pytest.mark.since("2.3")
def test_every_field_of_a_patch(client, namespace, target):
    """A patch with every field is accepted. With a wrong value in one part, the request and the API refuse it."""
    schema = find_schema(PATCH)
    whole = fill(schema)
    assert dry_run(client, namespace, build_manifest(TrainJob(runtime_patches=[whole]), namespace, target)).code == 201
    cases = list(broken_patches(schema, whole))
    assert len(cases) > 500
    accepted = []
    for path, part in cases:
        patch = replace_part(whole, path, part)
        with pytest.raises(InvalidSpec):
            TrainJob(runtime_patches=[patch])
        if dry_run(client, namespace, train_job(runtimePatches=[patch])).ok:
            accepted.append(path)
    assert accepted == []
