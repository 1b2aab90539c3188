"""The example of an approval in a complete Airflow: real evaluations, questions to a person, and promotions."""

from __future__ import annotations

import json
import re

import pytest

from tests.integration.evaluation.conftest import TASKS, trained
from tests.support.checkout import ROOT
from tests.support.evaluated_models import laptop_with_models
from tests.support.standalone import SHORT_INTERVALS, Standalone, wait_for_airflow
from tests.support.training_fixtures import hub

__all__ = ["hub", "trained"]
pytestmark = [pytest.mark.timeout(600), pytest.mark.lm_eval]
EXAMPLE = ROOT / "examples" / "airflow_3_3" / "approval.py"


@pytest.fixture(scope="module")
def models(hub, trained, tmp_path_factory):
    """Return a laptop cluster and the folder of its volume `tickets`."""
    with laptop_with_models(tmp_path_factory.mktemp("cluster"), hub, trained, TASKS["tickets"]) as started:
        yield started


@pytest.fixture(scope="module")
def volume(models):
    return models[1]


@pytest.fixture(scope="module")
def airflow(models, tmp_path_factory):
    """Start Airflow with the example, and a copy `hasty` with a time limit of 3 s."""
    home, dags = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags")
    source = EXAMPLE.read_text()
    (dags / "approval.py").write_text(source)
    hasty = source.replace("def approval()", "def hasty()").replace("\napproval()", "\nhasty()")
    assert "timedelta(days=2)" in hasty
    (dags / "hasty.py").write_text(hasty.replace("timedelta(days=2)", "timedelta(seconds=3)"))
    extra = {"kube_config_path": str(models[0].kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    with Standalone(home, dags, **SHORT_INTERVALS, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection) as airflow:
        yield airflow


def start_run(airflow, volume, dag, candidate):
    """Start a run whose champion is the other model."""
    champion = volume / "champion"
    champion.unlink(missing_ok=True)
    champion.symlink_to({"better": "worse", "worse": "better"}[candidate])
    return airflow.start_run(dag, candidate=candidate)


def wait_for_end(airflow, run):
    """Return the state of each task at the end of a run."""
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 180)
    return {task: airflow.get_state(run, task) for task in ("evaluate", "approve", "promote")}


@pytest.mark.parametrize(("decision", "state"), [("Approve", "success"), ("Reject", "skipped")])
def test_a_person_sees_the_scores_and_decides(airflow, volume, decision, state):
    run = start_run(airflow, volume, "approval", "better")
    wait_for_airflow(lambda: airflow.get_state(run, "approve") == "awaiting_input", 180)
    # An answer before this event of the executor would be taken for the end of the task's second part (Airflow 3.3; see
    # deferral.MIN_TRIGGER_SECONDS). A person is never that fast.
    name = re.escape(run.rpartition("/")[2])
    event = f"Received executor event with state success for task instance.*'approve'.*{name}"
    wait_for_airflow(lambda: re.search(event, airflow.log.read_text()), 60)
    details = f"{run}/taskInstances/approve/-1/hitlDetails"
    question = airflow.request("GET", details)
    assert question["subject"] == "Promote better?"
    assert question["body"].startswith("**All gates passed.**\n\n| Metric | New model | Champion | Better by |")
    assert "| `tickets/exact_match` | not worse than the champion by more than 0.02 | passed |" in question["body"]
    assert (volume / "champion").readlink().name == "worse"
    airflow.request("PATCH", details, {"chosen_options": [decision]})
    states = wait_for_end(airflow, run)
    assert states == {"evaluate": "success", "approve": "success", "promote": state}, airflow.log.read_text()[-6000:]
    assert (volume / "champion").readlink().name == ("better" if decision == "Approve" else "worse")


def test_a_model_that_nobody_approves_in_time_is_not_promoted(airflow, volume):
    run = start_run(airflow, volume, "hasty", "better")
    states = wait_for_end(airflow, run)
    assert states == {"evaluate": "success", "approve": "success", "promote": "skipped"}
    assert airflow.request("GET", f"{run}/taskInstances/approve/-1/hitlDetails")["chosen_options"] == ["Reject"]
    assert (volume / "champion").readlink().name == "worse"


def test_there_is_no_question_about_a_model_whose_gates_fail(airflow, volume):
    run = start_run(airflow, volume, "approval", "worse")
    assert wait_for_end(airflow, run) == {"evaluate": "success", "approve": "skipped", "promote": "skipped"}
    assert (volume / "champion").readlink().name == "better"
