"""Conversion of an MPIJob of either operator, with a generated TrainingRuntime.

The runtime is similar to `deepspeed-distributed`.

Sources: training-operator 1.9 pkg/apis/kubeflow.org/v1/mpi_types.go and pkg/controller.v1/mpi (kubeflow.org/v1), whose
launcher reaches the workers by kubectl exec; mpi-operator 0.8 pkg/apis/kubeflow/v2beta1/types.go and pkg/controller
(kubeflow.org/v2beta1), by ssh; Trainer 2.3 manifests/base/runtimes/deepspeed_distributed.yaml and
pkg/runtime/framework/plugins/mpi/mpi.go, by ssh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from posixpath import basename
from typing import Any

from trainjob.status.reading import number, rows, table, text
from trainjob_migrate.container import main_container
from trainjob_migrate.draft import Draft, Shape
from trainjob_migrate.environment import Launch
from trainjob_migrate.hosts import renaming
from trainjob_migrate.ledger import Path
from trainjob_migrate.pod_template import convert_template
from trainjob_migrate.replicas import Replicas, convert_count, replicas_of
from trainjob_migrate.run_policy import convert_run_policy

_SPECS: Path = ("spec", "mpiReplicaSpecs")
_POLICY: Path = ("spec", "runPolicy")
_SSHD = ["/usr/sbin/sshd", "-De"]
_IDLE = ("sleep", "tail")
# Files that the old operators mount and the Trainer does not.
_OLD_FILES = ("/etc/mpi/discover_hosts.sh", "/etc/mpi/kubexec.sh", "/opt/kube")
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
    spec = table(job, "spec")
    launcher, worker = (replicas_of(spec.get("mpiReplicaSpecs"), _SPECS, role) for role in ("Launcher", "Worker"))
    if launcher is None or worker is None or not worker.spec.get("replicas"):
        reason = "a Launcher and at least one Worker are wanted: the Trainer always makes a node beside the launcher"
        draft.ledger.refused(_SPECS, reason)
        return
    by_kubectl = job.get("apiVersion") == "kubeflow.org/v1"
    also_trains = spec.get("runLauncherAsWorker") is True and not by_kubectl
    draft.shape = _shape(spec, also_trains=also_trains)
    draft.rename = renaming(draft, {"worker": 0})
    convert_count(draft, launcher, exactly=1)
    draft.trainer |= {"numNodes": convert_count(draft, worker) + also_trains, "numProcPerNode": 1}
    convert_run_policy(draft, _POLICY, spec.get("runPolicy"))
    if any(part.place[:2] == ("runtime", "podGroupPolicy") for part in draft.parts):
        # A gang includes the launcher: nodes would wait for the launcher, and the launcher for the nodes.
        draft.shape = replace(draft.shape, waits={})
    _options(draft, spec, () if by_kubectl else _FIELDS)
    if by_kubectl:
        convert_run_policy(draft, ("spec",), {key: spec[key] for key in ("cleanPodPolicy",) if key in spec})
    _restarts(draft, launcher, "launcher", spec, by_kubectl=by_kubectl)
    _restarts(draft, worker, "node", spec, by_kubectl=by_kubectl)
    main = text(spec, "mainContainer") if by_kubectl else ""
    if main:
        draft.ledger.moved(("spec", "mainContainer"), "TrainingRuntime launcher.container", "it is called node")
    _launcher(draft, launcher, main or _first(launcher), also_trains=also_trains, by_kubectl=by_kubectl)
    _worker(draft, worker, main or _first(worker), by_kubectl=by_kubectl)
    _told(draft, by_kubectl=by_kubectl, also_trains=also_trains)


def _shape(spec: Mapping[str, Any], *, also_trains: bool) -> Shape:
    mpi = {
        "numProcPerNode": 1,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": text(spec, "sshAuthMountPath") or "/root/.ssh",
        "runLauncherAsNode": also_trains,
    }
    return Shape(
        runtime="",
        framework="deepspeed",
        policy={"numNodes": 1, "mpi": mpi},
        roles={"node": "node", "launcher": "node"},
        trainer="launcher",
        jobset={
            "network": {"publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
        },
        waits={"launcher": [{"name": "node", "status": "Ready"}]},
    )


def _options(draft: Draft, spec: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    """Claim the fields of MPI's own options, as far as the version of the kind has them."""
    slots = spec.get("slotsPerWorker")
    if isinstance(slots, int) and not isinstance(slots, bool) and slots >= 1:
        draft.trainer["numProcPerNode"] = slots
        draft.ledger.converted(("spec", "slotsPerWorker"), "spec.trainer.numProcPerNode")
    implementation = spec.get("mpiImplementation") or "OpenMPI"
    if "mpiImplementation" in fields and implementation in ("Intel", "MPICH"):
        reason = (
            "the Trainer has Open MPI only (up to 2.3); build the program with that, or keep the MPI Operator for it"
        )
        draft.ledger.refused(("spec", "mpiImplementation"), reason)
    kept = {
        "mpiImplementation": implementation == "OpenMPI",
        "sshAuthMountPath": isinstance(spec.get("sshAuthMountPath"), str),
        "runLauncherAsWorker": isinstance(spec.get("runLauncherAsWorker"), bool),
    }
    targets = {"runLauncherAsWorker": "runLauncherAsNode"}
    for field, is_kept in kept.items():
        if field in fields and is_kept:
            draft.ledger.moved(("spec", field), f"TrainingRuntime mlPolicy.mpi.{targets.get(field, field)}")
    path = ("spec", "launcherCreationPolicy")
    if "launcherCreationPolicy" not in fields:
        return
    if draft.shape.waits:
        reason = "whatever it says, the launcher waits until the nodes are ready; before that it can't reach them"
        draft.ledger.moved(path, "TrainingRuntime launcher.dependsOn", reason)
    else:
        draft.ledger.dropped(path, "a gang's pods start together; the launcher tries until it can reach the nodes")


