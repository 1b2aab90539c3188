"""Conversion of an MPIJob of either operator, with a generated TrainingRuntime.

The runtime is similar to `deepspeed-distributed`.

Sources: training-operator 1.9 pkg/apis/kubeflow.org/v1/mpi_types.go and pkg/controller.v1/mpi (kubeflow.org/v1), whose
launcher reaches the workers by kubectl exec; mpi-operator 0.8 pkg/apis/kubeflow/v2beta1/types.go and pkg/controller
(kubeflow.org/v2beta1), by ssh; Trainer 2.3 manifests/base/runtimes/deepspeed_distributed.yaml and
pkg/runtime/framework/plugins/mpi/mpi.go, by ssh.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import basename
from typing import Any

from trainjob.status.nested_fields import get_list, get_mapping, get_str
from trainjob_migrate.container import find_container
from trainjob_migrate.draft import Draft, RuntimeShape
from trainjob_migrate.environment import Launch
from trainjob_migrate.field_records import Path
from trainjob_migrate.hosts import set_host_names
from trainjob_migrate.mpi_files import MpiPod, provide_keys, refuse_operator_objects, use_trainer_volumes
from trainjob_migrate.pod_template import convert_template
from trainjob_migrate.replicas import Replicas, convert_count, find_replicas
from trainjob_migrate.run_policy import convert_run_policy

_SPECS: Path = ("spec", "mpiReplicaSpecs")
_POLICY: Path = ("spec", "runPolicy")
_SSHD = ["/usr/sbin/sshd", "-De"]
_IDLE = ("sleep", "tail")
# Trainer 2.3 pkg/constants/constants.go, MPIReservedEnvNames.
_RESERVED = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)
_NO_GPUS = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
_FIELDS = ("sshAuthMountPath", "mpiImplementation", "runLauncherAsWorker", "launcherCreationPolicy")


def convert_mpi(draft: Draft, job: Mapping[str, Any], _: Launch) -> None:
    """Convert an MPIJob into the draft."""
    spec = get_mapping(job, "spec")
    launcher, worker = (find_replicas(spec.get("mpiReplicaSpecs"), _SPECS, role) for role in ("Launcher", "Worker"))
    if launcher is None or worker is None or not worker.spec.get("replicas"):
        reason = "the job must have a Launcher and a Worker: the Trainer always creates a node beside the launcher"
        draft.fields.mark_refused(_SPECS, reason)
        draft.fields.mark_unchecked(("spec",), _SPECS)
        return
    by_kubectl = job.get("apiVersion") == "kubeflow.org/v1"
    also_trains = _has_gpu(launcher) if by_kubectl else spec.get("runLauncherAsWorker") is True
    folder = get_str(spec, "sshAuthMountPath") or "/root/.ssh"
    draft.shape = _shape(folder, launcher_trains=also_trains)
    set_host_names(draft, {"worker": 0}, has_service=True)
    convert_count(draft, launcher, exactly=1)
    draft.trainer |= {"numNodes": convert_count(draft, worker) + also_trains, "numProcPerNode": 1}
    convert_run_policy(draft, _POLICY, spec.get("runPolicy"))
    main = get_str(spec, "mainContainer") if by_kubectl else ""
    pods = tuple(
        MpiPod(role, replicas, find_container(replicas.template, main or _first_container_name(replicas))[1])
        for role, replicas in (("launcher", launcher), ("node", worker))
    )
    for pod in pods:
        refuse_operator_objects(draft, pod)
    copied = provide_keys(draft, pods, folder)
    _options(draft, spec, () if by_kubectl else _FIELDS, keys_are_copied=copied)
    if by_kubectl:
        convert_run_policy(draft, ("spec",), {key: spec[key] for key in ("cleanPodPolicy",) if key in spec})
    _restarts(draft, launcher, "launcher", spec, uses_kubectl=by_kubectl)
    _restarts(draft, worker, "node", spec, uses_kubectl=by_kubectl)
    if main:
        draft.fields.mark_moved(
            ("spec", "mainContainer"), "TrainingRuntime launcher.container", "the container is called node"
        )
    template = use_trainer_volumes(draft, pods[0], copied=copied, uses_kubectl=by_kubectl)
    _launcher(draft, pods[0], template, launcher_trains=also_trains, uses_kubectl=by_kubectl)
    template = use_trainer_volumes(draft, pods[1], copied=copied, uses_kubectl=by_kubectl)
    _worker(draft, pods[1], template, uses_kubectl=by_kubectl)
    _add_findings(draft, uses_kubectl=by_kubectl, launcher_trains=also_trains)


def _has_gpu(launcher: Replicas) -> bool:
    """Return whether the launcher has a GPU, so that it is a host of kubeflow.org/v1."""
    containers = get_list(launcher.template, "spec", "containers")
    return any("gpu" in name for container in containers for name in get_mapping(container, "resources", "limits"))


def _shape(folder: str, *, launcher_trains: bool) -> RuntimeShape:
    mpi = {
        "numProcPerNode": 1,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": folder,
        "runLauncherAsNode": launcher_trains,
    }
    return RuntimeShape(
        runtime="",
        framework="deepspeed",
        policy={"numNodes": 1, "mpi": mpi},
        roles={"node": "node", "launcher": "node"},
        trainer="launcher",
        jobset={
            "network": {"publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
        },
        depends_on={"launcher": [{"name": "node", "status": "Ready"}]},
    )


def _options(draft: Draft, spec: Mapping[str, Any], fields: tuple[str, ...], *, keys_are_copied: bool) -> None:
    """Record the fields of MPI's own options, as far as the version of the kind has them."""
    slots = spec.get("slotsPerWorker")
    if isinstance(slots, int) and not isinstance(slots, bool) and slots >= 1:
        draft.trainer["numProcPerNode"] = slots
        draft.fields.mark_converted(("spec", "slotsPerWorker"), "spec.trainer.numProcPerNode")
    implementation = spec.get("mpiImplementation") or "OpenMPI"
    if "mpiImplementation" in fields and implementation in ("Intel", "MPICH"):
        reason = "the Trainer supports only Open MPI (up to 2.3); build the program with it, or keep the MPI Operator"
        draft.fields.mark_refused(("spec", "mpiImplementation"), reason)
    kept = {
        "mpiImplementation": implementation == "OpenMPI",
        "sshAuthMountPath": isinstance(spec.get("sshAuthMountPath"), str),
        "runLauncherAsWorker": isinstance(spec.get("runLauncherAsWorker"), bool),
    }
    targets = {
        "mpiImplementation": "mlPolicy.mpi.mpiImplementation",
        "sshAuthMountPath": "pod.spec.initContainers" if keys_are_copied else "mlPolicy.mpi.sshAuthMountPath",
        "runLauncherAsWorker": "mlPolicy.mpi.runLauncherAsNode",
    }
    for field, is_kept in kept.items():
        if field in fields and is_kept:
            reason = "rank 0 is on the first node: the launcher is the last host" if spec.get(field) is True else ""
            draft.fields.mark_moved(("spec", field), f"TrainingRuntime {targets[field]}", reason)
    if "launcherCreationPolicy" in fields:
        reason = "the launcher always waits until the nodes are ready, because it can't reach them earlier"
        draft.fields.mark_moved(("spec", "launcherCreationPolicy"), "TrainingRuntime launcher.dependsOn", reason)


