"""PersistentVolumeClaim that the steps of a DAG run share, and the tasks for it."""

from __future__ import annotations

import copy
import hashlib
import re
from typing import TYPE_CHECKING, Any

from trainjob.errors import InvalidSpec, Problem
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.operators.argument_checks import CLUSTER_FIELDS, check_cluster_arguments
from trainjob_airflow.operators.templates import TemplatedOperator, is_resolved_at_run_time
from trainjob_airflow.task_errors import convert_permanent_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from airflow.sdk import Context

_MAX_NAME_LENGTH = 63
_KEEP_POLICIES = ("on_failure", "always", "never")
_ACCESS_MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
_TEMPLATE_FIELDS = ("size", "keep", "access_mode", "storage_class", *CLUSTER_FIELDS)


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
        cluster_context: str | None = None,
        in_cluster: bool | None = None,
    ) -> None:
        """Describe the claim, which is created when the DAG runs.

        All texts except `name` may be templates.

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
            kubernetes_conn_id: ID of the connection; the steps must use the same.
            cluster_context: context of the kubeconfig, in place of the connection's; the steps must use the same.
            in_cluster: whether to use the service account of the worker's pod; the steps must use the same.

        Raises:
            InvalidSpec: an argument has a value that is not allowed.
        """
        self.keep = keep
        self.size, self.name, self.access_mode, self.storage_class = size, name, access_mode, storage_class
        self.namespace, self.kubernetes_conn_id = namespace, kubernetes_conn_id
        self.cluster_context, self.in_cluster = cluster_context, in_cluster
        _check_fields(self)
        self._scope: AbstractContextManager[Any] | None = None

    def render_copy(self, render: Callable[[Any], Any]) -> Workspace:
        """Return a copy with rendered templates.

        It is a copy, because all tasks of a DAG share the object, and `dag.test()` runs several of them in one process.

        Args:
            render: function that renders a template.

        Raises:
            InvalidSpec: a rendered value is not allowed.
        """
        rendered = copy.copy(self)
        for field in _TEMPLATE_FIELDS:
            setattr(rendered, field, render(getattr(self, field)))
        _check_fields(rendered)
        return rendered

    def check_cluster(self, task: Any, namespace: str = "") -> None:
        """Refuse a task whose TrainJob would be in another cluster or namespace than the claim.

        Args:
            task: operator with the same attributes; templates in them are not compared.
            namespace: namespace of the connection; empty while the DAG is parsed, when it is not known.

        Raises:
            InvalidSpec: workspace and task differ.
        """
        for field in (*CLUSTER_FIELDS, "in_cluster"):
            mine, theirs = getattr(self, field), getattr(task, field)
            if field == "namespace":
                mine, theirs = mine or namespace or theirs, theirs or namespace or mine
            if mine != theirs and not any(map(is_resolved_at_run_time, (mine, theirs))):
                rule = f"the workspace {self.name} has {mine!r}: give both the same, because pods mount only "
                rule += "PersistentVolumeClaims of their own cluster and namespace"
                raise InvalidSpec(Problem(field, repr(theirs), rule))

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


def _check_fields(workspace: Workspace) -> None:
    for field, allowed in (("keep", _KEEP_POLICIES), ("access_mode", _ACCESS_MODES)):
        value = getattr(workspace, field)
        if value not in allowed and not is_resolved_at_run_time(value):
            raise InvalidSpec(Problem(f"workspace.{field}", repr(value), f"allowed are {', '.join(allowed)}"))
    check_cluster_arguments(workspace)


class _WorkspaceOperator(TemplatedOperator):
    template_fields: Sequence[str] = ("workspace",)

    def __init__(self, *, workspace: Workspace, **task_arguments: Any) -> None:
        super().__init__(**task_arguments)
        self.workspace = workspace


class CreateWorkspaceOperator(_WorkspaceOperator):
    """Create the claim, or adopt the claim that an earlier try created."""

    @convert_permanent_errors()
    def execute(self, context: Context) -> str:
        """Create the claim if it does not exist, and return its name.

        Raises:
            AirflowFailException: the cluster refuses the claim or the request, or the run has no logical date, and a
                later task needs one.
            ClusterError: the claim cannot be created now.
        """
        from trainjob.errors import Conflict
        from trainjob_airflow.operators.later_templates import check_later_templates

        check_later_templates(self, context)
        cluster = TrainJobHook.of(self.workspace).get_conn()
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
        cluster = TrainJobHook.of(self.workspace).get_conn()
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
