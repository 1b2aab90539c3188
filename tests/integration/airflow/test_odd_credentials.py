"""A connection whose token has a line end, a blank or another character after it: what Airflow shows of it."""

from __future__ import annotations

import asyncio
import json
import time
import traceback

import pytest

from tests.support.odd_credentials import ODD_ENDS, write_odd_kubeconfig
from trainjob.errors import TrainJobError
from trainjob_airflow import TrainJobEndTrigger, TrainJobHook, TrainJobSensor
from trainjob_airflow.version_compat import AirflowFailException


@pytest.fixture(params=ODD_ENDS.values(), ids=ODD_ENDS)
def odd(request, laptop, tmp_path, monkeypatch):
    """Return the token of the connection `odd`, and whether it can be used."""
    path = tmp_path / "kubeconfig"
    token = write_odd_kubeconfig(laptop.kubeconfig, path, request.param)
    extra = {"kube_config": path.read_text(), "namespace": "default"}
    monkeypatch.setenv("AIRFLOW_CONN_ODD", json.dumps({"conn_type": "trainjob", "extra": extra}))
    return token, not request.param.strip()


@pytest.mark.usefixtures("airflow_environment")
def test_nothing_of_a_connection_s_token_is_shown(odd, caplog, capfd):
    token, is_usable = odd
    hook = TrainJobHook("odd")
    works, shown = hook.test_connection()
    assert works is is_usable
    try:
        hook.get_conn().list_trainjobs("default")
    except TrainJobError:
        shown += traceback.format_exc()
    try:
        TrainJobSensor(task_id="t", name="absent", kubernetes_conn_id="odd", mode="poke").poke({})
    except (TrainJobError, AirflowFailException):
        shown += traceback.format_exc()
    shown += caplog.text + "".join(capfd.readouterr())
    assert token not in shown
    assert ("the token of the connection can't be sent" in shown) is not is_usable


async def first_event(trigger):
    return await asyncio.wait_for(anext(trigger.run()), 60)


@pytest.mark.usefixtures("airflow_environment")
def test_no_event_of_a_trigger_has_the_token(odd, unique, caplog):
    token, is_usable = odd
    trigger = TrainJobEndTrigger(name=unique, kubernetes_conn_id="odd", deadline=time.time())
    event = asyncio.run(first_event(trigger))
    assert event.payload["kind"] == ("WaitTimeout" if is_usable else "NoClusterConfigured")
    assert token not in json.dumps(event.payload) + caplog.text
