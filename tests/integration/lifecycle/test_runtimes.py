"""Tests of runtimes: the checks before a TrainJob is sent, and the command `trainjob runtimes`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from trainjob import (
    BuiltinTrainer,
    CustomTrainerContainer,
    FineTune,
    Placement,
    Runtime,
    TorchTuneConfig,
    TrainJob,
    TrainJobManifest,
)
from trainjob.client import Cluster, Connection
from trainjob.errors import AdmissionRefused, InvalidSpec
from trainjob.lifecycle import RunKey, submit

API = "/apis/trainer.kubeflow.org/v1alpha1"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
CLUSTER_WIDE = f"{API}/clustertrainingruntimes"
FORBIDDEN = (403, b'{"kind": "Status", "message": "forbidden"}')
CONTAINER = CustomTrainerContainer(image="busybox", command=("sleep", "60"))


@pytest.fixture
def namespace(cluster, unique):
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    cluster._http.request("POST", "/api/v1/namespaces", doing="create a namespace", body=body)
    yield unique
    cluster._http.request("DELETE", f"/api/v1/namespaces/{unique}", doing="delete a namespace")


@pytest.fixture
def create_runtime(cluster, namespace):
    """Return a function that creates a runtime in the namespace and returns a reference to it."""

    def create(
        name="own", *, framework="torch", extra_labels=None, step="trainer", job="node", container="node", **more
    ):
        main_container = {"name": container, "image": "busybox", **more}
        template = {"metadata": {"labels": {STEP: step}} if step else {}}
        template["spec"] = {"template": {"spec": {"containers": [main_container]}}}
        body = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainingRuntime",
            "metadata": {
                "name": name,
                "labels": {"trainer.kubeflow.org/framework": framework, **(extra_labels or {})},
            },
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {"spec": {"replicatedJobs": [{"name": job, "template": template}]}},
            },
        }
        path = f"{API}/namespaces/{namespace}/trainingruntimes"
        cluster._http.request("POST", path, doing="make a runtime", body=body)
        return Runtime(name=name, kind="TrainingRuntime")

    return create


@pytest.fixture
def submit_step(cluster, namespace, unique):
    """Return a function that submits to the namespace of the test."""
    tasks = iter(range(100))

    def submit_request(request, client=cluster):
        key = RunKey("test", "runtimes", f"{unique}-{next(tasks)}", "run-1")
        return submit(client, request, key, namespace=namespace)

    return submit_request


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        yield server


@pytest.fixture
def proxy_kubeconfig(proxy):
    """Return a kubeconfig that uses a proxy, which counts requests and can forbid them."""
    return proxy.kubeconfig_text


@pytest.fixture
def proxied_cluster(proxy_kubeconfig):
    opened = Cluster(Connection(kubeconfig_text=proxy_kubeconfig), retry_seconds=5.0)
    yield opened
    opened.close()


def list_trainjobs(cluster, namespace):
    return cluster.list_trainjobs(namespace, "")


def runtime_requests(proxy):
    """Return the number of requests for runtimes by method and path."""
    return {request: count for request, count in proxy.request_counts.items() if "trainingruntimes" in request}


# -- when it is read ----------------------------------------------------------------------------------------------


def test_the_default_runtime_is_not_read(proxy, proxied_cluster, submit_step):
    submit_step(TrainJob(trainer=CONTAINER), proxied_cluster)
    assert runtime_requests(proxy) == {}
    assert sum(proxy.request_counts.values()) == 5


def test_another_runtime_is_read_once(proxy, proxied_cluster, submit_step, create_runtime, namespace):
    job = TrainJob(trainer=CONTAINER, runtime=create_runtime())
    for _ in range(3):
        submit_step(job, proxied_cluster)
    assert runtime_requests(proxy) == {f"GET {API}/namespaces/{namespace}/trainingruntimes/own": 1}


def test_without_the_permission_to_read_runtimes_nothing_is_checked(
    proxy, proxied_cluster, submit_step, create_runtime, namespace
):
    own = create_runtime(extra_labels={"trainer.kubeflow.org/support": "deprecated"}, framework="mlx")
    path = f"{API}/namespaces/{namespace}/trainingruntimes"
    proxy.responses |= {f"{path}/own": FORBIDDEN, path: FORBIDDEN, CLUSTER_WIDE: FORBIDDEN}
    for _ in range(2):
        assert submit_step(TrainJob(trainer=CONTAINER, runtime=own), proxied_cluster).attempt == 1
    assert runtime_requests(proxy) == {f"GET {path}/own": 1}
    proxy.responses[f"{path}/gone"] = FORBIDDEN
    with pytest.raises(AdmissionRefused, match='"gone" not found'):
        submit_step(TrainJob(trainer=CONTAINER, runtime=Runtime(name="gone", kind="TrainingRuntime")), proxied_cluster)


def test_after_a_refusal_the_runtime_is_read_again(
    proxy, proxied_cluster, submit_step, create_runtime, cluster, namespace
):
    """This finds a runtime that was deleted after it was read, and a missing runtime that was never read."""
    own, path = create_runtime(), f"{API}/namespaces/{namespace}/trainingruntimes/own"
    submit_step(TrainJob(trainer=CONTAINER, runtime=own), proxied_cluster)
    cluster._http.request("DELETE", path, doing="delete a runtime")
    with pytest.raises(InvalidSpec, match=f"no such TrainingRuntime in namespace {namespace}"):
        submit_step(TrainJob(trainer=CONTAINER, runtime=own), proxied_cluster)
    post = f"POST {API}/namespaces/{namespace}/trainjobs"
    not_found = json.dumps({"kind": "Status", "message": "denied the request: not found"}).encode()
    proxy.responses |= {post: (403, b'{"kind":"Status","message":"admission webhook \\"x\\" denied"}')}
    proxy.responses[f"{CLUSTER_WIDE}/torch-distributed"] = (404, not_found)
    with pytest.raises(InvalidSpec, match=r"runtime cannot be 'torch-distributed': there is no such Cluster"):
        submit_step(TrainJob(trainer=CONTAINER), proxied_cluster)


# -- what is refused ----------------------------------------------------------------------------------------------


def test_a_missing_runtime_is_refused_with_the_names_of_the_existing_ones(cluster, submit_step, namespace):
    with pytest.raises(InvalidSpec) as refused:
        submit_step(TrainJob(trainer=CONTAINER, runtime="torch-distribted"))
    message = str(refused.value)
    assert message.startswith(
        "runtime cannot be 'torch-distribted': there is no such ClusterTrainingRuntime: did you mean "
        "torch-distributed? (there are torch-distributed, "
    )
    assert "torchtune-qwen2.5-1.5b" in message
    assert list_trainjobs(cluster, namespace) == []


def test_a_runtime_of_the_other_kind_is_suggested(submit_step, create_runtime):
    name = create_runtime("mine").name
    with pytest.raises(
        InvalidSpec, match="the runtime of this name is a TrainingRuntime, so set kind='TrainingRuntime'"
    ):
        submit_step(TrainJob(trainer=CONTAINER, runtime=name))
    with pytest.raises(InvalidSpec, match="is a ClusterTrainingRuntime, so set kind='ClusterTrainingRuntime'"):
        submit_step(TrainJob(trainer=CONTAINER, runtime=Runtime(name="torch-distributed", kind="TrainingRuntime")))


def test_a_builtin_trainer_needs_torchtune(submit_step, create_runtime):
    own = create_runtime("own-llama3.2-1b", framework="torch")
    trainer = BuiltinTrainer(config=TorchTuneConfig())
    with pytest.raises(InvalidSpec, match="needs a runtime of the framework torchtune; its framework is torch"):
        submit_step(TrainJob(trainer=trainer, runtime=own))


def test_trainer_fields_that_would_reach_no_container_are_refused(submit_step, create_runtime, cluster, namespace):
    for own in (create_runtime("plain", step=""), create_runtime("other", step="", container="main")):
        with pytest.raises(InvalidSpec, match="a container node, so image, command would have no effect"):
            submit_step(TrainJob(trainer=CONTAINER, runtime=own))
        assert submit_step(TrainJob(runtime=own)).attempt == 1  # the runtime sets these fields itself


def test_a_workspace_or_placement_without_its_replicated_job_is_refused(
    submit_step, create_runtime, cluster, namespace
):
    own = create_runtime("single", step="", job="solo", container="main")
    rule = r"it has no replicated job node, which workspace, volumes, placement or runtime_patches need; it has solo"
    with pytest.raises(InvalidSpec, match=rule):
        submit_step(TrainJob(runtime=own, placement=Placement(node_selector={"a": "b"})))
    other = create_runtime("main", step="", container="main")
    with pytest.raises(InvalidSpec, match="its replicated job node has no container node; it has main"):
        submit_step(TrainJob(runtime=other, workspace="w"))
    assert list_trainjobs(cluster, namespace) == []


def test_a_patch_in_a_manifest_is_checked(submit_step, create_runtime):
    own = create_runtime("written")
    pod = {"template": {"spec": {"template": {"spec": {"containers": [{"name": "trainer", "env": []}]}}}}}
    patch = {"template": {"spec": {"replicatedJobs": [{"name": "nodes"}, {"name": "node", **pod}]}}}
    spec = {
        "runtimeRef": {"name": own.name, "kind": own.kind},
        "runtimePatches": [{"manager": "example.org/me", "trainingRuntimeSpec": patch}],
    }
    manifest = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    with pytest.raises(InvalidSpec) as refused:
        submit_step(TrainJobManifest(manifest=manifest))
    assert [problem.field for problem in refused.value.problems] == ["manifest.spec.runtimeRef"] * 2
    assert "no replicated job nodes" in str(refused.value)
    assert "has no container trainer; it has node" in str(refused.value)


@pytest.mark.parametrize("image", ["example.org/torch:2.9-cpu", "torch-cpu", "example.org/a/torch:cpu-2.9"])
def test_gpus_with_an_image_for_cpus_are_refused(submit_step, create_runtime, image):
    own = create_runtime(image=image)
    trainer = CustomTrainerContainer(command=("true",), resources_per_node={"gpu": 1})
    with pytest.raises(InvalidSpec, match=f"its image {image} is for CPUs, .* requests nvidia.com/gpu"):
        submit_step(TrainJob(trainer=trainer, runtime=own))
    with_own_image = trainer.model_copy(update={"image": "example.org/torch:cuda"})
    assert submit_step(TrainJob(trainer=with_own_image, runtime=own)).attempt == 1


# -- what is warned about ------------------------------------------------------------------------------------------


def test_a_deprecated_runtime_is_used_with_a_warning(submit_step, create_runtime):
    own = create_runtime(extra_labels={"trainer.kubeflow.org/support": "deprecated"})
    with pytest.warns(UserWarning, match="the TrainingRuntime own is deprecated"):
        assert submit_step(TrainJob(trainer=CONTAINER, runtime=own)).attempt == 1


def test_gpus_of_the_runtime_that_the_request_does_not_set_cause_a_warning(submit_step, create_runtime):
    own = create_runtime(resources={"limits": {"nvidia.com/gpu": "2"}})

    def job_with(**resources):
        return TrainJob(trainer=CONTAINER.model_copy(update={"resources_per_node": resources or None}), runtime=own)

    with pytest.warns(UserWarning, match=r"own requests nvidia\.com/gpu, which resources_per_node does not set"):
        submit_step(job_with(cpu="1"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        submit_step(job_with(gpu="1"))
        submit_step(job_with())


# -- runtimes with a workspace ------------------------------------------------------------------------------------

OPTIONAL = sorted((Path(__file__).resolve().parents[3] / "manifests" / "runtimes").glob("workspace-*.yaml"))


@pytest.mark.parametrize("file", OPTIONAL, ids=lambda path: path.stem)
def test_a_fine_tuning_runs_on_an_optional_runtime_with_a_workspace(cluster, submit_step, namespace, file):
    """One TrainJob does all steps on the claim `workspace`, which is retained."""
    body = {**yaml.safe_load(file.read_text()), "kind": "TrainingRuntime"}
    path = f"{API}/namespaces/{namespace}/trainingruntimes"
    cluster._http.request("POST", path, doing="make a runtime", body=body)
    sources = {"dataset": "hf://demo/tickets/data", "model_initializer": "hf://demo/tiny-llama"}
    runtime = Runtime(name=file.stem, kind="TrainingRuntime")
    config = TorchTuneConfig(resources_per_node={"gpu": 1})
    model = file.stem.partition("-")[2]
    reference = submit_step(FineTune(model=model, config=config, runtime=runtime, queue="team", **sources))
    assert cluster.get_trainjob(reference.name, namespace)["spec"]["runtimeRef"]["name"] == file.stem


# -- the command --------------------------------------------------------------------------------------------------


def run_command(kubeconfig, *arguments):
    program = Path(sys.executable).with_name("trainjob")
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "200"}
    return subprocess.run([program, "runtimes", *arguments], env=environment, capture_output=True, text=True)


def test_runtimes_are_listed_and_described(laptop, create_runtime, namespace, evidence):
    create_runtime(
        "mine", extra_labels={"trainer.kubeflow.org/support": "deprecated"}, resources={"limits": {"cpu": "1"}}
    )
    listed, one, as_json = (
        run_command(laptop.kubeconfig, "-n", namespace, *more)
        for more in ([], ["torchtune-llama3.2-1b"], ["mine", "--json"])
    )
    assert [(done.returncode, done.stderr) for done in (listed, one, as_json)] == [(0, "")] * 3
    rows = {line.split()[0]: line.split()[1:] for line in listed.stdout.splitlines()}
    assert rows["NAME"] == ["KIND", "FRAMEWORK", "NODES", "DEVICES", "STEPS"]
    assert rows["torch-distributed"] == ["ClusterTrainingRuntime", "torch", "1", "-", "node"]
    assert rows["mine"] == ["(deprecated)", "TrainingRuntime", "torch", "1", "-", "node"]
    steps = ["dataset-initializer,", "model-initializer,", "node"]
    assert rows["torchtune-llama3.2-1b"] == ["ClusterTrainingRuntime", "torchtune", "1", "nvidia.com/gpu:", "2", *steps]
    image = "ghcr.io/kubeflow/trainer/torchtune-trainer:v2.3.0"
    assert f"Step          node (trainer): {image}, nvidia.com/gpu: 2\n" in one.stdout
    [found] = json.loads(as_json.stdout)
    assert (found["name"], found["namespace"], found["deprecated"]) == ("mine", namespace, True)
    evidence("features", row="runtimes", cell="real run")


def test_a_kind_that_the_user_may_not_list_is_reported(proxy, proxy_kubeconfig, create_runtime, namespace, tmp_path):
    create_runtime("mine")
    config = tmp_path / "config"
    config.write_text(proxy_kubeconfig)
    proxy.responses[CLUSTER_WIDE] = FORBIDDEN
    listed = run_command(config, "-n", namespace)
    assert (listed.returncode, listed.stderr) == (
        0,
        "no permission to list ClusterTrainingRuntimes; the list does not contain them\n",
    )
    _, row = listed.stdout.splitlines()
    assert row.split()[:2] == ["mine", "TrainingRuntime"]
    proxy.responses[f"{API}/namespaces/{namespace}/trainingruntimes"] = FORBIDDEN
    refused = run_command(config, "-n", namespace)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: no permission to list clustertrainingruntimes")


def test_a_missing_runtime_is_an_error(laptop):
    done = run_command(laptop.kubeconfig, "nope")
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no training runtime nope\n  -> existing runtimes: ")
    assert "torch-distributed" in done.stderr
