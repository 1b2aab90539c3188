"""Tests of MPIJobs of both operators.

Launcher and workers are in a runtime of their own, and connect by ssh.
"""

from __future__ import annotations

import pytest

from trainjob_migrate import Readiness, convert

V1, V2 = "kubeflow.org/v1", "kubeflow.org/v2beta1"


def mpi_job(version=V2, *, launcher=None, worker=None, workers=2, launcher_pod=None, worker_pod=None, **spec):
    """Return an MPIJob.

    `launcher` and `worker` are fields of the containers, `spec` of the job.
    """

    def template(container, pod):
        return {"spec": {**(pod or {}), "containers": [{"name": "mpi", "image": "weather:1", **(container or {})}]}}

    return {
        "apiVersion": version,
        "kind": "MPIJob",
        "metadata": {"name": "weather"},
        "spec": {
            **spec,
            "mpiReplicaSpecs": {
                "Launcher": {
                    "template": template({"command": ["mpirun", "/weather"], **(launcher or {})}, launcher_pod)
                },
                "Worker": {"replicas": workers, "template": template(worker, worker_pod)},
            },
        },
    }


def pod_specs(conversion):
    """Return the pod specs of the generated runtime, by replicated job."""
    jobs = conversion.runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}


def blocker_reasons(conversion):
    return {record.path: record.reason for record in conversion.blockers}


def test_the_launcher_is_no_node_and_slots_are_processes():
    found = convert(mpi_job(slotsPerWorker=4))
    policy = found.runtime["spec"]["mlPolicy"]["mpi"]
    assert policy == {
        "numProcPerNode": 1,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": "/etc/mpi-ssh-auth",
        "runLauncherAsNode": False,
    }
    trainer = found.train_job["spec"]["trainer"]
    assert trainer == {"image": "weather:1", "command": ["mpirun", "/weather"], "numNodes": 2, "numProcPerNode": 4}
    assert "launcher" in [finding.topic for finding in found.findings]
    assert found.readiness is Readiness.COMPLEX


def test_slots_are_always_set_because_the_trainer_would_count_gpus():
    found = convert(mpi_job(worker={"resources": {"limits": {"nvidia.com/gpu": 8}}}))
    assert found.train_job["spec"]["trainer"]["numProcPerNode"] == 1


def test_a_launcher_that_trains_is_one_of_the_nodes():
    found = convert(mpi_job(runLauncherAsWorker=True))
    assert found.runtime["spec"]["mlPolicy"]["mpi"]["runLauncherAsNode"] is True
    assert found.train_job["spec"]["trainer"]["numNodes"] == 3
    assert "launcher" not in [finding.topic for finding in found.findings]
    [record] = [one for one in found.fields if one.path == "spec.runLauncherAsWorker"]
    assert record.reason == "rank 0 is on the first node: the launcher is the last host"


@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": 1}, {"nvidia.com/mig-1g.5gb": 1}])
def test_a_v1_launcher_with_a_gpu_is_one_of_the_nodes(limits):
    """Only the name of the resource decides (training-operator 1.9 pkg/controller.v1/mpi/mpijob.go, isGPULauncher)."""
    found = convert(mpi_job(V1, launcher={"resources": {"limits": limits}}))
    trains = "nvidia.com/gpu" in limits
    assert found.runtime["spec"]["mlPolicy"]["mpi"]["runLauncherAsNode"] is trains
    assert found.train_job["spec"]["trainer"]["numNodes"] == 2 + trains
    env = [one["name"] for one in pod_specs(found)["launcher"]["containers"][0].get("env", [])]
    assert ("NVIDIA_VISIBLE_DEVICES" in env) is not trains


def test_a_v2_launcher_that_does_not_train_never_sees_gpus():
    found = convert(mpi_job(launcher={"resources": {"limits": {"nvidia.com/gpu": 1}}}))
    env = [one["name"] for one in pod_specs(found)["launcher"]["containers"][0]["env"]]
    assert "NVIDIA_VISIBLE_DEVICES" in env


@pytest.mark.parametrize(("version", "policy"), [(V2, "ClusterFirstWithHostNet"), (V1, None)])
def test_pods_in_the_network_of_their_host_look_up_hosts_of_the_cluster(version, policy):
    """Only mpi-operator sets the policy."""
    found = pod_specs(convert(mpi_job(version, worker_pod={"hostNetwork": True})))
    assert (found["node"].get("dnsPolicy"), found["launcher"].get("dnsPolicy")) == (policy, None)


