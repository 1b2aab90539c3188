"""Tests that each Airflow code block in README.md and docs/ is a DAG file without changes."""

from __future__ import annotations

import pytest

from tests.support.code_blocks import RUNNABLE_BLOCKS, python_blocks


@pytest.mark.parametrize("block", python_blocks("airflow"), ids=str)
def test_a_block_registers_a_dag(airflow, block, tmp_path):
    from airflow.dag_processing.dagbag import BundleDagBag

    (tmp_path / "block.py").write_text(block.text, "utf-8")
    bag = BundleDagBag(tmp_path, bundle_path=tmp_path, bundle_name="pages")
    assert bag.import_errors == {}
    assert bag.dags
    assert all(dag.tasks for dag in bag.dags.values())


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
