"""Promotions with a command, on the laptop cluster: kills at every point, rollbacks, and two at once."""

from __future__ import annotations

import json
import signal
from contextlib import closing

import pytest

from tests.support.crash_points import kill_parameters
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from tests.support.promotions import PLAIN_POINTS, ROLLBACK_POINTS, SERVED
from tests.support.shipped_manifests import load_objects

A, B, C = (f"s3://models/tickets/{name}" for name in "abc")


def deployments(tmp_path):
    return (tmp_path / "log").read_text().splitlines()


def test_promote_and_roll_back(promoter, served):
    first = promoter.result("promote", "monday", model=A)
    assert first == {
        "promoted": True, "service": "tickets", "kind": "Command", "model": A, "before": "", "reason": "",
    }  # fmt: skip
    assert promoter.result("promote", "tuesday", model=B)["before"] == A
    assert served() == B
    undone = promoter.result("rollback", "undo", run="run-of-tuesday")
    assert (undone["rolled_back"], undone["model"], undone["before"]) == (True, A, B)
    assert served() == A


def test_another_try_promotes_nothing_twice(promoter, tmp_path):
    for _ in range(3):
        assert promoter.result("promote", "monday", model=A)["promoted"] is True
    assert deployments(tmp_path) == [A]


def test_a_late_try_does_not_replace_a_newer_model(promoter, served):
    promoter.result("promote", "monday", model=A)
    promoter.result("promote", "tuesday", model=B)
    late = promoter.result("promote", "monday", model=A)
    assert (late["promoted"], late["model"], late["reason"]) == (False, B, "another model has replaced it")
    assert served() == B


def test_a_model_that_fails_is_replaced_by_the_one_before(promoter, served, tmp_path):
    promoter.result("promote", "monday", model=A)
    code, output = promoter.run("promote", "tuesday", model=f"{B}bad")
    assert code == 1
    assert output.endswith(
        f"promote: failed: {B}bad was not promoted: the command ended with code 1\n  -> {A} is served\n"
    )
    assert served() == A
    assert promoter.states("Command", "tickets") == [("tuesday", "rolled back"), ("monday", "promoted")]
    # The next try of the step is a new one, and so is the next run.
    assert promoter.run("promote", "tuesday", model=f"{B}bad")[0] == 1
    assert promoter.result("promote", "wednesday", model=C)["before"] == A
    assert deployments(tmp_path) == [A, f"{B}bad", A, f"{B}bad", A, C]


def test_rollback_without_a_promotion_of_its_run_changes_nothing(promoter, served, tmp_path):
    promoter.result("promote", "monday", model=A)
    promoter.run("promote", "tuesday", model=f"{B}bad")
    before = deployments(tmp_path)
    nothing = promoter.result("rollback", "undo", run="run-of-tuesday")
    assert (nothing["rolled_back"], nothing["reason"]) == (False, "there is no promotion to undo")
    promoter.result("promote", "wednesday", model=C)
    replaced = promoter.result("rollback", "undo-monday", run="run-of-monday")
    assert replaced["reason"] == "a later promotion has replaced the one of this run"
    assert deployments(tmp_path) == [*before, C]
    assert served() == C


def test_rollback_of_any_run_goes_back_one_by_one(promoter, served):
    for key, model in (("monday", A), ("tuesday", B), ("wednesday", C)):
        promoter.result("promote", key, model=model)
    for key, model in (("first", B), ("first", B), ("second", A)):
        assert promoter.result("rollback", key, any_run=True)["model"] == model
        assert served() == model


@pytest.mark.parametrize("point", kill_parameters(PLAIN_POINTS, quick=[SERVED]))
def test_a_killed_promotion_is_completed_by_the_next_try(promoter, served, tmp_path, point):
    promoter.result("promote", "monday", model=A)
    code, output = promoter.run("promote", "tuesday", model=B, killed_at=point)
    assert code == -signal.SIGKILL, output
    assert promoter.result("promote", "tuesday", model=B) == {
        "promoted": True, "service": "tickets", "kind": "Command", "model": B, "before": A, "reason": "",
    }  # fmt: skip
    assert served() == B
    assert promoter.states("Command", "tickets") == [("tuesday", "promoted"), ("monday", "promoted")]
    assert set(deployments(tmp_path)) == {A, B}
    assert promoter.result("rollback", "undo", run="run-of-tuesday")["model"] == A


@pytest.mark.parametrize("point", kill_parameters(PLAIN_POINTS, quick=[SERVED]))
def test_a_killed_promotion_can_be_undone(promoter, served, point):
    promoter.result("promote", "monday", model=A)
    promoter.run("promote", "tuesday", model=B, killed_at=point)
    was_recorded = promoter.states("Command", "tickets")[0][0] == "tuesday"
    undone = promoter.result("rollback", "undo", run="run-of-tuesday")
    assert (undone["rolled_back"], undone["model"]) == (was_recorded, A)
    assert served() == A
    late = promoter.run("promote", "tuesday", model=B)
    if was_recorded:  # else this try is the first one
        assert "it was rolled back: undone by run-of-tuesday" in late[1]
        assert served() == A