def _restarts(draft: Draft, replicas: Replicas, role: str, spec: Mapping[str, Any], *, by_kubectl: bool) -> None:
    """Claim the restart policy of a role, and for the launcher also the backoffLimit.

    Only the launcher's Job counts failures; the nodes' pods only have to run.
    """
    path = (*replicas.path, "restartPolicy")
    policy = replicas.spec.get("restartPolicy") or ("OnFailure" if role == "launcher" and not by_kubectl else "Never")
    if policy not in ("OnFailure", "Never"):
        draft.ledger.refused(path, "a Job's pods have OnFailure or Never; write one of these")
        return
    draft.part(path, ("pod", "spec", "restartPolicy"), policy, patchable=False, role=role)
    if role == "node":
        return
    limit = table(spec, "runPolicy").get("backoffLimit")
    where = (*_POLICY, "backoffLimit")
    if by_kubectl and policy == "Never":
        draft.ledger.dropped(where, "with restartPolicy Never the first failure ends the job")
        draft.part(path, ("job", "backoffLimit"), 0, patchable=False, role=role)
    elif isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        draft.part(where, ("job", "backoffLimit"), limit, patchable=False, role=role)


def _launcher(draft: Draft, launcher: Replicas, main: str, *, also_trains: bool, by_kubectl: bool) -> None:
    path = (*launcher.path, "template")
    place, container = main_container(launcher.template, main)
    where = (*path, "spec", "containers", place)
    for field in ("command", "args"):
        named = [file for file in _OLD_FILES if file in str(container.get(field))]
        if named:
            reason = f"it names {named[0]}, which the old operator mounts and the Trainer does not; without it, say -np"
            draft.ledger.refused((*where, field), reason)
    draft.reserved = dict.fromkeys(_RESERVED, "the Trainer sets it")
    variables = [] if by_kubectl else [{"name": "K_MPI_JOB_ROLE", "value": "launcher"}]
    if not also_trains and "gpu" not in str(container.get("resources")):
        variables += [{"name": name, "value": ""} for name in _NO_GPUS]  # so that the launcher sees no GPUs of its node
    draft.reserved |= dict.fromkeys((one["name"] for one in variables), "the old operator sets it itself")
    _unseen(draft, path, ("container", "env"), variables, "launcher")
    _readable_keys(draft, path, launcher, container, "launcher")
    convert_template(draft, path, launcher.template, main=main, role="launcher")


