"""Links from a task in the Airflow UI to dashboards of its TrainJob, and to its tracked run.

The connection's extra has the addresses of the dashboards. A link is available from the deferral on, because Airflow
requests it from a worker at the end of each part of a task's run. The training's log has the address of the tracked
run; the trigger of a deferred task stores it as soon as the log has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseOperatorLink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from trainjob.lifecycle import JobReference


class _AddressLink(BaseOperatorLink):
    """A link whose address the operator knows.

    Attributes:
        field: key of the address in the operator's `link_addresses`.
    """

    field: str

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; empty if there is none yet."""
        return str(getattr(operator, "link_addresses", {}).get(self.field, ""))


class TrainJobLink(_AddressLink):
    """Link to the TrainJob, from `trainjob_url`."""

    name, field = "TrainJob", "trainjob_url"


class TrainJobPodsLink(_AddressLink):
    """Link to the TrainJob's pods, from `trainjob_pods_url`."""

    name, field = "Pods", "trainjob_pods_url"


class TrainJobLogsLink(_AddressLink):
    """Link to the TrainJob's logs, from `trainjob_logs_url`."""

    name, field = "Logs page", "trainjob_logs_url"


class TrainJobMetricsLink(_AddressLink):
    """Link to the TrainJob's metrics, from `trainjob_metrics_url`."""

    name, field = "Metrics", "trainjob_metrics_url"


class TrackedRunLink(_AddressLink):
    """Link to the run of the experiment tracker, from the training's log."""

    name, field = "Tracked run", "tracking_url"


TEMPLATE_LINKS = (TrainJobLink(), TrainJobPodsLink(), TrainJobLogsLink(), TrainJobMetricsLink())
TRACKED_RUN_LINK = TrackedRunLink()
LINKS: Sequence[_AddressLink] = (*TEMPLATE_LINKS, TRACKED_RUN_LINK)


def read_link_templates(kubernetes_conn_id: str | None) -> dict[str, str]:
    """Return the link templates of a connection by field; none without a connection."""
    from trainjob_airflow.version_compat import AirflowNotFoundException

    if kubernetes_conn_id is None:
        return {}
    try:
        extra: Mapping[str, Any] = BaseHook.get_connection(kubernetes_conn_id).extra_dejson
    except AirflowNotFoundException:
        return {}
    return {link.field: str(extra[link.field]) for link in TEMPLATE_LINKS if extra.get(link.field)}


def build_link_addresses(
    templates: Mapping[str, str], reference: JobReference, get_server: Callable[[], str]
) -> dict[str, str]:
    """Return the addresses of the links to one TrainJob.

    Args:
        templates: addresses with `{namespace}`, `{name}`, `{uid}` and `{server}`; other braces are retained.
        reference: reference to the TrainJob.
        get_server: returns the API server's URL; called only if a template needs it.

    Returns:
        Only the addresses that a browser can open: those with http or https.
    """
    values = {"namespace": reference.namespace, "name": reference.name, "uid": reference.uid}
    if any("{server}" in template for template in templates.values()):
        values["server"] = get_server()
    filled = {}
    for field, template in templates.items():
        for name, value in values.items():
            template = template.replace("{" + name + "}", value)  # noqa: PLW2901 - filled step by step
        if template.startswith(("https://", "http://")):
            filled[field] = template
    return filled


def list_links(
    templates: Mapping[str, str], reference: JobReference, get_server: Callable[[], str]
) -> list[dict[str, str]]:
    """Return the links to one TrainJob in the order of a task's links.

    Args:
        templates: see [build_link_addresses][].
        reference: reference to the TrainJob.
        get_server: see [build_link_addresses][].

    Returns:
        One dict for each link, with `name` and `url`.
    """
    addresses = build_link_addresses(templates, reference, get_server)
    return [{"name": link.name, "url": addresses[link.field]} for link in TEMPLATE_LINKS if link.field in addresses]
