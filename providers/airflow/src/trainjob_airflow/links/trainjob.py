"""From a task in the Airflow UI to its TrainJob elsewhere: dashboards that the connection's extra names.

A link is there from deferral on, as Airflow asks a worker for it at the end of each part of a task's run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseOperatorLink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from trainjob.lifecycle import JobReference


class _TemplateLink(BaseOperatorLink):
    """A link whose address is a template of the connection's extra."""

    field: str

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow's signature
        """The address for the operator's TrainJob; empty before there is one."""
        return str(getattr(operator, "link_addresses", {}).get(self.field, ""))


class TrainJobLink(_TemplateLink):
    """The TrainJob: `trainjob_url`."""

    name, field = "TrainJob", "trainjob_url"


class TrainJobPodsLink(_TemplateLink):
    """Its pods: `trainjob_pods_url`."""

    name, field = "Pods", "trainjob_pods_url"


class TrainJobLogsLink(_TemplateLink):
    """Its logs: `trainjob_logs_url`."""

    name, field = "Logs page", "trainjob_logs_url"


class TrainJobMetricsLink(_TemplateLink):
    """Its metrics: `trainjob_metrics_url`."""

    name, field = "Metrics", "trainjob_metrics_url"


LINKS: Sequence[_TemplateLink] = (TrainJobLink(), TrainJobPodsLink(), TrainJobLogsLink(), TrainJobMetricsLink())


def link_templates(kubernetes_conn_id: str | None) -> dict[str, str]:
    """The templates of a connection, by field; none without a connection."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    if kubernetes_conn_id is None:
        return {}
    try:
        extra: Mapping[str, Any] = BaseHook.get_connection(kubernetes_conn_id).extra_dejson
    except AirflowNotFoundException:
        return {}
    return {link.field: str(extra[link.field]) for link in LINKS if extra.get(link.field)}


def addresses(templates: Mapping[str, str], reference: JobReference, server: Callable[[], str]) -> dict[str, str]:
    """Put one TrainJob into the templates.

    Args:
        templates: addresses with `{namespace}`, `{name}`, `{uid}` and `{server}`; other braces stay as they are.
        reference: whose links they are.
        server: gives the API server's URL; asked only when a template wants it.

    Returns:
        Only addresses that a browser may open, by http or https.
    """
    values = {"namespace": reference.namespace, "name": reference.name, "uid": reference.uid}
    if any("{server}" in template for template in templates.values()):
        values["server"] = server()
    filled = {}
    for field, template in templates.items():
        for name, value in values.items():
            template = template.replace("{" + name + "}", value)  # noqa: PLW2901 - filled step by step
        if template.startswith(("https://", "http://")):
            filled[field] = template
    return filled
