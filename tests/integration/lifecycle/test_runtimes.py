"""Runtimes: listed and described on the command line, and looked at before a TrainJob that names one is sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
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
    """Makes a runtime of the namespace; gives how a TrainJob names it."""

    def make(name="own", *, framework="torch", marks=None, step="trainer", job="node", container="node", **more):
        one = {"name": container, "image": "busybox", **more}
        template = {"metadata": {"labels": {STEP: step}} if step else {}}
        template["spec"] = {"template": {"spec": {"containers": [one]}}}
        body = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainingRuntime",
            "metadata": {
                "name": name,
                "labels": {"trainer.kubeflow.org/framework": framework, **(marks or {})},
            },
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {"spec": {"replicatedJobs": [{"name": job, "template": template}]}},
            },
        }
        path = f"{API}/namespaces/{namespace}/trainingruntimes"
        cluster._http.request("POST", path, doing="make a runtime", body=body)
        return Runtime(name=name, kind="TrainingRuntime")

    return make


@pytest.fixture
def submit_step(cluster, namespace, unique):
    """Submits to the test's own namespace."""
    tasks = iter(range(100))

    def submitted(request, through=cluster):
        key = RunKey("test", "runtimes", f"{unique}-{next(tasks)}", "run-1")
        return submit(through, request, key, namespace=namespace)

    return submitted


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop.server) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy_kubeconfig(proxy, laptop):
    """A kubeconfig that leads through a proxy that counts requests and can forbid them."""
    content = yaml.safe_load(Path(laptop.kubeconfig).read_text())
    content["clusters"][0]["cluster"] = {"server": proxy.url}
    return json.dumps(content)


@pytest.fixture
def proxied_cluster(proxy_kubeconfig):
    opened = Cluster(Connection(kubeconfig_json=proxy_kubeconfig), retry_seconds=5.0)
    yield opened
    opened.close()


def list_trainjobs(cluster, namespace):
    return cluster.list_trainjobs(namespace, "")


def runtime_requests(proxy):
    """Return the paths of the requests for runtimes."""
    return {asked: times for asked, times in proxy.requests.items() if "trainingruntimes" in asked}


# -- when it is read ----------------------------------------------------------------------------------------------


def test_the_default_runtime_is_not_read(proxy, proxied_cluster, submit_step):
    submit_step(TrainJob(trainer=CONTAINER), proxied_cluster)
    assert runtime_requests(proxy) == {}
    assert sum(proxy.requests.values()) == 4


def test_one_that_is_named_is_read_once(proxy, proxied_cluster, submit_step, create_runtime, namespace):
    job = TrainJob(trainer=CONTAINER, runtime=create_runtime())
    for _ in range(3):
        submit_step(job, proxied_cluster)
    assert runtime_requests(proxy) == {f"GET {API}/namespaces/{namespace}/trainingruntimes/own": 1}


def test_where_reading_is_forbidden_nothing_is_checked_and_nothing_fails(
    proxy, proxied_cluster, submit_step, create_runtime, namespace
):
    own = create_runtime(marks={"trainer.kubeflow.org/support": "deprecated"}, framework="mlx")
    path = f"{API}/namespaces/{namespace}/trainingruntimes"
    proxy.answers |= {f"{path}/own": FORBIDDEN, path: FORBIDDEN, CLUSTER_WIDE: FORBIDDEN}
    for _ in range(2):
        assert submit_step(TrainJob(trainer=CONTAINER, runtime=own), proxied_cluster).attempt == 1
    assert runtime_requests(proxy) == {f"GET {path}/own": 1}
    proxy.answers[f"{path}/gone"] = FORBIDDEN
    with pytest.raises(AdmissionRefused, match='"gone" not found'):
        submit_step(TrainJob(trainer=CONTAINER, runtime=Runtime(name="gone", kind="TrainingRuntime")), proxied_cluster)


def test_after_a_refusal_it_is_read_anew(proxy, proxied_cluster, submit_step, create_runtime, cluster, namespace):
    """A runtime that has gone meanwhile, and one that was never read."""
    own, path = create_runtime(), f"{API}/namespaces/{namespace}/trainingruntimes/own"
    submit_step(TrainJob(trainer=CONTAINER, runtime=own), proxied_cluster)
    cluster._http.request("DELETE", path, doing="delete a runtime")
    with pytest.raises(InvalidSpec, match=f"no such TrainingRuntime in namespace {namespace}"):
        submit_step(TrainJob(trainer=CONTAINER, runtime=own), proxied_cluster)
    post = f"POST {API}/namespaces/{namespace}/trainjobs"
    gone = json.dumps({"kind": "Status", "message": "denied the request: not found"}).encode()
    proxy.answers |= {post: (403, b'{"kind":"Status","message":"admission webhook \\"x\\" denied"}')}
    proxy.answers[f"{CLUSTER_WIDE}/torch-distributed"] = (404, gone)
    with pytest.raises(InvalidSpec, match=r"runtime: 'torch-distributed' is not allowed; there is no such Cluster"):
        submit_step(TrainJob(trainer=CONTAINER), proxied_cluster)


# -- what is refused ----------------------------------------------------------------------------------------------


def test_a_missing_one_is_told_with_those_that_are_there(cluster, submit_step, namespace):
    with pytest.raises(InvalidSpec) as refused:
        submit_step(TrainJob(trainer=CONTAINER, runtime="torch-distribted"))
    told = str(refused.value)
    assert told.startswith(
        "runtime: 'torch-distribted' is not allowed; there is no such ClusterTrainingRuntime: did you mean "
        "torch-distributed? (there are torch-distributed, "
    )
    assert "torchtune-qwen2.5-1.5b" in told
    assert list_trainjobs(cluster, namespace) == []


