"""Other clients of Kubernetes on the laptop cluster: kr8s, lightkube and kubernetes_asyncio, each in their own way."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.support.uv import UV

PACKAGES = ("kr8s==0.20.15", "lightkube==1.0.1", "kubernetes_asyncio==36.1.0")
TRAINJOB = """
job = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": NAME, "namespace": "default"},
    "spec": {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"image": "busybox", "command": ["echo", "hello"], "numNodes": 1.0},
    },
}
selector = f"jobset.sigs.k8s.io/jobset-name={NAME}"
"""
PROGRAMS = {
    "kr8s": """
        import kr8s
        from kr8s.objects import new_class

        TrainJob = new_class("TrainJob", version="trainer.kubeflow.org/v1alpha1", namespaced=True)
        one = TrainJob(job)
        one.create()
        for _, found in one.watch():
            conditions = found.raw.get("status", {}).get("conditions", [])
            if any((each["type"], each["status"]) == ("Complete", "True") for each in conditions):
                break
        [pod] = kr8s.get("pods", namespace="default", label_selector=selector)
        print(*pod.logs())
        one.label({"team": "nlp"})
        assert TrainJob.get(NAME, namespace="default").labels["team"] == "nlp"
        one.delete()
    """,
    "lightkube": """
        from lightkube import Client
        from lightkube.generic_resource import create_namespaced_resource
        from lightkube.models.coordination_v1 import LeaseSpec
        from lightkube.models.meta_v1 import ObjectMeta
        from lightkube.resources.coordination_v1 import Lease
        from lightkube.resources.core_v1 import Pod

        TrainJob = create_namespaced_resource("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
        client = Client(namespace="default", field_manager="test")
        client.create(TrainJob.from_dict(job))
        client.wait(TrainJob, NAME, for_conditions=["Complete"])
        [pod] = client.list(Pod, labels={"jobset.sigs.k8s.io/jobset-name": NAME})
        print(*(line.strip() for line in client.log(pod.metadata.name)))
        lease = Lease(metadata=ObjectMeta(name=NAME), spec=LeaseSpec(holderIdentity="a", leaseDurationSeconds=15))
        client.apply(lease)
        assert client.get(Lease, NAME).spec.holderIdentity == "a"
        client.delete(TrainJob, NAME)
    """,
    "kubernetes_asyncio": """
        import asyncio

        from kubernetes_asyncio import client, config, watch

        async def main():
            await config.load_kube_config()
            async with client.ApiClient() as api:
                jobs, core = client.CustomObjectsApi(api), client.CoreV1Api(api)
                where = ("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs")
                await jobs.create_namespaced_custom_object(*where, job)
                async with watch.Watch() as events:
                    listing = jobs.list_namespaced_custom_object
                    async for event in events.stream(listing, *where, field_selector=f"metadata.name={NAME}"):
                        found = event["object"].get("status", {}).get("conditions", [])
                        if any((one["type"], one["status"]) == ("Complete", "True") for one in found):
                            break
                pods = await core.list_namespaced_pod("default", label_selector=selector)
                print((await core.read_namespaced_pod_log(pods.items[0].metadata.name, "default")).strip())
                reviews = client.AuthorizationV1Api(api)
                attributes = client.V1ResourceAttributes(verb="create", resource="pods", namespace="default")
                spec = client.V1SubjectAccessReviewSpec(user="a", resource_attributes=attributes)
                review = await reviews.create_subject_access_review(client.V1SubjectAccessReview(spec=spec))
                assert review.status.allowed is False
                await jobs.delete_namespaced_custom_object(*where, NAME)

        asyncio.run(main())
    """,
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Return the interpreter of an environment with the clients."""
    folder = tmp_path_factory.mktemp("clients") / "venv"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, folder], check=True)
    subprocess.run([UV, "pip", "install", "-q", "--python", folder, *PACKAGES], check=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_client_runs_a_trainjob(name, python, laptop, unique):
    program = f"NAME = {unique!r}\n{TRAINJOB}{textwrap.dedent(PROGRAMS[name])}"
    environment = {**os.environ, "KUBECONFIG": str(laptop.kubeconfig)}
    done = subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["hello"]), done.stderr
