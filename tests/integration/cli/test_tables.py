"""Tables in a pipe: no name is cut and no row wraps, as with kubectl, whatever the width of the terminal."""

from __future__ import annotations

import pytest
import yaml

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key

LONG = "fine-tune-with-a-name-that-is-almost-as-long-as-it-may-be"
NARROW = {"COLUMNS": "40"}


@pytest.fixture
def api_server(tmp_path):
    with bare_apiserver(tmp_path) as server:
        server.create_runtime(LONG)
        server.create_trainjob(LONG, make_run_key("train"))
        server.set_running(LONG)
        yield server


@pytest.fixture
def run_narrow(api_server, trainjob):
    """Return a function that runs the command with pipes; it returns its lines."""

    def run(*arguments):
        done = trainjob(*arguments, env={**NARROW, "KUBECONFIG": str(api_server.kubeconfig)})
        assert done.returncode == 0, done.stderr
        return [line.rstrip() for line in done.stdout.splitlines()]

    return run


def test_runtimes_have_one_whole_line_each(run_narrow):
    lines = run_narrow("runtimes")
    assert lines[0].split() == ["NAME", "KIND", "FRAMEWORK", "NODES", "DEVICES", "STEPS"]
    [row] = [line.split() for line in lines if line.startswith("fine-tune")]
    assert row == [LONG, "ClusterTrainingRuntime", "torch", "1", "-", "node"]
    assert not [line for line in lines if "…" in line]


def test_trainjobs_have_one_whole_line_each(run_narrow):
    title, row = run_narrow("list")
    assert title.split()[0] == "NAME"
    assert row.split()[0] == LONG
    assert row.endswith("airflow nightly.train run-1")


def test_tables_of_describe_have_one_whole_line_for_each_row(run_narrow):
    lines = run_narrow("describe", LONG)
    assert lines[0].startswith(f"TrainJob default/{LONG}  Running")
    assert next(line.split() for line in lines if line.startswith("  NAME")) == [
        "NAME",
        "ACTIVE",
        "READY",
        "SUCCEEDED",
        "FAILED",
    ]
    assert ["node", "1", "1", "0", "0"] in [line.split() for line in lines]


def test_the_comparison_of_fields_wraps_at_a_fixed_width_and_omits_nothing(trainjob, environment, tmp_path):
    """The two columns of `migrate diff` stand side by side, so long values continue on the next line."""
    container = {"name": "pytorch", "image": f"registry.example/{LONG}:1"}
    template = {"spec": {"containers": [container]}}
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}
    file = tmp_path / "job.yaml"
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "one"}, "spec": spec}
    file.write_text(yaml.safe_dump(job))
    done = trainjob("migrate", "diff", file, env={"COLUMNS": "100"})
    assert done.returncode == 0, done.stderr
    _, titles, *lines = done.stdout.splitlines()
    middle = titles.index("TrainJob one")
    before, after = ("".join(line[half].strip() for line in lines) for half in (slice(middle), slice(middle, None)))
    assert container["image"] in before
    assert container["image"] in after
    assert "…" not in done.stdout
