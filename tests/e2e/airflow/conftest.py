"""The option for a screenshot of our page in Airflow's UI."""

from __future__ import annotations


def pytest_addoption(parser):
    parser.addoption("--page-screenshot", metavar="FILE", help="write what the page in Airflow's UI looks like")
