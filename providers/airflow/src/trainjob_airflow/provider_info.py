"""What Airflow's providers manager is told about this distribution."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata, by the schema `airflow/provider_info.schema.json` of Airflow 3.3."""
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
                    "trainjob_airflow.operators.trainjob",
                    "trainjob_airflow.operators.steps",
                    "trainjob_airflow.operators.workspace",
                    "trainjob_airflow.operators.lifecycle",
                ],
            }
        ],
        "hooks": [{"integration-name": integration, "python-modules": ["trainjob_airflow.hooks.trainjob"]}],
        "task-decorators": [
            {"name": "trainjob", "class-name": "trainjob_airflow.decorators.trainjob.trainjob_task"},
        ],
        "triggers": [{"integration-name": integration, "python-modules": ["trainjob_airflow.triggers.trainjob"]}],
    }
