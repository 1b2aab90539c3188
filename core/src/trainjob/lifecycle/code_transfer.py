"""Transfer of a project's code to the pods of its TrainJob.

A small archive is in an immutable ConfigMap, which the TrainJob owns. It is created right after the TrainJob, whose
pods wait for it, so that nothing is left if the process dies before. If it dies between the two, the adoption of the
TrainJob creates the ConfigMap.

A larger archive is in the workspace before the TrainJob is created. Only pods can mount the workspace, so a TrainJob of
its own looks for the archive. If it is missing, another one stores it: the archive is divided into ConfigMaps, which
this TrainJob owns and mounts. All submissions of the same code to the same workspace share them, because they have the
same run key. docs/explanation/decisions/0024-code-travels-in-configmaps.md has the alternatives.
"""

from __future__ import annotations

import base64
import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.client import Cluster, LogLine
from trainjob.errors import Conflict, JobDeleted, NotFound, PermissionDenied, TrainJobError
from trainjob.lifecycle.cancellation import cancel
from trainjob.lifecycle.identity import JobReference, RunKey
from trainjob.lifecycle.job_logs import Listener
from trainjob.lifecycle.wait_policy import Limits
from trainjob.lifecycle.waiting import wait
from trainjob.manifest import labels
from trainjob.manifest.code import (
    build_config_map,
    build_storage_request,
    config_map_name,
    find_code,
    list_part_names,
    needs_config_map,
    needs_workspace,
)
from trainjob.manifest.shared_code import describe_creation, name_shared_config_map
from trainjob.programs.code_storage import EXISTS
from trainjob.spec import PackedCode, TrainJob, TrainJobManifest
from trainjob.spec.code import MAX_CONFIG_MAP_BYTES
from trainjob.status import Phase, derive_verdict

_MAX_TRIES = 5  # of a creation beside an object that another process deletes
_ROLE_HINT = "grant the Role trainjob-code: kubectl apply -n NAMESPACE -k manifests/code"

SubmitFunction = Callable[..., JobReference]
"""Function that submits a TrainJob under a run key: `trainjob.lifecycle.submit` without its first argument."""


def check_shared_config_map(cluster: Cluster, job: TrainJob | TrainJobManifest, namespace: str) -> None:
    """Raise an error if the ConfigMap that a request names does not exist.

    The pods would wait for it. They compare its content with the digest. Without the permission to get ConfigMaps
    nothing is checked, and the waiter reports the missing ConfigMap later.

    Args:
        cluster: the cluster of the TrainJob.
        job: the request.
        namespace: namespace of the TrainJob.

    Raises:
        NotFound: the ConfigMap does not exist.
        ClusterError: a request failed.
    """
    code = find_code(job)
    if code is None or not code.config_map:
        return
    with contextlib.suppress(PermissionDenied):
        if cluster.get_config_map(code.config_map, namespace) is None:
            is_own_name = code.config_map == name_shared_config_map(code.sha256)
            raise NotFound(
                f"there is no ConfigMap {code.config_map} in namespace {namespace}: it has the code of the project",
                hint=f"run: {describe_creation(namespace)}" if is_own_name else "create it before the TrainJob",
            )


def provide_config_map(
    cluster: Cluster, job: TrainJob | TrainJobManifest, existing: Mapping[str, Any], reference: JobReference
) -> None:
    """Create the ConfigMap with the code of a TrainJob if its pods still need it.

    A TrainJob whose ConfigMap is refused is deleted.

    Args:
        cluster: the cluster of the TrainJob.
        job: the request.
        existing: the TrainJob, as the API server returned it.
        reference: reference to it.

    Raises:
        ClusterError: the ConfigMap could not be created.
    """
    code, phase = find_code(job), derive_verdict(existing).phase
    if code is None or not needs_config_map(code) or phase.finished or phase is Phase.RUNNING:
        return
    with _cancel_if_refused(cluster, reference):
        _create(cluster, _build(code, config_map_name(reference.name), reference))