def test_ports_are_kept_because_they_belong_to_the_host():
    ports = [{"name": "mpijob-port", "containerPort": 2222}]
    pod = {"hostNetwork": True}
    found = pod_specs(convert(mpi_job(launcher={"ports": ports}, launcher_pod=pod, worker={"ports": ports})))
    assert [one["containers"][0]["ports"] for one in found.values()] == [ports, ports]


def test_launcher_and_workers_have_their_own_pods_and_the_launcher_sees_no_gpus():
    found = convert(
        mpi_job(
            launcher={"resources": {"limits": {"cpu": 1}}, "env": [{"name": "A", "value": "1"}]},
            worker={"resources": {"limits": {"nvidia.com/gpu": 1}}, "volumeMounts": [{"name": "d", "mountPath": "/d"}]},
            launcher_pod={"nodeSelector": {"pool": "cpu"}},
            worker_pod={"nodeSelector": {"pool": "gpu"}, "volumes": [{"name": "d", "emptyDir": {}}]},
        )
    )
    launcher, node = pod_specs(found)["launcher"], pod_specs(found)["node"]
    assert (launcher["nodeSelector"], node["nodeSelector"]) == ({"pool": "cpu"}, {"pool": "gpu"})
    assert launcher["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert node["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert {"name": "d", "mountPath": "/d"} in node["containers"][0]["volumeMounts"]
    assert {one["name"]: one["value"] for one in launcher["containers"][0]["env"]} == {
        "K_MPI_JOB_ROLE": "launcher",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
        "A": "1",
    }
    assert "env" not in found.train_job["spec"]["trainer"]


@pytest.mark.parametrize("version", [V1, V2])
def test_workers_without_a_command_run_an_ssh_server(version):
    [container] = pod_specs(convert(mpi_job(version)))["node"]["containers"]
    assert (container["command"], container.get("args")) == (["/usr/sbin/sshd", "-De"], None)


def test_a_sleeping_v1_worker_runs_an_ssh_server():
    found = convert(mpi_job(V1, worker={"command": ["sleep"], "args": ["365d"]}))
    [container] = pod_specs(found)["node"]["containers"]
    assert (container["command"], container.get("args")) == (["/usr/sbin/sshd", "-De"], None)
    assert "ssh" in [finding.topic for finding in found.findings]


def test_a_v1_worker_with_its_own_program_is_refused():
    [(path, reason)] = blocker_reasons(
        convert(mpi_job(V1, worker={"command": ["sh", "-c", "prepare; sleep 365d"]}))
    ).items()
    assert path == "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].command"
    assert "/usr/sbin/sshd" in reason


def test_a_v2_worker_keeps_its_own_ssh_server():
    own = {"command": ["/usr/sbin/sshd"], "args": ["-De", "-f", "/home/mpiuser/.sshd_config"]}
    [container] = pod_specs(convert(mpi_job(worker=own)))["node"]["containers"]
    assert {key: container[key] for key in own} == own


@pytest.mark.parametrize("implementation", ["Intel", "MPICH"])
def test_other_implementations_are_refused(implementation):
    found = convert(mpi_job(mpiImplementation=implementation))
    assert list(blocker_reasons(found)) == ["spec.mpiImplementation"]
    assert (found.train_job, found.runtime) == (None, None)


@pytest.mark.parametrize("workers", [0, None])
def test_a_job_without_workers_is_refused(workers):
    assert list(blocker_reasons(convert(mpi_job(workers=workers)))) == ["spec.mpiReplicaSpecs"]


def test_files_of_the_old_operator_are_refused():
    words = ["horovodrun", "--host-discovery-script", "/etc/mpi/discover_hosts.sh", "python", "train.py"]
    [(path, reason)] = blocker_reasons(convert(mpi_job(V1, launcher={"command": words}))).items()
    assert path.endswith("Launcher.template.spec.containers[0].command[2]")
    assert "/etc/mpi/discover_hosts.sh" in reason


@pytest.mark.parametrize(
    ("version", "replica", "policy", "limit", "expected"),
    [
        (V2, {}, {}, None, ("OnFailure", None)),
        (V2, {"restartPolicy": "Never"}, {"backoffLimit": 3}, 3, ("Never", 3)),
        (V1, {}, {"backoffLimit": 3}, None, ("Never", 0)),
        (V1, {"restartPolicy": "OnFailure"}, {"backoffLimit": 3}, 3, ("OnFailure", 3)),
    ],
)
def test_the_restart_policy_of_the_launcher(version, replica, policy, limit, expected):
    job = mpi_job(version, runPolicy=policy)
    job["spec"]["mpiReplicaSpecs"]["Launcher"].update(replica)
    found = convert(job)
    launcher = found.runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]
    assert (launcher["template"]["spec"]["restartPolicy"], launcher.get("backoffLimit")) == expected


