"""Tests that each Airflow code block in README.md and docs/ is a DAG file without changes."""

from __future__ import annotations

import pytest

from tests.support.code_blocks import python_blocks


@pytest.mark.parametrize("block", python_blocks("airflow"), ids=str)
def test_a_block_registers_a_dag(airflow, block, tmp_path):
    from airflow.dag_processing.dagbag import BundleDagBag

    (tmp_path / "block.py").write_text(block.text, "utf-8")
    bag = BundleDagBag(tmp_path, bundle_path=tmp_path, bundle_name="pages")
    assert bag.import_errors == {}
    assert bag.dags
    assert all(dag.tasks for dag in bag.dags.values())
