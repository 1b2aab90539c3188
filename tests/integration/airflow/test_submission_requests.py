"""Requests of the operator's submissions: which tries know that their run key is new, and which look for objects."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from airflow.models.dagrun import DagRun
from airflow.utils.types import DagRunType
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.airflow.state_store import StateStore
from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from trainjob_airflow import TrainJobOperator
from trainjob_airflow.operators.submission import STATE_STORE_KEY
from trainjob_airflow.run_key import get_run_key, is_new_run_key
from trainjob_airflow.version_compat import TaskDeferred

pytestmark = pytest.mark.usefixtures("airflow_environment")

DUE = datetime(2026, 1, 1, tzinfo=timezone.utc)
TRAINJOBS, PODS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs", "/api/v1/namespaces/default/pods"
LIST, CREATE, LIST_PODS = f"GET {TRAINJOBS}", f"POST {TRAINJOBS}", f"GET {PODS}"


class UnreadableStore(StateStore):
    def get(self, *_):
        raise OSError("no answer")


def make_context(run_id="", *, started=timedelta(seconds=1), try_number=1, reschedules=0, store=None, run_after=DUE):
    """Return the context of a task, by default in the first try of a prompt run."""
    run_id = run_id or DagRun.generate_run_id(
        run_type=DagRunType.SCHEDULED, logical_date=run_after - timedelta(days=1), run_after=run_after
    )
    ti = SimpleNamespace(
        dag_id="requests", task_id="train", run_id=run_id, map_index=-1, try_number=try_number, max_tries=3
    )
    started_at = None if started is None else run_after + started
    run = SimpleNamespace(run_after=run_after, start_date=started_at, clear_number=0)
    return {
        "ti": ti,
        "dag_run": run,
        "task": SimpleNamespace(retry_policy=None),
        "task_reschedule_count": reschedules,
        "task_state_store": StateStore() if store is None else store,
    }


NEW = [
    ("a scheduled run", make_context()),
    ("a run of now", make_context(run_after=datetime.now(timezone.utc))),
    (
        "a run without a logical date",
        make_context(DagRun.generate_run_id(run_type=DagRunType.ASSET_TRIGGERED, run_after=DUE)),
    ),
]
USED = [
    ("a second try", make_context(try_number=2)),
    ("the same try on another worker", make_context(reschedules=1)),
    ("a run that was created again, by the scheduler or a backfill", make_context(started=timedelta(seconds=6))),
    ("a run of dag.test() for a given date", make_context(started=timedelta(0))),
    ("clocks that differ", make_context(started=timedelta(seconds=-1))),
    ("a run that has not started", make_context(started=None)),
    ("an ID of the user, which a deleted run may have had", make_context("nightly")),
    ("another run's ID", make_context(f"manual__{DUE + timedelta(hours=1)}")),
]


@pytest.mark.parametrize("context", [each for _, each in NEW], ids=[name for name, _ in NEW])
def test_the_first_try_of_a_prompt_run_has_a_new_run_key(context):
    assert is_new_run_key(context)


@pytest.mark.parametrize("context", [each for _, each in USED], ids=[name for name, _ in USED])
def test_every_other_run_key_may_have_been_used(context):
    assert not is_new_run_key(context)


@given(st.integers(0, 10**9), st.integers(5_000_001, 10**9), st.sampled_from(DagRunType))
def test_no_two_runs_of_the_same_id_have_a_new_run_key_if_they_start_seconds_apart(first, apart, run_type):
    """Times in microseconds after both runs were due."""
    run_id = DagRun.generate_run_id(run_type=run_type, logical_date=DUE, run_after=DUE)
    runs = [make_context(run_id, started=timedelta(microseconds=after)) for after in (first, first + apart)]
    assert not is_new_run_key(runs[1])


# -- requests of the operator -----------------------------------------------------------------------------------------


@pytest.fixture
def proxy(laptop, monkeypatch):
    """Yield a proxy that counts the requests of the default connection."""
    with ApiServerProxy(laptop) as server:
        kubeconfig = json.loads(laptop.kubeconfig.read_text())
        kubeconfig["clusters"][0]["cluster"] = {"server": server.url}
        extra = {"kube_config": json.dumps(kubeconfig), "namespace": "default"}
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))
        yield server


@pytest.fixture
def run_after():
    return datetime.now(timezone.utc)


def submit_and_defer(context, command=("sleep", "60")):
    """Execute the operator until it is deferred, and return the reference to its TrainJob."""
    trainer = {"image": "busybox", "command": list(command)}
    operator = TrainJobOperator(task_id="train", trainer=trainer, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    return deferred.value.trigger.serialize()[1]["reference"]


def count_requests(proxy):
    """Return the number of requests for each verb and resource, without object names."""
    counts = {}
    for request, number in proxy.request_counts.items():
        verb, _, path = request.partition(" ")
        name = f"{verb} {path.partition('/default/')[2].partition('/')[0]}"
        counts[name] = counts.get(name, 0) + number
    return counts


def test_the_first_try_sends_two_requests(proxy, run_after):
    submit_and_defer(make_context(run_after=run_after))
    assert proxy.request_counts == {LIST: 1, CREATE: 1}


@pytest.mark.parametrize(
    "options",
    [{"try_number": 2}, {"reschedules": 1}, {"started": timedelta(minutes=1)}, {"store": UnreadableStore()}],
    ids=["a retry", "another worker", "a run that was created again", "no state store"],
)
def test_every_other_start_looks_for_a_jobset_and_pods(proxy, run_after, options):
    submit_and_defer(make_context(run_after=run_after, **options))
    assert count_requests(proxy) == {"GET trainjobs": 2, "GET jobsets": 1, "GET pods": 1, "POST trainjobs": 1}


def test_a_start_without_a_state_store_logs_no_warning(proxy, run_after, caplog):
    """Airflow 3.1 and 3.2 have no task state store."""
    context = make_context(run_after=run_after)
    del context["task_state_store"]
    submit_and_defer(context)
    assert count_requests(proxy) == {"GET trainjobs": 2, "GET jobsets": 1, "GET pods": 1, "POST trainjobs": 1}
    assert not [record for record in caplog.records if record.name.startswith("trainjob")]


def test_a_first_try_with_a_stored_trainjob_looks_for_a_jobset_and_pods(proxy, run_after):
    context = make_context(run_after=run_after)
    context["task_state_store"][STATE_STORE_KEY] = {"name": "gone", "namespace": "default", "uid": "1", "attempt": 1}
    submit_and_defer(context)
    assert count_requests(proxy)["GET pods"] == 2


def test_a_deferred_task_without_an_event_looks_for_a_jobset_and_pods(proxy, run_after):
    """After a crash, Airflow starts a deferred task again in the same try; its TrainJob may have been deleted."""
    operator = TrainJobOperator(task_id="train", trainer={"image": "busybox", "command": ["sleep", "60"]})
    with pytest.raises(TaskDeferred):
        operator.resume_execution("execute_complete", None, make_context(run_after=run_after))
    assert count_requests(proxy)["GET pods"] == 1


@pytest.mark.parametrize("again", ["cleared", "created again"])
def test_a_task_that_starts_again_at_once_waits_for_the_pods_of_its_deleted_trainjob(
    proxy, cluster, run_after, tmp_path, again
):
    """The user deletes the TrainJob, or the kill action does, and its pod still saves."""
    script = f"trap 'until test -e {tmp_path}/saved; do sleep 0.05; done' TERM; touch {tmp_path}/up; sleep 600 & wait"
    context = make_context(run_after=run_after)
    first = submit_and_defer(context, ("sh", "-c", script))
    wait_until((tmp_path / "up").exists)
    cluster.delete_trainjob(first["name"], "default", first["uid"])
    if again == "cleared":
        following = make_context(run_after=run_after, try_number=2, store=context["task_state_store"])
    else:
        following = make_context(run_after=run_after, started=timedelta(seconds=10))
    assert get_run_key(following) == get_run_key(context)
    proxy.request_counts.clear()
    with ThreadPoolExecutor(1) as pool:
        submission = pool.submit(submit_and_defer, following)
        wait_until(lambda: proxy.request_counts[LIST_PODS] >= 2)
        assert not proxy.request_counts[CREATE]
        (tmp_path / "saved").touch()
        second = submission.result(60)
    assert second["uid"] != first["uid"]


def test_two_starts_of_the_first_try_create_one_trainjob(proxy, cluster, run_after):
    contexts = [make_context(run_after=run_after) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        references = list(pool.map(submit_and_defer, contexts))
    assert len({reference["uid"] for reference in references}) == 1
    assert sum(not reference["adopted"] for reference in references) == 1