def _worker(draft: Draft, worker: Replicas, main: str, *, by_kubectl: bool) -> None:
    path = (*worker.path, "template")
    place, container = main_container(worker.template, main)
    where = (*path, "spec", "containers", place)
    words = [str(word) for field in ("command", "args") for word in _listed(container.get(field))]
    is_idle = bool(words) and basename(words[0]) in _IDLE
    if by_kubectl and is_idle:
        for field in ("command", "args"):
            draft.ledger.dropped((*where, field), "an ssh server runs in its place")
    elif by_kubectl and words and not any("sshd" in word for word in words):
        reason = "the launcher reaches the nodes by ssh: let it start /usr/sbin/sshd -De, and nothing else"
        draft.ledger.refused((*where, "command" if container.get("command") else "args"), reason)
    draft.reserved = {}
    if not by_kubectl:
        draft.reserved["K_MPI_JOB_ROLE"] = "the old operator sets it itself"
        _unseen(draft, path, ("container", "env"), [{"name": "K_MPI_JOB_ROLE", "value": "worker"}], "node")
    _readable_keys(draft, path, worker, container, "node")
    template = worker.template
    if by_kubectl and is_idle:
        template = _without_program(template, place)
    convert_template(draft, path, template, main=main, role="node")
    if not words or template is not worker.template:
        _unseen(draft, path, ("container", "command"), _SSHD, "node")


def _without_program(template: Mapping[str, Any], place: int) -> Mapping[str, Any]:
    containers = list(template["spec"]["containers"])
    containers[place] = {key: value for key, value in containers[place].items() if key not in ("command", "args")}
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _readable_keys(draft: Draft, path: Path, replicas: Replicas, container: Mapping[str, Any], role: str) -> None:
    """Set the fsGroup of a pod that does not run as root, so that it can read the ssh keys.

    The Trainer's keys are readable only by root and their group.
    """
    contexts = [one.get("securityContext") for one in (container, table(replicas.template, "spec"))]
    users = [number(context, "runAsUser") for context in contexts]
    user = next((user for user in users if user), 0)
    if user and "fsGroup" not in table(contexts[1]):
        _unseen(draft, path, ("pod", "spec", "securityContext"), {"fsGroup": user}, role)


def _unseen(draft: Draft, path: Path, place: tuple[str, ...], value: Any, role: str) -> None:
    """Add a value that the old operator set by itself, so that no field of the source has it."""
    if value:
        draft.part((*path, "by the operator"), place, value, patchable=False, role=role)


def _first(replicas: Replicas) -> str:
    """Return the name of the first container, in which the operators start MPI."""
    return text(next(iter(rows(replicas.template, "spec", "containers")), {}), "name")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _told(draft: Draft, *, by_kubectl: bool, also_trains: bool) -> None:
    if by_kubectl:
        draft.find(
            "ssh",
            "The launcher reaches the workers by kubectl exec.",
            "The Trainer's reaches them by ssh, with keys that it makes for each job.",
            "The nodes run /usr/sbin/sshd -De. The image must have an ssh server and client, the client must not ask "
            "about unknown hosts (StrictHostKeyChecking no), and both run as root, whose keys are in /root/.ssh.",
        )
    if not also_trains:
        draft.find(
            "launcher",
            "The launcher only starts the training, on its workers.",
            "On the Trainer's own MPI runtimes, deepspeed-distributed and mlx-distributed, it trains as well and is "
            "one of numNodes: with as many nodes as workers, one worker would be missing.",
            "The runtime made for it has runLauncherAsNode false, and numNodes counts the workers.",
        )
