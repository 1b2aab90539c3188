"""A deferred task whose credentials the API server refuses for longer than the retries of its trigger."""

from __future__ import annotations

import asyncio
import functools
import json

import pytest

from tests.integration.airflow.test_errors_after_creation import (
    active_uids,
    adopt_in_next_try,
    delete_trainjobs,
    make_context,
    operator,
)
from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from tests.support.replaced_credentials import Credentials
from trainjob.client import backoff, informer
from trainjob.errors import Unauthorized
from trainjob_airflow.version_compat import TaskDeferred

SECONDS = 2.0  # instead of 60, for which a refused list is repeated


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        server.accepted_tokens = {"old"}
        yield server


@pytest.fixture
def credentials(proxy, tmp_path, monkeypatch):
    """Return the credentials of Airflow's default connection, which leads to the proxy."""
    found = Credentials("kubeconfig", tmp_path, proxy.url)
    extra = {"kube_config_path": str(found.kubeconfig), "namespace": "default"}
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    return found


async def first_event(trigger, when_waiting):
    waiting = asyncio.create_task(anext(trigger.run()))
    await asyncio.to_thread(when_waiting)
    return (await asyncio.wait_for(waiting, 60)).payload


@pytest.mark.usefixtures("airflow_environment")
def test_the_task_is_retried_and_the_next_try_adopts_the_trainjob(cluster, proxy, credentials, unique, monkeypatch):
    timings = functools.partial(backoff.InformerTimings, refusal_timeout=SECONDS)
    monkeypatch.setattr(informer, "InformerTimings", timings)
    task = operator()
    context = make_context(task, unique, max_tries=1)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    [uid] = active_uids(cluster, context)

    def refuse():
        wait_until(lambda: len(proxy.streams) == 2)  # of TrainJobs and pods
        proxy.accepted_tokens = {"new"}
        proxy.end_streams()

    event = asyncio.run(first_event(deferred.value.trigger, refuse))
    assert (event["kind"], event["retryable"]) == ("Unauthorized", True)
    with pytest.raises(Unauthorized):  # not AirflowFailException, so that Airflow retries the task
        task.resume_execution("execute_complete", {"event": event}, context)
    assert active_uids(cluster, context) == [uid]
    credentials.replace("new")
    assert adopt_in_next_try(task, unique) == uid
    delete_trainjobs(cluster, context)