def _restarts(draft: Draft, replicas: Replicas, role: str, spec: Mapping[str, Any], *, uses_kubectl: bool) -> None:
    """Record the restart policy of a role, and for the launcher also the backoffLimit.

    Only the launcher's Job counts failures; the nodes' pods only have to run.
    """
    path = (*replicas.path, "restartPolicy")
    policy = replicas.spec.get("restartPolicy") or ("OnFailure" if role == "launcher" and not uses_kubectl else "Never")
    if policy not in ("OnFailure", "Never"):
        draft.fields.mark_refused(path, "the pods of a Job have OnFailure or Never; use one of them")
        return
    draft.add_part(path, ("pod", "spec", "restartPolicy"), policy, patchable=False, role=role)
    if role == "node":
        return
    limit = get_mapping(spec, "runPolicy").get("backoffLimit")
    where = (*_POLICY, "backoffLimit")
    if uses_kubectl and policy == "Never":
        draft.fields.mark_dropped(where, "with restartPolicy Never the first failure ends the job")
        draft.add_part(path, ("job", "backoffLimit"), 0, patchable=False, role=role)
    elif isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        draft.add_part(where, ("job", "backoffLimit"), limit, patchable=False, role=role)


def _launcher(
    draft: Draft, pod: MpiPod, template: Mapping[str, Any], *, launcher_trains: bool, uses_kubectl: bool
) -> None:
    draft.reserved = dict.fromkeys(_RESERVED, "reserved: the Trainer sets it")
    variables = [] if uses_kubectl else [{"name": "K_MPI_JOB_ROLE", "value": "launcher"}]
    if not launcher_trains:
        variables += [{"name": name, "value": ""} for name in _NO_GPUS]  # so that the launcher sees no GPUs of its node
    draft.reserved |= dict.fromkeys((one["name"] for one in variables), "the old operator sets it itself")
    pod.add_operator_default(draft, ("container", "env"), variables)
    _convert_pod(draft, pod, template, uses_kubectl=uses_kubectl)


