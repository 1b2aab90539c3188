"""Tests of the hostfile and the ssh keys of MPIJobs, which old operators and the Trainer mount in different places."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.migrate.test_mpi_jobs import V1, V2, mpi_job, pod_specs
from trainjob_migrate import convert

ROOT_FOLDER, USER_FOLDER = "/root/.ssh", "/home/mpi/.ssh"


def user(number):
    return {"securityContext": {"runAsUser": number}}


def mount(name, path, **more):
    return {"name": name, "mountPath": path, **more}


def init_container(*mounts, **more):
    return {"initContainers": [{"name": "order", "image": "order:1", "volumeMounts": list(mounts), **more}]}


def topics(conversion):
    return [finding.topic for finding in conversion.findings]


@pytest.mark.parametrize("version", [V1, V2])
def test_root_gets_copies_of_the_keys_that_only_root_can_read(version):
    """Trainer 2.3 mounts the private key with mode 0640, which ssh refuses if the key belongs to the user."""
    found = convert(mpi_job(version, launcher={"imagePullPolicy": "Never"}))
    assert found.runtime["spec"]["mlPolicy"]["mpi"]["sshAuthMountPath"] == "/etc/mpi-ssh-auth"
    for pod in pod_specs(found).values():
        [copy], [container], [volume] = pod["initContainers"], pod["containers"], pod["volumes"]
        assert copy["command"][2:] == [
            'cp -L "$0"/* "$1"/ && chmod 600 "$1"/* && chmod 700 "$1"',
            "/etc/mpi-ssh-auth",
            ROOT_FOLDER,
        ]
        keys = mount("mpi-ssh-keys", ROOT_FOLDER)
        assert copy["volumeMounts"] == [mount("mpi-ssh-auth", "/etc/mpi-ssh-auth"), keys]
        assert keys in container["volumeMounts"]
        assert volume == {"name": "mpi-ssh-keys", "emptyDir": {"medium": "Memory"}}
        assert copy["image"] == "weather:1"
    assert pod_specs(found)["launcher"]["initContainers"][0]["imagePullPolicy"] == "Never"
    assert "ssh-keys" in topics(found)
    assert "&" not in yaml.safe_dump(found.runtime["spec"]["template"]).replace("&&", "")


def test_the_copies_use_the_memory_of_their_container():
    """A pod keeps its quality of service only if each container has limits."""
    given = {"limits": {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 8}, "requests": {"cpu": 1}}
    [copy] = pod_specs(convert(mpi_job(worker={"resources": given})))["node"]["initContainers"]
    assert copy["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}


def test_a_user_other_than_root_reads_the_keys_by_their_group():
    found = convert(
        mpi_job(
            sshAuthMountPath=USER_FOLDER,
            launcher=user(1000),
            worker=user(1000),
            worker_pod={"securityContext": {"fsGroup": 7}},
        )
    )
    assert found.runtime["spec"]["mlPolicy"]["mpi"]["sshAuthMountPath"] == USER_FOLDER
    pods = pod_specs(found)
    assert [pods[role]["securityContext"]["fsGroup"] for role in ("launcher", "node")] == [1000, 7]
    assert "initContainers" not in pods["launcher"]
    assert "ssh-keys" not in topics(found)


@pytest.mark.parametrize(
    ("container", "pod", "folder", "is_root"),
    [
        ({}, {}, ROOT_FOLDER, True),
        ({}, {}, USER_FOLDER, False),
        ({}, user(0), USER_FOLDER, True),
        (user(0), user(1000), ROOT_FOLDER, True),
        (user(1000), user(0), ROOT_FOLDER, False),
        ({}, {"securityContext": {"runAsNonRoot": True}}, ROOT_FOLDER, False),
    ],
)
def test_the_user_of_the_container_decides(container, pod, folder, is_root):
    found = convert(
        mpi_job(sshAuthMountPath=folder, launcher=container, worker=container, launcher_pod=pod, worker_pod=pod)
    )
    assert ("ssh-keys" in topics(found)) is is_root
    assert ("fsGroup" in pod_specs(found)["node"].get("securityContext", {})) is not is_root


def test_an_explicit_root_of_the_container_also_copies_the_keys():
    found = pod_specs(convert(mpi_job(worker=user(0), worker_pod={"securityContext": {"runAsUser": 7}})))
    assert found["node"]["initContainers"][0]["securityContext"] == {"runAsUser": 0}


def test_other_containers_mount_the_volumes_of_the_trainer():
    pod = init_container(
        mount("mpi-job-config", "/etc/mpi"), mount("ssh-auth", ROOT_FOLDER), command=["cat", "/etc/mpi/hostfile"]
    )
    found = convert(mpi_job(launcher_pod=pod))
    copy, order = pod_specs(found)["launcher"]["initContainers"]
    assert (copy["name"], order["name"]) == ("mpi-ssh-keys", "order")
    assert order["volumeMounts"] == [mount("mpi-hostfile", "/etc/mpi"), mount("mpi-ssh-keys", ROOT_FOLDER)]


def test_without_copies_they_mount_the_keys_of_the_trainer():
    pod = {**init_container(mount("ssh-auth", USER_FOLDER)), "securityContext": {"runAsUser": 1000}}
    found = convert(mpi_job(launcher_pod=pod, worker=user(1000)))
    [order] = pod_specs(found)["launcher"]["initContainers"]
    assert order["volumeMounts"] == [mount("mpi-ssh-auth", USER_FOLDER)]


@pytest.mark.parametrize(
    "pod",
    [
        init_container(mount("mpi-job-config", "/x", subPath="discover_hosts.sh")),
        init_container(mount("mpi-job-config", "/etc/mpi"), command=["sh", "/etc/mpi/discover_hosts.sh"]),
    ],
)
def test_the_script_with_the_hosts_is_refused(pod):
    assert len(convert(mpi_job(launcher_pod=pod)).blockers) == 1


def test_v1_has_no_volume_with_ssh_keys():
    [blocker] = convert(mpi_job(V1, launcher_pod=init_container(mount("ssh-auth", "/x")))).blockers
    assert "ssh-auth" in blocker.reason


def test_a_volume_of_the_job_keeps_its_name():
    pod = {**init_container(mount("ssh-auth", "/x")), "volumes": [{"name": "ssh-auth", "emptyDir": {}}]}
    found = convert(mpi_job(launcher_pod=pod))
    assert pod_specs(found)["launcher"]["initContainers"][1]["volumeMounts"] == [mount("ssh-auth", "/x")]


@pytest.mark.parametrize("name", ["mpi-ssh-auth", "mpi-hostfile", "mpi-ssh-keys"])
def test_a_volume_with_a_name_of_the_trainer_is_refused(name):
    """The Trainer would replace it by its own."""
    [blocker] = convert(mpi_job(worker_pod={"volumes": [{"name": name, "emptyDir": {}}]})).blockers
    assert blocker.path == "spec.mpiReplicaSpecs.Worker.template.spec.volumes[0].name"


def test_a_mount_of_the_job_in_the_folder_of_the_keys_is_refused():
    """The API server accepts one mount at a path."""
    pod = {"volumes": [{"name": "own", "secret": {"secretName": "keys"}}]}
    job = mpi_job(V1, worker={"volumeMounts": [mount("own", "/data"), mount("own", "/root/.ssh/")]}, worker_pod=pod)
    [blocker] = convert(job).blockers
    assert blocker.path == "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].volumeMounts[1]"


def test_the_folder_of_the_keys_is_recorded_where_the_copies_are():
    for folder, target in ((ROOT_FOLDER, "pod.spec.initContainers"), (USER_FOLDER, "mlPolicy.mpi.sshAuthMountPath")):
        [record] = (
            one for one in convert(mpi_job(sshAuthMountPath=folder)).fields if one.path == "spec.sshAuthMountPath"
        )
        assert record.target == f"TrainingRuntime {target}"


@pytest.mark.parametrize(
    ("pod", "place"),
    [
        ({"volumes": [{"name": "keys", "secret": {"secretName": "weather-ssh"}}]}, "volumes[0].secret.secretName"),
        (
            {"volumes": [{"name": "all", "projected": {"sources": [{"configMap": {"name": "weather-config"}}]}}]},
            "volumes[0].projected.sources[0].configMap.name",
        ),
        (
            init_container(envFrom=[{"secretRef": {"name": "weather-ssh"}}]),
            "initContainers[0].envFrom[0].secretRef.name",
        ),
    ],
)
def test_a_reference_to_an_object_of_the_old_operator_is_refused(pod, place):
    """The pod would wait forever for the object."""
    [blocker] = convert(mpi_job(launcher_pod=pod)).blockers
    assert blocker.path == f"spec.mpiReplicaSpecs.Launcher.template.spec.{place}"
    assert "creates this" in blocker.reason


def test_references_to_other_objects_are_kept():
    pod = {
        "volumes": [{"name": "a", "secret": {"secretName": "weather-config"}}, {"name": "weather-ssh", "emptyDir": {}}]
    }
    assert convert(mpi_job(launcher_pod=pod)).blockers == ()