def store_code(
    cluster: Cluster,
    job: TrainJob | TrainJobManifest,
    namespace: str,
    submit: SubmitFunction,
    on_notice: Callable[[str], None],
) -> None:
    """Store the code of a TrainJob in its workspace, if it is too large for a ConfigMap.

    Args:
        cluster: the cluster of the TrainJob.
        job: the request.
        namespace: namespace of the TrainJob.
        submit: function that submits a TrainJob.
        on_notice: function that receives the lines of progress.

    Raises:
        InvalidSpec: the project has changed since it was packed.
        JobFailed: the archive could not be stored.
        ClusterError: a request failed or was denied.
    """
    code = find_code(job)
    if code is None or not isinstance(job, TrainJob) or job.workspace is None or not needs_workspace(code):
        return
    key = RunKey(labels.CODE_ENGINE, job.workspace.location, job.workspace.sub_path, code.sha256, origin=namespace)
    transfer = _Transfer(cluster, job, code, key, namespace, submit, on_notice)
    for tries_left in reversed(range(_MAX_TRIES)):
        try:
            transfer.run()
        except JobDeleted:  # another process has stored the code, and deleted the TrainJob that both waited for
            if not tries_left:
                raise
        else:
            return


@dataclass(frozen=True)
class _Transfer:
    """Arguments of [store_code][]."""

    cluster: Cluster
    job: TrainJob
    code: PackedCode
    key: RunKey
    namespace: str
    submit: SubmitFunction
    on_notice: Callable[[str], None]

    def run(self) -> None:
        """Store the archive, unless the workspace has it."""
        if EXISTS in self._run(build_storage_request(self.job, self.code), ()):
            return
        names = list_part_names(self.code, self.key.digest)
        self.on_notice(f"code: sending {self.code.size / 1e6:.0f} MB to the workspace, in {len(names)} ConfigMaps")
        self._run(build_storage_request(self.job, self.code, names), names)

    def _run(self, request: TrainJob, part_names: Sequence[str]) -> list[str]:
        """Run a TrainJob to its end, and return the lines of its log."""
        reference = self.submit(request, self.key, renewal=uuid.uuid4().hex)
        if part_names:
            with _cancel_if_refused(self.cluster, reference):
                self._send_parts(part_names, reference)
        lines: list[str] = []

        def on_log(line: LogLine) -> None:
            if line.text.startswith("code: "):
                lines.append(line.text)
                self.on_notice(line.text)

        outcome = wait(self.cluster, reference, limits=Limits.of(request), listener=Listener(on_log=on_log))
        outcome.raise_for_failure()
        cancel(self.cluster, reference, ignore_end=True)
        return lines

    def _send_parts(self, names: Sequence[str], owner: JobReference) -> None:
        from trainjob.project_code import write_archive  # here: the launcher of a pipeline has no project to read

        with tempfile.TemporaryFile() as file:
            write_archive(self.code, file)
            file.seek(0)
            for name in names:
                part = base64.b64encode(file.read(MAX_CONFIG_MAP_BYTES)).decode()
                _create(self.cluster, _build(self.code, name, owner, part))


@contextlib.contextmanager
def _cancel_if_refused(cluster: Cluster, reference: JobReference) -> Iterator[None]:
    """Delete a TrainJob whose pods would wait for a ConfigMap that cannot be created.

    After a temporary error it stays, because the next try of the step adopts it.
    """
    try:
        yield
    except TrainJobError as error:
        if not error.retryable:
            cancel(cluster, reference)
        raise


def _build(code: PackedCode, name: str, owner: JobReference, part: str = "") -> dict[str, Any]:
    return build_config_map(code, name, owner.namespace, (owner.name, owner.uid), part)


def _create(cluster: Cluster, config_map: Mapping[str, Any]) -> None:
    """Create a ConfigMap, or keep the same one of an earlier try.

    One of another owner is replaced.

    Raises:
        ClusterError: a request failed or was denied.
    """
    name, namespace = config_map["metadata"]["name"], config_map["metadata"]["namespace"]
    for _ in range(_MAX_TRIES):
        try:
            cluster.create_config_map(config_map)
        except Conflict:
            existing = cluster.get_config_map(name, namespace)
            if existing and _get_content(existing) == _get_content(config_map):
                return
            if existing:
                cluster.delete_config_map(name, namespace, existing["metadata"]["uid"])
        except PermissionDenied as error:
            error.hint = _ROLE_HINT
            raise
        else:
            return
    raise Conflict(f"the ConfigMap {namespace}/{name} was created by others {_MAX_TRIES} times")


def _get_content(config_map: Mapping[str, Any]) -> tuple[Any, Any]:
    return config_map["metadata"].get("ownerReferences"), config_map.get("binaryData")
