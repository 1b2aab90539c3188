"""Tests that the page about metrics, the dashboard and the mapping of statsd_exporter have the metrics of the code."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.code_blocks import ALL_BLOCKS
from trainjob.status import Category
from trainjob_airflow.metrics import METRICS, MetricKind, build_names
from trainjob_airflow.version_compat import conf

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "metrics.md").read_text()
GRAFANA = ROOT / "manifests" / "grafana"
PANELS = json.loads((GRAFANA / "trainjob.json").read_text())["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
ALERTS = [("alert", row[1].replace("\\|", "|")) for row in re.finditer(r"^\| `(.+ > [0-9]+)` \|", PAGE, re.MULTILINE)]
MAPPINGS = yaml.safe_load((GRAFANA / "statsd-mapping.yaml").read_text())["mappings"]
KINDS = {MetricKind.COUNTER: "counter", MetricKind.GAUGE: "gauge", MetricKind.TIMER: "timer"}
PROMETHEUS_NAMES = {f"airflow_{metric.name.replace('.', '_')}": metric for metric in METRICS}
FUNCTIONS = {"sum", "max", "by", "increase", "rate", "histogram_quantile"}


def test_the_table_of_the_page_is_that_of_the_code():
    rows = re.findall(r"^\| `(trainjob\.\w+)` \| (\w+) \| (.+?) \| .{10,} \|$", PAGE, re.MULTILINE)
    assert rows == [
        (metric.name, KINDS[metric.kind], ", ".join(f"`{tag}`" for tag in metric.tags)) for metric in METRICS
    ]


def test_the_page_names_existing_categories():
    named = set(re.findall(r"`(\w+)`", PAGE.partition("The categories are ")[2].partition("\n\n")[0]))
    assert named <= {category.value for category in Category}
    assert "Succeeded" in named


def test_airflow_has_the_settings_of_the_page():
    blocks = [block.text for block in ALL_BLOCKS if "[metrics]" in block.text and "metrics.md" in str(block)]
    options = set()
    for block in blocks:
        parser = configparser.ConfigParser()
        parser.read_string(block)
        options |= set(parser["metrics"])
    assert {"statsd_on", "otel_on"} <= options
    assert all(conf.has_option("metrics", option) for option in options)


# -- queries ----------------------------------------------------------------------------------------------------------


def parse_query(expression):
    """Return the metrics of a PromQL expression by their Prometheus names, and all its labels."""
    labels = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"', expression)
    labels += [label for found in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", found)]
    without_text = re.sub(r'"[^"]*"|\[[^]]*\]', "", expression)
    identifiers = set(re.findall(r"[a-z_]\w*", without_text)) - FUNCTIONS - set(labels)
    return identifiers, set(labels)


@pytest.mark.parametrize(("title", "expression"), QUERIES + ALERTS)
def test_each_query_uses_documented_metrics_and_labels(title, expression):
    names, labels = parse_query(expression)
    assert names, title
    for name in names:
        base = re.sub("_bucket$", "", name)
        metric = PROMETHEUS_NAMES[base]
        assert (name != base) == (metric.kind is MetricKind.TIMER)
        assert labels <= {*metric.tags, *(["le"] if metric.kind is MetricKind.TIMER else [])}
        assert ("increase(" in expression) == (metric.kind is MetricKind.COUNTER)


def test_the_dashboard_shows_every_metric():
    shown = {re.sub("_bucket$", "", name) for _, expression in QUERIES for name in parse_query(expression)[0]}
    assert shown == PROMETHEUS_NAMES.keys()
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len(ALERTS) == 5


@pytest.mark.parametrize("expression", ["sum(airflow_trainjob_unknown)", "summ(airflow_trainjob_jobs)"])
def test_the_parser_of_queries_finds_wrong_names(expression):
    assert not parse_query(expression)[0] <= PROMETHEUS_NAMES.keys()


def test_the_variables_of_the_dashboard_use_a_metric_with_the_label():
    [variable] = [
        each
        for each in json.loads((GRAFANA / "trainjob.json").read_text())["templating"]["list"]
        if each["type"] == "query"
    ]
    name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
    assert label in PROMETHEUS_NAMES[name].tags


# -- the mapping ------------------------------------------------------------------------------------------------------


def map_name(name):
    """Return the mapping of a StatsD name, and its labels, as statsd_exporter does for globs."""
    found = []
    for mapping in MAPPINGS:
        pattern = re.escape(mapping["match"]).replace(r"\*", "([^.]+)")
        if match := re.fullmatch(pattern, name):
            labels = {key: match[int(value.removeprefix("$"))] for key, value in mapping.get("labels", {}).items()}
            found.append((mapping, labels))
    [result] = found  # unambiguous
    return result


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_names_of_each_metric_become_labels(metric):
    tags = {tag: f"value-of.{tag}" for tag in metric.tags}
    (plain, _), (name, rest) = build_names(metric, tags, with_values=True)
    assert rest == {}
    mapping, labels = map_name(f"airflow.{name}")
    assert PROMETHEUS_NAMES[mapping["name"]] is metric
    assert labels == {tag: value.replace(".", "__") for tag, value in tags.items()}
    assert mapping.get("observer_type") == ("histogram" if metric.kind is MetricKind.TIMER else None)
    assert ("ttl" in mapping) == (metric.kind is MetricKind.GAUGE)
    assert map_name(f"airflow.{plain}")[0]["action"] == "drop"
