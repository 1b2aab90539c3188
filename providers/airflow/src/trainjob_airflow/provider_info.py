"""Metadata of this distribution for Airflow's providers manager."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata.

    Its schema is `airflow/provider_info.schema.json` of Airflow 3.3.
    """
    integration = "Kubeflow Trainer"
    return {
        "package-name": "airflow-provider-trainjob",
        "name": integration,
        "description": "Kubeflow Trainer v2 jobs as Airflow tasks.",
        "integrations": [
            {
                "integration-name": integration,
                "external-doc-url": "https://www.kubeflow.org/docs/components/trainer/",
                "tags": ["service"],
            }
        ],
        "operators": [
            {
                "integration-name": integration,
                "python-modules": [
                    "trainjob_airflow.operators.steps",
                    "trainjob_airflow.operators.workspace",
                    "trainjob_airflow.operators.lifecycle",
                    "trainjob_airflow.operators.sweep",
                ],
            }
        ],
        "hooks": [{"integration-name": integration, "python-modules": ["trainjob_airflow.hooks.trainjob"]}],
        "connection-types": [
            {
                "connection-type": "trainjob",
                "hook-class-name": "trainjob_airflow.hooks.trainjob.TrainJobHook",
                "hook-name": integration,
                "conn-fields": _connection_fields(),
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema", "login", "password", "port", "extra"],
                    "relabeling": {},
                    "placeholders": {},
                },
            }
        ],
        "config": {
            "trainjob": {
                "description": "Settings of the Kubeflow Trainer provider.",
                "options": {
                    "page_connections": {
                        "description": (
                            "Connections of the page TrainJobs and of the DAG trainjob_sweep, separated by commas. "
                            "Write connection/namespace for a namespace other than the connection's, and "
                            "team:connection/namespace to show TrainJobs there only as those of this team's DAGs."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "kubernetes_default, blue:gpu_cluster/team-blue",
                        "default": "kubernetes_default",
                    },
                    "page_credential_plugins": {
                        "description": (
                            "Whether the page TrainJobs runs the credential plugins (exec) of its connections' "
                            "kubeconfigs. They run in Airflow's API server."
                        ),
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": "True",
                        "default": "False",
                    },
                    "log_bytes_per_second": {
                        "description": (
                            "Maximum rate in bytes per second at which all triggers of a triggerer together write "
                            "lines of TrainJobs to task logs. Each line counts 300 bytes more than its text."
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": "200000",
                        "default": "100000",
                    },
                },
            }
        },
        "extra-links": [
            f"trainjob_airflow.links.trainjob.{name}"
            for name in (
                "TrainJobLink",
                "TrainJobPodsLink",
                "TrainJobLogsLink",
                "TrainJobMetricsLink",
                "TrackedRunLink",
            )
        ],
        "task-decorators": [
            {"name": "trainjob", "class-name": "trainjob_airflow.decorators.trainjob.trainjob_task"},
        ],
        "sensors": [{"integration-name": integration, "python-modules": ["trainjob_airflow.sensors.trainjob"]}],
        "triggers": [
            {
                "integration-name": integration,
                "python-modules": [f"trainjob_airflow.triggers.{name}" for name in ("trainjob", "end", "event")],
            }
        ],
    }


def _connection_fields() -> dict[str, Any]:
    """Return the fields of the connection's form.

    The fields for the cluster have the same names as in the type `kubernetes`. The others are the addresses of links.
    """
    return {
        "kube_config_path": _field("string", "Kubeconfig file", "Path of the file on workers and triggerers."),
        "kube_config": _field(
            "string", "Kubeconfig (JSON)", "Content of a kubeconfig, if there is no such file.", format="password"
        ),
        "in_cluster": _field("boolean", "In cluster", "Use the service account of the pods of workers and triggerers."),
        "cluster_context": _field(
            "string", "Context", "Name of a context in the kubeconfig; empty for its current context."
        ),
        "namespace": _field(
            "string", "Namespace", "Namespace of the TrainJobs; empty for that of the context or the pod."
        ),
        "disable_verify_ssl": _field(
            "boolean", "Do not verify TLS", "Accept any certificate of the API server; only for tests."
        ),
        **{
            f"trainjob_{name}url": _field(
                "string", f"Link to {what}", "Address; may have {namespace}, {name}, {uid} and {server}."
            )
            for name, what in (
                ("", "the TrainJob"),
                ("pods_", "its pods"),
                ("logs_", "its logs"),
                ("metrics_", "its metrics"),
            )
        },
    }


def _field(kind: str, label: str, description: str, **more: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **more}}
