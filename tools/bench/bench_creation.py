"""Time and requests from the start of a process to its TrainJob in the cluster.

It compares the `train` component with a component that uses the Kubeflow SDK, both started as by KFP's executor. As a
program, bench_creation.py runs in the environment of Kubeflow Pipelines and prints the values of each start as JSON.
"""

import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.support.markdown import table
from tools.bench.sizes import size

STARTS = size(15, 1)
_MAX_SECONDS = 1.0
_ROOT = Path(__file__).resolve().parents[2]
_NAMESPACE = "/api/v1/namespaces/default"
CLIENTS = {"trainjob": "`train` of kfp-trainjob", "sdk": "a component with the Kubeflow SDK's `TrainerClient.train`"}


def measure():
    """Return the seconds of each start, and the number of requests, by client.

    The starts are measured in the environment of Kubeflow Pipelines, whichever environment the caller has.
    """
    python = _ROOT / ".venv" / "kfp" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run([str(python), __file__], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


class CreationTimes:
    """The times at which TrainJobs were created, as a watch sees them."""

    def __init__(self, kubeconfig):
        from kubernetes import client, config

        self._api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
        self._created: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self):
        from kubernetes import watch

        where = ("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs")
        for event in watch.Watch().stream(self._api.list_namespaced_custom_object, *where, timeout_seconds=900):
            if event["type"] == "ADDED":
                self._created.put((time.perf_counter(), event["raw_object"]["metadata"]["name"]))

    def wait_for_next(self):
        """Return the time of the next creation, and delete the TrainJob immediately."""
        moment, name = self._created.get(timeout=60)
        with suppress(Exception):
            self._api.delete_namespaced_custom_object("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs", name)
        return moment


def _sdk_component():
    from kfp import dsl

    @dsl.component(base_image="python:3.12", install_kfp_package=False)
    def train_with_sdk(image: str):
        from kubeflow.trainer import CustomTrainerContainer, TrainerClient

        TrainerClient().train(runtime="torch-distributed", trainer=CustomTrainerContainer(image=image))

    return train_with_sdk


def _create_launcher_pod(cluster):
    """Create a launcher pod like those of Argo and KFP, and return its name."""
    name = f"tickets-{uuid.uuid4().hex[:8]}"
    metadata = {
        "name": name,
        "labels": {"workflows.argoproj.io/workflow": "tickets", "pipeline/runid": str(uuid.uuid4())},
        "annotations": {"workflows.argoproj.io/node-name": "tickets.root.train.executor(0)"},
    }
    container = {"name": "main", "image": "busybox", "command": ["sleep", "600"]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster._http.request("POST", f"{_NAMESPACE}/pods", doing="create a pod", body=pod)
    return name


def _measure_start(command, environment, creations):
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return creations.wait_for_next() - began
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def _measure_starts(folder):
    from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
    from tests.support.kfp_pods import CompiledComponent
    from trainjob.client import Cluster, Connection
    from trainjob_kfp import train
    from trainjob_local import LocalCluster

    seconds: dict[str, list[float]] = {who: [] for who in CLIENTS}
    requests: dict[str, int] = {}
    with ExitStack() as stack:
        laptop = stack.enter_context(LocalCluster())
        cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))
        stack.callback(cluster.close)
        creations = CreationTimes(laptop.kubeconfig)
        components = {}
        for who, component in (("trainjob", train), ("sdk", _sdk_component())):
            (folder / who).mkdir()
            components[who] = CompiledComponent(component, folder / who)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # a component's command is `python3`
        inherited = {**os.environ, "PATH": path, "KUBECONFIG": str(laptop.kubeconfig)}
        for start in range(STARTS + 1):  # the first start fills the system's file cache
            for who, component in components.items():
                environment = {**inherited, "KFP_POD_NAME": _create_launcher_pod(cluster)}
                took = _measure_start(component.command_line(folder, image="busybox"), environment, creations)
                seconds[who] += [took] if start else []
        proxy = stack.enter_context(ApiServerProxy(laptop))
        kubeconfig = json.loads(laptop.kubeconfig.read_text())
        kubeconfig["clusters"][0]["cluster"] = {"server": proxy.url}
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        for who, component in components.items():
            environment = {**inherited, "KFP_POD_NAME": _create_launcher_pod(cluster)}
            environment["KUBECONFIG"] = str(folder / "kubeconfig")
            proxy.request_counts.clear()
            _measure_start(component.command_line(folder, image="busybox"), environment, creations)
            sent = list(proxy.request_counts)  # in the order of the first request of each kind
            requests[who] = 1 + next(n for n, request in enumerate(sent) if request.startswith("POST"))
    return {"seconds": seconds, "requests": requests}


_TEXT = """## Creation by a pipeline component

This table shows the time from the start of a component's process until a watch sees its TrainJob in the laptop
cluster. The processes run the command lines of two compiled components for the same job in the same environment (kfp
2.17, Kubeflow SDK 0.5). Each component is started {starts} times, in turn. The component of this project also reads
its own pod, lists the TrainJobs of earlier tries, looks for the JobSet and the pods of a deleted TrainJob, and opens
the connections that delete the TrainJob if the step is terminated. In both, imports take most of the time. The requests
are those up to the creation.

{rows}"""


def section(found):
    """Format the measured values as a Markdown section."""
    statistic = (statistics.median, min, max)
    rows = [
        (CLIENTS[who], *(f"{f(seconds):.2f} s" for f in statistic), found["requests"][who])
        for who, seconds in found["seconds"].items()
    ]
    return _TEXT.format(starts=STARTS, rows=table(("Component", "Median", "Fastest", "Slowest", "Requests"), rows))


def goals(found):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    median = statistics.median(found["seconds"]["trainjob"])
    goal = f"a KFP launcher has created its TrainJob at most {_MAX_SECONDS:.1f} s after its start (median)"
    yield goal, median <= _MAX_SECONDS, f"{median:.2f} s"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        sys.stdout.write(json.dumps(_measure_starts(Path(name))))
