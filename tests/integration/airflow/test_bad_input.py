"""Tests that permanent errors fail a task without retry, and that other errors are retried by the task's policy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.integration.airflow.airflow_runs import run_dag
from tests.support.airflow_versions import needs_retry_policy
from trainjob import errors
from trainjob.errors import PermissionDenied
from trainjob.lifecycle import JobReference
from trainjob_airflow import TrainJobOperator
from trainjob_airflow.task_errors import event_from_error
from trainjob_airflow.version_compat import AirflowFailException

TASK_INSTANCE = SimpleNamespace(dag_id="d", task_id="t", map_index=-1, xcom_push=lambda **_: None)
WITH_RETRY_POLICIES = Path(__file__).with_name("dags_with_retry_policies")


def kubeconfig_with_token(laptop, token):
    """Return a kubeconfig of the laptop cluster with this bearer token."""
    kubeconfig = yaml.safe_load(laptop.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    return kubeconfig


def connection(**extra):
    return json.dumps({"conn_type": "trainjob", "extra": extra})


@pytest.fixture(scope="module")
def token_without_permissions(laptop):
    """Yield the token of a service account without any permissions."""
    from kubernetes import client, config

    api = config.new_client_from_config(str(laptop.kubeconfig))
    core = client.CoreV1Api(api)
    core.create_namespaced_service_account("default", {"metadata": {"name": "stranger"}})
    request = {"spec": {"expirationSeconds": 3600}}
    yield core.create_namespaced_service_account_token("stranger", "default", request).status.token
    api.close()


MESSAGES = {
    "no_such_connection": r"Airflow has no connection 'nobody'\s+-> add a connection with this ID",
    "no_such_kubeconfig": r"the kubeconfig /nowhere/config can't be used",
    "wrong_token": r"http\S+ does not accept the credentials \(401\)",
    "no_permission": r"no permission to list trainjobs in namespace default: .*stranger",
    "no_such_runtime": r"runtime cannot be 'torch-distributet': .*did you mean torch-distributed\? \(there are ",
    "no_image_name": r"failed in step node: InvalidImageName: .*invalid reference format",
    "no_such_command": r"exit code 128: .*last: StartError.*(?s:.)*no-such-program",
    "no_such_namespace": r"can't create trainjobs in namespace nowhere: .*nowhere",
    "undefined_name": r"a template of this task cannot be rendered: UndefinedError: 'imagge' is undefined",
    "no_template": r"a template of this task cannot be rendered: TemplateSyntaxError: ",
    "nonsense": r"trainer\.num_nodes cannot be 'many': ",
    "no_such_file": r"a template of this task cannot be rendered: TemplateNotFound: .*nowhere\.yaml",
    "no_manifest": r"manifest cannot be .*: it must be YAML or JSON: ",
    "unknown_field": r"the cluster refused to create trainjobs in namespace default: .*unknown field \"spec\.trainr\"",
    "mapped": r"a template of this task cannot be rendered: UndefinedError: 'imagge' is undefined",
    "missing_job_to_suspend": r"there is no TrainJob default/nobody",
    "may_not_delete": r"no permission to get trainjobs in namespace default: .*stranger",
    "workspace_create": r"the cluster refused to create persistentvolumeclaims in namespace default: .*",
}

# The token may be in rotation (401), and the connection may just be replaced.
RETRIED = {"wrong_token", "no_such_connection"}


@pytest.mark.slow
def test_permanent_errors_fail_the_task_without_retry(airflow, laptop, token_without_permissions):
    printed, tasks, state = run_dag(
        airflow,
        "bad_input",
        AIRFLOW_CONN_LOST=connection(kube_config_path="/nowhere/config"),
        AIRFLOW_CONN_EXPIRED=connection(kube_config=kubeconfig_with_token(laptop, "expired-token")),
        AIRFLOW_CONN_STRANGER=connection(kube_config=kubeconfig_with_token(laptop, token_without_permissions)),
    )
    assert state == "failed"
    expected = {task: ("failed", 4 if task in RETRIED else 1) for task in MESSAGES}
    assert {task: tasks[task] for task in MESSAGES} == expected, printed[-6000:]
    assert [task for task, message in MESSAGES.items() if not re.search(message, printed)] == []
    assert "expired-token" not in printed
    assert token_without_permissions not in printed


@needs_retry_policy
@pytest.mark.slow
def test_a_retry_policy_matches_the_classes_of_errors(airflow):
    printed, tasks, _ = run_dag(airflow, "by_policy", AIRFLOW__CORE__DAGS_FOLDER=str(WITH_RETRY_POLICIES))
    assert tasks == {"not_retried": ("failed", 1), "retried": ("failed", 2), "on_worker": ("failed", 1)}
    assert "Matched rule for CommandFailed" in printed


@pytest.mark.parametrize(
    ("kind", "permanent"),
    [
        ("InvalidSpec", True),
        ("NoClusterConfigured", True),
        ("Unauthorized", False),
        ("PermissionDenied", True),
        ("NotFound", True),
        ("NeverStarted", True),
        ("ImageUnavailable", True),
        ("ClusterUnreachable", False),
        ("InvalidResponse", False),
        ("ServerUnavailable", False),
        ("WaitTimeout", False),
    ],
)
def test_permanent_errors_after_the_deferral_fail_the_task_without_retry(kind, permanent):
    operator = TrainJobOperator(task_id="t", trainer={"image": "x"}, kubernetes_conn_id=None)
    event = {"reference": JobReference("j", "ns", "u").to_dict(), "error": "why", "kind": kind}
    with pytest.raises(Exception, match="why") as raised:
        operator.execute_complete({"ti": TASK_INSTANCE}, event)
    assert type(raised.value).__name__ == ("AirflowFailException" if permanent else kind)
    assert permanent or isinstance(raised.value, getattr(errors, kind))


@pytest.mark.parametrize("worked_before", [True, False])
def test_a_missing_permission_after_the_deferral_is_retried_if_the_request_worked_before(worked_before):
    error = PermissionDenied("why")
    error.worked_before = error.retryable = worked_before
    event = {"reference": JobReference("j", "ns", "u").to_dict(), **event_from_error(error)}
    operator = TrainJobOperator(task_id="t", trainer={"image": "x"}, kubernetes_conn_id=None)
    with pytest.raises(PermissionDenied if worked_before else AirflowFailException, match="why"):
        operator.execute_complete({"ti": TASK_INSTANCE}, json.loads(json.dumps(event)))
