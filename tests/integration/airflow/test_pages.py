"""Tests that each Airflow code block in README.md and docs/ is a DAG file without changes."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.support.code_blocks import ROOT, RUNNABLE_BLOCKS, python_blocks
from tests.support.three_forms import describe_training, find_block, read_training
from trainjob import FineTune


@pytest.mark.parametrize("block", python_blocks("airflow"), ids=str)
def test_a_block_registers_a_dag(airflow, block, tmp_path):
    from tests.support.airflow_versions import HAS_RETRY_POLICY, NO_RETRY_POLICY, load_dags

    if "RetryPolicy" in block.text and not HAS_RETRY_POLICY:
        pytest.skip(NO_RETRY_POLICY)
    (tmp_path / "block.py").write_text(block.text, "utf-8")
    bag = load_dags(tmp_path)
    assert bag.import_errors == {}
    assert bag.dags
    assert all(dag.tasks for dag in bag.dags.values())


def test_the_dag_of_a_page_trains_what_its_file_trains(airflow, tmp_path):
    from tests.support.airflow_versions import load_dags

    (tmp_path / "block.py").write_text(find_block("airflow").text, "utf-8")
    [dag] = load_dags(tmp_path).dags.values()
    task = dag.get_task("fine_tune")
    step = FineTune(model=task.model, workspace="tickets", config=task.config)
    assert describe_training(step) == read_training()


def test_the_connection_of_the_page_can_be_imported_and_names_a_cluster(airflow, tmp_path):
    """`airflow connections import` reads the file with this function."""
    from airflow.secrets.local_filesystem import load_connections_dict

    from trainjob_airflow.hooks.trainjob import connection_from_extra

    [block] = [
        one
        for one in RUNNABLE_BLOCKS
        if one.page == "docs/reference/airflow.md" and one.language == "json" and "conn_type" in one.text
    ]
    file = tmp_path / "connections.json"
    file.write_text(block.text, "utf-8")
    [(name, connection)] = load_connections_dict(str(file)).items()
    assert (name, connection.conn_type) == ("kubernetes_default", "trainjob")
    expected = {"kubeconfig": "/opt/airflow/kubeconfig", "context": "gpu", "namespace": "team"}
    assert connection_from_extra(connection.extra_dejson).to_dict() == expected


TUTORIAL = "docs/tutorials/airflow.md"
DEMO_REQUIREMENTS = ROOT / "demo" / "src" / "trainjob_demo" / "requirements" / "airflow.in"
# Values of Airflow's Helm chart 1.22 that the tutorial sets.
CHART_VALUES = {
    "airflowVersion",
    "config",
    "defaultAirflowRepository",
    "defaultAirflowTag",
    "executor",
    "secret",
    "triggerer",
}


def tutorial_blocks(language):
    return [block for block in RUNNABLE_BLOCKS if block.page == TUTORIAL and block.language == language]


@pytest.mark.parametrize("block", tutorial_blocks("json"), ids=str)
def test_a_connection_of_the_tutorial_names_a_cluster(airflow, block):
    """The text is the value of AIRFLOW_CONN_KUBERNETES_DEFAULT."""
    from airflow.models.connection import Connection

    from trainjob_airflow.hooks.trainjob import connection_from_extra

    connection = Connection.from_json(block.text, conn_id="kubernetes_default")
    assert connection.conn_type == "trainjob"
    parsed = connection_from_extra(connection.extra_dejson)
    assert parsed.namespace == "team"
    assert parsed.in_cluster or json.loads(parsed.kubeconfig_text)["clusters"]


def test_the_values_of_the_tutorial_fit_airflow_and_its_secret(airflow):
    from airflow.configuration import conf

    [version] = re.findall(r"^apache-airflow==(.+)$", DEMO_REQUIREMENTS.read_text("utf-8"), re.MULTILINE)
    [block] = [one for one in tutorial_blocks("yaml") if one.title == "values.yaml"]
    values = yaml.safe_load(block.text)
    assert set(values) <= CHART_VALUES
    assert values["airflowVersion"] == version
    assert values["defaultAirflowTag"].startswith(f"{version}-")
    for section, options in values["config"].items():
        assert set(options) <= set(conf.configuration_description[section]["options"])
    [secret] = values["secret"]
    assert secret["envName"] == "AIRFLOW_CONN_KUBERNETES_DEFAULT"
    commands = "".join(one.text for one in tutorial_blocks("console"))
    [connection] = [one for one in tutorial_blocks("json") if one.title]
    assert (
        f"create secret generic {secret['secretName']} -n airflow --from-file={secret['secretKey']}={connection.title}"
        in commands
    )
    json.loads(connection.text)