def _worker(draft: Draft, pod: MpiPod, template: Mapping[str, Any], *, uses_kubectl: bool) -> None:
    place, container = find_container(template, get_str(pod.container, "name"))
    where = (*pod.path, "spec", "containers", place)
    words = [str(word) for field in ("command", "args") for word in _to_list(container.get(field))]
    is_idle = bool(words) and basename(words[0]) in _IDLE
    if uses_kubectl and is_idle:
        for field in ("command", "args"):
            draft.fields.mark_dropped((*where, field), "an ssh server runs instead")
    elif uses_kubectl and words and not any("sshd" in word for word in words):
        reason = "the launcher reaches the nodes by ssh: the command must be /usr/sbin/sshd -De"
        draft.fields.mark_refused((*where, "command" if container.get("command") else "args"), reason)
    draft.reserved = {}
    if uses_kubectl:
        _report_variables(draft, container)
    else:
        draft.reserved["K_MPI_JOB_ROLE"] = "the old operator sets it itself"
        pod.add_operator_default(draft, ("container", "env"), [{"name": "K_MPI_JOB_ROLE", "value": "worker"}])
    is_replaced = uses_kubectl and is_idle
    if is_replaced:
        template = _without_program(template, place)
    _convert_pod(draft, pod, template, uses_kubectl=uses_kubectl)
    if not words or is_replaced:
        pod.add_operator_default(draft, ("container", "command"), _SSHD)


def _convert_pod(draft: Draft, pod: MpiPod, template: Mapping[str, Any], *, uses_kubectl: bool) -> None:
    convert_template(draft, pod.path, template, main=get_str(pod.container, "name"), role=pod.role)
    if not uses_kubectl and get_mapping(template, "spec").get("hostNetwork") is True:
        # Without it, pods in the network of their host can't look up the hosts of the hostfile.
        pod.add_operator_default(draft, ("pod", "spec", "dnsPolicy"), "ClusterFirstWithHostNet")


def _report_variables(draft: Draft, container: Mapping[str, Any]) -> None:
    """Report variables of the workers, which a process has by kubectl exec, but not by ssh."""
    names = [get_str(variable, "name") for variable in get_list(container, "env")]
    names += ["those of envFrom"] if container.get("envFrom") else []
    if names:
        draft.add_finding(
            "environment",
            f"The workers' container has variables: {', '.join(names)}.",
            "The launcher starts the processes of the nodes by ssh, which does not pass the container's variables.",
            "They stay in the nodes' container. Set them also in the launcher's container, and add -x NAME to mpirun "
            "for each variable that the program reads.",
        )


def _without_program(template: Mapping[str, Any], place: int) -> Mapping[str, Any]:
    containers = list(template["spec"]["containers"])
    containers[place] = {key: value for key, value in containers[place].items() if key not in ("command", "args")}
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _first_container_name(replicas: Replicas) -> str:
    """Return the name of the first container, in which the operators start MPI."""
    return get_str(next(iter(get_list(replicas.template, "spec", "containers")), {}), "name")


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _add_findings(draft: Draft, *, uses_kubectl: bool, launcher_trains: bool) -> None:
    if uses_kubectl:
        draft.add_finding(
            "ssh",
            "The launcher reaches the workers by kubectl exec.",
            "The Trainer's launcher reaches them by ssh, with keys that the Trainer creates for each job. A process "
            "that ssh starts does not have the variables of the node's container and image.",
            "The nodes run /usr/sbin/sshd -De. The image must have an ssh server and client, the client must accept "
            "unknown hosts (StrictHostKeyChecking no), and both must run as root, whose keys are in /root/.ssh. Pass "
            "the variables that the program needs by mpirun -x, also PATH and LD_LIBRARY_PATH.",
        )
    if not launcher_trains:
        draft.add_finding(
            "launcher",
            "The launcher starts the training on its workers, but does not train itself.",
            "On the Trainer's MPI runtimes, deepspeed-distributed and mlx-distributed, the launcher trains, too, and "
            "counts in numNodes. With numNodes equal to the number of workers, one worker would be missing.",
            "The generated runtime has runLauncherAsNode: false, so that numNodes counts only the workers.",
        )