@pytest.mark.parametrize("point", kill_parameters(ROLLBACK_POINTS))
def test_a_killed_rollback_is_completed_by_the_next_try(promoter, served, point):
    promoter.result("promote", "monday", model=A)
    promoter.result("promote", "tuesday", model=B)
    code, output = promoter.run("rollback", "undo", run="run-of-tuesday", killed_at=point)
    assert code == -signal.SIGKILL, output
    assert promoter.result("rollback", "undo", run="run-of-tuesday")["model"] == A
    assert served() == A
    assert promoter.states("Command", "tickets") == [("tuesday", "rolled back"), ("monday", "promoted")]


@pytest.mark.parametrize("point", kill_parameters(ROLLBACK_POINTS))
def test_a_failed_promotion_that_is_killed_is_rolled_back_by_the_next_try(promoter, served, point):
    promoter.result("promote", "monday", model=A)
    code, output = promoter.run("promote", "tuesday", model=f"{B}bad", killed_at=point)
    assert code == -signal.SIGKILL, output
    assert promoter.run("promote", "tuesday", model=f"{B}bad")[0] == 1
    assert served() == A
    assert promoter.states("Command", "tickets") == [("tuesday", "rolled back"), ("monday", "promoted")]


def test_a_promotion_that_never_comes_back_is_ended_by_the_next_run(promoter, served):
    promoter.result("promote", "monday", model=A)
    promoter.run("promote", "tuesday", model=B, killed_at=SERVED, seconds=0.5)  # it is late after one second
    assert served() == B

    def promote_next():
        code, output = promoter.run("promote", "wednesday", model=C)
        assert code == 0 or "another promotion of service tickets is not complete: that of run-of-tuesday" in output
        return code == 0

    wait_until(promote_next)
    assert promoter.states("Command", "tickets") == [
        ("wednesday", "promoted"),
        ("tuesday", "rolled back"),
        ("monday", "promoted"),
    ]
    assert promoter.result("rollback", "undo", run="run-of-wednesday")["model"] == A


def test_two_tries_at_once_are_one_promotion(promoter, served):
    promoter.result("promote", "monday", model=A)
    tries = [promoter.start("promote", "tuesday", model=B) for _ in range(3)]
    for each in tries:
        output, _ = each.communicate()
        assert each.returncode == 0, output
        assert json.loads(output.rpartition(" done ")[2])["promoted"] is True
    assert served() == B
    assert promoter.states("Command", "tickets") == [("tuesday", "promoted"), ("monday", "promoted")]


def test_a_rollback_ends_a_promotion_that_is_under_way(promoter, served, tmp_path):
    promoter.result("promote", "monday", model=A)
    (tmp_path / "hold").touch()
    under_way = promoter.start("promote", "tuesday", model=B)
    wait_until(lambda: promoter.states("Command", "tickets")[0] == ("tuesday", "rolling out"))
    refused = promoter.run("promote", "wednesday", model=C)
    assert refused[0] == 1
    assert "another promotion of service tickets is not complete: that of run-of-tuesday" in refused[1]
    undoing = promoter.start("rollback", "undo", run="run-of-tuesday")
    wait_until(lambda: promoter.states("Command", "tickets")[0] == ("tuesday", "rolling back"))
    (tmp_path / "hold").unlink()
    assert undoing.communicate()[0] and undoing.returncode == 0
    output, _ = under_way.communicate()
    assert '"promoted": false' in output and "it was rolled back: undone by run-of-tuesday" in output
    assert promoter.states("Command", "tickets")[0] == ("tuesday", "rolled back")
    assert served() == A


def test_an_ending_pod_rolls_back(promoter, served, tmp_path):
    promoter.result("promote", "monday", model=A)
    (tmp_path / "hold").touch()
    stopped = promoter.start("promote", "tuesday", model=B)
    wait_until(lambda: promoter.states("Command", "tickets")[0] == ("tuesday", "rolling out"))
    stopped.send_signal(signal.SIGTERM)
    (tmp_path / "hold").unlink()
    output, _ = stopped.communicate()
    assert stopped.returncode == 1
    assert f"{B} was not promoted: the pod is being ended" in output
    assert served() == A
    assert promoter.states("Command", "tickets") == [("tuesday", "rolled back"), ("monday", "promoted")]


def test_the_laptop_cluster_has_the_account_of_the_manifest(laptop):
    with closing(Client.from_kubeconfig(str(laptop.kubeconfig))) as client:
        for wanted in load_objects("promotion"):
            found = client.get(wanted["kind"], "default", wanted["metadata"]["name"])
            assert {name: found[name] for name in wanted if name not in ("metadata", "apiVersion", "kind")} == {
                name: value for name, value in wanted.items() if name not in ("metadata", "apiVersion", "kind")
            }
            assert found["metadata"]["labels"] == wanted["metadata"]["labels"]


def test_without_a_permission(promoter):
    promoter.client.delete("RoleBinding", promoter.namespace, "trainjob-promotion")
    code, output = promoter.run("promote", "monday", model=A)
    assert code == 1
    assert "the service account of the pod lacks a permission: configmaps" in output
    assert "apply manifests/promotion in this namespace" in output


def test_rollback_without_a_workflow_run_names_the_field(promoter):
    code, output = promoter.run("rollback", "undo", run="")
    assert (code, output.splitlines()[0]) == (
        2,
        "rollback: failed: any_run cannot be false: this step has no workflow run, so it must be true",
    )
