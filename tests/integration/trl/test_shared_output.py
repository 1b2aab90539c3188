"""Two trainings never share an output folder: the second one ends within seconds and names the first."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from trainjob import FineTune, RunKey, WorkspaceVolume, cancel, submit, wait
from trainjob.lifecycle import Listener

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


def test_the_second_training_ends_and_the_first_one_is_undisturbed(cluster, unique, workspace):
    def start(run, rate):
        config = tiny_config(epochs=40, learning_rate=rate)
        step = FineTune(model="tiny", workspace=WorkspaceVolume(node_path=str(workspace)), config=config, image="trl")
        return submit(cluster, step, RunKey("airflow", "tickets", "fine_tune", run, unique))

    first, lines, trains = start("monday", 3e-3), [], threading.Event()

    def follow(line):
        if "'step': 10," in line.text:
            trains.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, cluster, first, listener=Listener(on_log=follow))
        assert trains.wait(180)
        began = time.monotonic()
        second = start("tuesday", 5e-4)
        outcome = wait(cluster, second, listener=Listener(on_log=lambda line: lines.append(line.text)))
        took = time.monotonic() - began
        assert not outcome.succeeded
        [error] = [line for line in lines if line.startswith("trl: failed: ")]
        assert f"is used by TrainJob {first.name} of airflow/" in error
        assert error.endswith("monday, which is still training")
        assert "  -> give each training its own output_path, or start it after the other has ended" in lines
        assert took < 60, lines  # far less than the training lasts
        record = json.loads((workspace / "output/trainjob_run.json").read_text())
        assert (record["trained_by"], record["parameters"]["learning_rate"]) == (first.name, 3e-3)
        assert not waiting.done()
        cancel(cluster, first)
        waiting.result(120)
    # The first one has ended, so its folder is free.
    third = start("tuesday", 5e-4)
    try:
        trains.clear()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wait, cluster, third, listener=Listener(on_log=follow))
            assert trains.wait(180)
            cancel(cluster, third)
            waiting.result(120)
    finally:
        cancel(cluster, third)