def test_restarts_by_exit_code_are_refused():
    job = mpi_job(V1)
    job["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
    assert list(blocker_reasons(convert(job))) == ["spec.mpiReplicaSpecs.Worker.restartPolicy"]


def test_the_launcher_waits_for_the_nodes():
    found = convert(mpi_job(launcherCreationPolicy="WaitForWorkersReady"))
    [_, launcher] = found.runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert launcher["dependsOn"] == [{"name": "node", "status": "Ready"}]


def test_host_names_of_workers_are_replaced():
    line = "ping weather-worker-1.weather.default.svc && mpirun -host weather-worker-0 /weather"
    found = convert(mpi_job(launcher={"command": ["sh", "-c", line]}))
    assert found.train_job["spec"]["trainer"]["command"][2] == (
        "ping $(JOBSET_NAME)-node-0-1.$(JOBSET_NAME).default.svc && "
        "mpirun -host $(JOBSET_NAME)-node-0-0.$(JOBSET_NAME) /weather"
    )


def test_the_host_of_the_launcher_is_replaced():
    env = [{"name": "SERVER", "value": "http://weather-launcher.weather.default.svc:8080"}]
    found = convert(mpi_job(worker={"env": env}))
    [container] = pod_specs(found)["node"]["containers"]
    assert container["env"][-1]["value"] == "http://$(JOBSET_NAME)-launcher-0-0.$(JOBSET_NAME).default.svc:8080"
    assert "hosts" in [finding.topic for finding in found.findings]


@pytest.mark.parametrize("name", ["weather-launcher", "weather-worker"])
def test_a_name_that_may_be_a_host_is_a_finding(name):
    found = convert(mpi_job(launcher={"command": ["sh", "-c", f"nslookup {name} && mpirun /weather"]}))
    assert name in found.train_job["spec"]["trainer"]["command"][2]
    [finding] = (one for one in found.findings if one.topic == "names")
    assert f": nslookup {name} &&" in finding.what


def test_variables_of_v1_workers_are_a_finding_because_ssh_does_not_pass_them():
    worker = {"env": [{"name": "REGION", "value": "north"}], "envFrom": [{"secretRef": {"name": "s"}}]}
    [finding] = (one for one in convert(mpi_job(V1, worker=worker)).findings if one.topic == "environment")
    assert "REGION, those of envFrom" in finding.what
    assert "environment" not in [one.topic for one in convert(mpi_job(V2, worker=worker)).findings]
    assert "environment" not in [one.topic for one in convert(mpi_job(V1)).findings]


def test_the_job_ends_with_its_launcher():
    found = convert(mpi_job(runPolicy={"cleanPodPolicy": "None"}))
    [record] = (one for one in found.fields if one.path == "spec.runPolicy.cleanPodPolicy")
    assert record.reason.endswith("which is complete when the launcher is")
    assert found.runtime["spec"]["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["launcher"]


def test_a_priority_class_applies_to_launcher_and_nodes():
    found = pod_specs(convert(mpi_job(runPolicy={"schedulingPolicy": {"priorityClass": "high"}})))
    assert [pod["priorityClassName"] for pod in found.values()] == ["high", "high"]


def test_the_main_container_of_v1_is_the_training_container():
    job = mpi_job(V1, mainContainer="mpi")
    for replica in job["spec"]["mpiReplicaSpecs"].values():
        replica["template"]["spec"]["containers"].insert(0, {"name": "proxy", "image": "proxy:1"})
    found = convert(job)
    assert [one["name"] for one in pod_specs(found)["node"]["containers"]] == ["node", "proxy"]
    assert found.train_job["spec"]["trainer"]["image"] == "weather:1"