def test_one_of_the_other_kind_is_told(submit_step, create_runtime):
    name = create_runtime("mine").name
    with pytest.raises(InvalidSpec, match="the one of this name is a TrainingRuntime, so say kind='TrainingRuntime'"):
        submit_step(TrainJob(trainer=CONTAINER, runtime=name))
    with pytest.raises(InvalidSpec, match="is a ClusterTrainingRuntime, so say kind='ClusterTrainingRuntime'"):
        submit_step(TrainJob(trainer=CONTAINER, runtime=Runtime(name="torch-distributed", kind="TrainingRuntime")))


def test_a_builtin_trainer_needs_torchtune(submit_step, create_runtime):
    own = create_runtime("own-llama3.2-1b", framework="torch")
    trainer = BuiltinTrainer(config=TorchTuneConfig())
    with pytest.raises(InvalidSpec, match="needs a runtime of the framework torchtune, and this one's is torch"):
        submit_step(TrainJob(trainer=trainer, runtime=own))


def test_a_trainer_that_reaches_no_container(submit_step, create_runtime, cluster, namespace):
    for own in (create_runtime("plain", step=""), create_runtime("other", step="", container="main")):
        with pytest.raises(InvalidSpec, match="has a container node, so image, command would reach nothing"):
            submit_step(TrainJob(trainer=CONTAINER, runtime=own))
        assert submit_step(TrainJob(runtime=own)).attempt == 1  # what the runtime brings itself


def test_what_is_mounted_where_nothing_is(submit_step, create_runtime, cluster, namespace):
    own = create_runtime("single", step="", job="solo", container="main")
    rule = r"it has no replicated job node, which workspace, volumes or placement are to change; it has solo"
    with pytest.raises(InvalidSpec, match=rule):
        submit_step(TrainJob(runtime=own, placement=Placement(node_selector={"a": "b"})))
    other = create_runtime("main", step="", container="main")
    with pytest.raises(InvalidSpec, match="its replicated job node has no container node; it has main"):
        submit_step(TrainJob(runtime=other, workspace="w"))
    assert list_trainjobs(cluster, namespace) == []


def test_a_patch_that_somebody_wrote(submit_step, create_runtime):
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
def test_gpus_on_an_image_for_cpus(submit_step, create_runtime, image):
    own = create_runtime(image=image)
    trainer = CustomTrainerContainer(command=("true",), resources_per_node={"gpu": 1})
    with pytest.raises(InvalidSpec, match=f"its image {image} is for CPUs, .* asks for nvidia.com/gpu"):
        submit_step(TrainJob(trainer=trainer, runtime=own))
    with_its_own = trainer.model_copy(update={"image": "example.org/torch:cuda"})
    assert submit_step(TrainJob(trainer=with_its_own, runtime=own)).attempt == 1


# -- what is doubtful ---------------------------------------------------------------------------------------------


def test_a_deprecated_one_is_told_and_used(submit_step, create_runtime):
    own = create_runtime(marks={"trainer.kubeflow.org/support": "deprecated"})
    with pytest.warns(UserWarning, match="the TrainingRuntime own is deprecated"):
        assert submit_step(TrainJob(trainer=CONTAINER, runtime=own)).attempt == 1


def test_gpus_of_the_runtime_that_the_request_does_not_mention(submit_step, create_runtime):
    own = create_runtime(resources={"limits": {"nvidia.com/gpu": "2"}})

    def asking(**resources):
        return TrainJob(trainer=CONTAINER.model_copy(update={"resources_per_node": resources or None}), runtime=own)

    with pytest.warns(UserWarning, match=r"own brings nvidia\.com/gpu, of which resources_per_node says nothing"):
        submit_step(asking(cpu="1"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        submit_step(asking(gpu="1"))
        submit_step(asking())


# -- runtimes over a workspace ------------------------------------------------------------------------------------

OPTIONAL = sorted((Path(__file__).resolve().parents[3] / "manifests" / "runtimes").glob("workspace-*.yaml"))


@pytest.mark.parametrize("file", OPTIONAL, ids=lambda path: path.stem)
def test_a_fine_tuning_on_a_runtime_over_a_workspace(cluster, submit_step, namespace, file):
    """All in one TrainJob, over the claim `workspace`, which stays."""
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


def test_they_are_listed_and_described(laptop, create_runtime, namespace, evidence):
    create_runtime("mine", marks={"trainer.kubeflow.org/support": "deprecated"}, resources={"limits": {"cpu": "1"}})
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


def test_a_kind_that_may_not_be_listed_is_told(proxy, proxy_kubeconfig, create_runtime, namespace, tmp_path):
    create_runtime("mine")
    config = tmp_path / "config"
    config.write_text(proxy_kubeconfig)
    proxy.answers[CLUSTER_WIDE] = FORBIDDEN
    listed = run_command(config, "-n", namespace)
    assert (listed.returncode, listed.stderr) == (
        0,
        "no permission to list ClusterTrainingRuntimes: they are left out\n",
    )
    _, row = listed.stdout.splitlines()
    assert row.split()[:2] == ["mine", "TrainingRuntime"]
    proxy.answers[f"{API}/namespaces/{namespace}/trainingruntimes"] = FORBIDDEN
    refused = run_command(config, "-n", namespace)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: no permission to list clustertrainingruntimes")


def test_one_that_is_not_there(laptop):
    done = run_command(laptop.kubeconfig, "nope")
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no training runtime nope\n  -> there are: ")
    assert "torch-distributed" in done.stderr
