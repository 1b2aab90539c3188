"""PersistentVolumeClaim that the steps of a DAG run share, and the tasks for it."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainjob.errors import InvalidSpec, Problem
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.operators.cluster_arguments import check_cluster_arguments
from trainjob_airflow.task_errors import convert_permanent_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from airflow.sdk import Context

_MAX_NAME_LENGTH = 63
_KEEP_POLICIES = ("on_failure", "always", "never")
_ACCESS_MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")


class Workspace:
    """A PersistentVolumeClaim for each DAG run, mounted at `/workspace` in every step.

        with Workspace(size="50Gi") as workspace:
            FineTuneOperator(task_id="fine_tune", workspace=workspace, ...)

    The context manager adds a setup task that creates the claim and a teardown task that deletes it. Tasks that are
    created in the `with` block run between them. To use a claim that outlives the runs, give its name to the steps
    instead: `workspace="tickets"`.
    """

    def __init__(
        self,
        size: str,
        *,
        keep: str = "on_failure",
        name: str = "workspace",
        access_mode: str = "ReadWriteOnce",
        storage_class: str | None = None,
        namespace: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
    ) -> None:
        """Describe the claim; it is created when the DAG runs.

        Args:
            size: storage size as a Kubernetes quantity, such as `50Gi`. It has to hold the base model, checkpoints
                of every epoch, and the export.
            keep: `on_failure` retains the claim of a run in which a task failed, so that a cleared task finds its
                inputs; `always` retains every claim, which an export to a path on it needs; `never` retains none.
            name: beginning of the names of the claim and the two tasks; unique in the DAG.
            access_mode: `ReadWriteOnce` for steps on one node, `ReadWriteMany` for steps on several nodes, or
                `ReadWriteOncePod`.
            storage_class: name of the StorageClass; None means the cluster's default.
            namespace: namespace of the claim; empty means the connection's. The steps must use the same namespace.
            kubernetes_conn_id: ID of the connection that the steps use.

        Raises:
            InvalidSpec: `keep` or `access_mode` has a value that is not allowed.
        """
        for field, value, allowed in (("keep", keep, _KEEP_POLICIES), ("access_mode", access_mode, _ACCESS_MODES)):
            if value not in allowed:
                raise InvalidSpec(Problem(f"workspace.{field}", repr(value), f"allowed are {', '.join(allowed)}"))
        self.keep = keep
        self.size, self.name, self.access_mode, self.storage_class = size, name, access_mode, storage_class
        self.namespace, self.kubernetes_conn_id = namespace, kubernetes_conn_id
        check_cluster_arguments(self)
        self._scope: AbstractContextManager[Any] | None = None

    def __enter__(self) -> Workspace:
        """Add the two tasks; tasks that are created until `__exit__` run between them."""
        create = CreateWorkspaceOperator(task_id=f"{self.name}_create", workspace=self)
        delete = DeleteWorkspaceOperator(task_id=f"{self.name}_delete", workspace=self)
        self._scope = delete.as_teardown(setups=create)
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """End the scope of the two tasks."""
        if self._scope is not None:
            self._scope.__exit__(*error)

    def __repr__(self) -> str:
        return f"Workspace(size={self.size!r}, name={self.name!r})"

    def claim_name(self, context: Context) -> str:
        """Return the name of the claim in one DAG run.

        The name is the same for every task and try of that run.
        """
        ti = context["ti"]
        digest = hashlib.sha256(f"{ti.dag_id}\n{ti.run_id}\n{self.name}".encode()).hexdigest()[:10]
        readable = re.sub(r"[^a-z0-9]+", "-", f"{ti.dag_id}-{self.name}".lower()).strip("-")
        return f"{readable[: _MAX_NAME_LENGTH - 11].strip('-')}-{digest}"


class _WorkspaceOperator(BaseOperator):
    template_fields: Sequence[str] = ()

    def __init__(self, *, workspace: Workspace, **task_arguments: Any) -> None:
        super().__init__(**task_arguments)
        self.workspace = workspace


class CreateWorkspaceOperator(_WorkspaceOperator):
    """Create the claim, or adopt the claim that an earlier try created."""

    @convert_permanent_errors()
    def execute(self, context: Context) -> str:
        """Create the claim if it does not exist, and return its name.

        Raises:
            AirflowFailException: the cluster refuses the claim or the request.
            ClusterError: the claim cannot be created now.
        """
        from trainjob.errors import Conflict

        cluster = TrainJobHook(self.workspace.kubernetes_conn_id).get_conn()
        claim = self._build_claim(context, self.workspace.namespace or cluster.namespace)
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        try:
            cluster.create_claim(claim)
            self.log.info(
                "workspace %s/%s was created: %s, %s", namespace, name, self.workspace.size, self.workspace.access_mode
            )
        except Conflict:
            self.log.info("workspace %s/%s already exists and is used", namespace, name)
        return str(name)

    def _build_claim(self, context: Context, namespace: str) -> dict[str, Any]:
        from trainjob.manifest import labels

        ti = context["ti"]
        spec: dict[str, Any] = {
            "accessModes": [self.workspace.access_mode],
            "resources": {"requests": {"storage": self.workspace.size}},
        }
        if self.workspace.storage_class is not None:
            spec["storageClassName"] = self.workspace.storage_class
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": self.workspace.claim_name(context),
                "namespace": namespace,
                "labels": labels.MANAGED_BY,
                "annotations": {"trainjob.dev/dag": ti.dag_id, "trainjob.dev/run": ti.run_id},
            },
            "spec": spec,
        }


class DeleteWorkspaceOperator(_WorkspaceOperator):
    """Delete the claim of the DAG run, or retain it as the workspace's `keep` says.

    By default, the claim is retained if a task of the run failed, because a user may clear the task.
    """

    @convert_permanent_errors()
    def execute(self, context: Context) -> None:
        """Delete or retain the claim.

        Raises:
            AirflowFailException: the cluster does not allow the deletion.
            ClusterError: the claim cannot be deleted now.
        """
        cluster = TrainJobHook(self.workspace.kubernetes_conn_id).get_conn()
        name, namespace = self.workspace.claim_name(context), self.workspace.namespace or cluster.namespace
        reason = self._reason_to_keep(context)
        if reason:
            self.log.info("workspace %s/%s is kept: %s", namespace, name, reason)
            return
        claim = cluster.get_claim(name, namespace)
        if claim is not None:
            cluster.delete_claim(name, namespace, claim["metadata"]["uid"])
            self.log.info("workspace %s/%s was deleted", namespace, name)

    def _reason_to_keep(self, context: Context) -> str:
        if self.workspace.keep == "always":
            return "keep='always'"
        if self.workspace.keep == "never":
            return ""
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
        failed = sorted(task for task, state in states.items() if state in ("failed", "upstream_failed"))
        return f"{', '.join(failed)} failed; clear it to continue with the same files" if failed else ""
