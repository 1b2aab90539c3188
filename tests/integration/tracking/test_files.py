"""Trackers that write files: TensorBoard, and Weights & Biases offline."""

from __future__ import annotations

import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.tracking.event_files import read_event_files, read_wandb_files
from tests.integration.tracking.tracked_programs import (
    python,
    read_line,
    run_tracked,
    start_tracked,
    tensorboard_run,
    wait_for_end,
    wandb_run,
)
from tests.support.polling import wait_until
from trainjob_local.kubelet.watchdog import find_marked_processes


def steps(*numbers, loss):
    return f"[step(number, {loss}) for number in {numbers}]"


def test_tensorboard_shows_the_values_of_both_attempts(tmp_path):
    """The second attempt resumes from step 2, and computes step 3 again."""
    run = tensorboard_run(tmp_path / "a" / "events")
    assert run_tracked(run, python(f"{steps(1, 2, 3, loss=1.0)}; sys.exit(1)")).code == 1
    assert run_tracked(run, python(steps(3, 4, loss=0.5))).code == 0
    found = read_event_files(tmp_path / "a" / "events")
    assert found["scalars"]["loss"] == [[1, 1.0], [2, 1.0], [3, 0.5], [4, 0.5]]
    assert found["texts"]["exit_code/text_summary"][-1] == "0"


def test_an_attempt_without_steps_hides_no_values(tmp_path):
    run = tensorboard_run(tmp_path / "events")
    run_tracked(run, python(steps(1, 2, loss=1.0)))
    assert run_tracked(run, python("sys.exit(4)")).code == 4
    assert read_event_files(tmp_path / "events")["scalars"]["loss"] == [[1, 1.0], [2, 1.0]]


@pytest.mark.slow
def test_weights_and_biases_offline(tmp_path, evidence):
    """Each attempt writes a file, and `wandb sync` joins those of the same run."""
    run = wandb_run(mode="offline", folder=str(tmp_path / "workspace"))
    env = {"HOME": str(tmp_path)}
    first = run_tracked(run, python(f"{steps(1, 2, loss=1.0)}; sys.exit(3)"), env=env)
    second = run_tracked(
        replace(run, tags={**run.tags, "trainjob.attempt": "2"}), python(steps(2, 3, loss=0.5)), env=env
    )
    assert [(ended.code, ended.errors) for ended in (first, second)] == [(3, ""), (0, "")]
    for ended in (first, second):
        [line] = ended.own_lines
        assert line.startswith(f"tracking: offline run in {tmp_path}/workspace/wandb/offline-run-")
    attempts = read_wandb_files(tmp_path / "workspace")
    assert [each["id"] for each in attempts] == [run.run_id] * 2
    assert {(each["project"], each["group"]) for each in attempts} == {("tickets", "run-1")}
    assert [each["config"]["trainjob.attempt"] for each in attempts] == ["1", "2"]
    assert {each["config"]["epochs"] for each in attempts} == {"2"}
    rows = [[(row["step"], row["loss"], row["lr"]) for row in each["history"]] for each in attempts]
    assert rows == [[(1, 1.0, 0.1), (2, 1.0, 0.1)], [(2, 0.5, 0.1), (3, 0.5, 0.1)]]
    assert [each["exit_code"] for each in attempts] == [3, 0]
    evidence("features", row="Weights & Biases", cell="real run")


@pytest.mark.slow
def test_nothing_of_weights_and_biases_survives_the_program(tmp_path, unique):
    """The server accepts connections and never answers, so the recorder has to be stopped."""
    source = f"""
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
{steps(1, 2, loss=1.0)}
signal.pause()
"""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {"HOME": str(tmp_path), "WANDB_API_KEY": "0" * 40, "MARK": unique, "TMPDIR": str(tmp_path)}
        process = start_tracked(wandb_run(mode="online", base_url=url), python(source), env=env)
        read_line(process, "Step 2")
        wait_until(lambda: [each for each in find_marked_processes(unique, "MARK") if is_wandb_core(each)])
        process.send_signal(signal.SIGTERM)
        ended = wait_for_end(process)
    assert ended.code == 5
    assert ended.own_lines == ["tracking: 2 of 2 steps were not sent to Weights & Biases: it did not respond in time"]
    wait_until(lambda: not find_marked_processes(unique, "MARK"), 5)
    assert list((tmp_path / "wandb").glob("run-*"))
    assert not (Path.cwd() / "wandb").exists()


def is_wandb_core(process):
    try:
        return b"wandb-core" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
