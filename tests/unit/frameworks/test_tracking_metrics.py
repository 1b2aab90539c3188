"""The metrics that tracking reads from a training's output, on recorded logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.frameworks.tracking.metric_reader import MetricReader

LOGS = Path(__file__).with_name("logs")
STEPS = {
    "torchtune.txt": [1, 2, 3, 4, 5, 6],
    "sft_bars.txt": [5, 10, 15, 15, 20, 25, 30, 30, 30],
    "sft_steps.txt": [5, 10, 15, 15, 20, 25, 30, 30, 30],
    "sft_two_processes.txt": [5, 10, 10],
    "dpo_steps.txt": [5, 10, 15, 15, 20, 25, 30, 30, 30],
    "grpo_steps.txt": [5, 5, 10, 10, 10],
}


def read_all(output, chunk_size=1 << 16):
    reader = MetricReader()
    chunks = [output[start : start + chunk_size] for start in range(0, len(output), chunk_size)]
    return [found for chunk in chunks for found in reader.feed(chunk)] + list(reader.finish())


@pytest.mark.parametrize("name", STEPS)
def test_each_value_of_a_log_is_read_once_at_its_step(name):
    output = (LOGS / name).read_bytes()
    found = read_all(output)
    assert sorted({step for step, _ in found}) == sorted(set(STEPS[name]))
    values = [(step, key) for step, row in found for key in row]
    assert len(values) == len(set(values))
    for chunk_size in (1, 7, 4096):
        assert read_all(output, chunk_size) == found


def test_the_values_are_those_of_the_log():
    assert read_all((LOGS / "torchtune.txt").read_bytes())[0] == (
        1,
        {"loss": 6.731198787689209, "lr": 0.003, "tokens_per_second_per_gpu": 101.18414306640625},
    )
    first, *_, last = read_all((LOGS / "sft_steps.txt").read_bytes())
    assert first[1]["loss"] == 4.625
    assert last == (
        30,
        {
            "train_runtime": 1.84,
            "train_samples_per_second": 65.22,
            "train_steps_per_second": 16.3,
            "train_loss": 1.785,
        },
    )


def test_the_last_line_needs_no_line_end():
    reader = MetricReader()
    assert list(reader.feed(b"Step 3 | loss:0.5 lr:0.1 ")) == []
    assert list(reader.finish()) == [(3, {"loss": 0.5, "lr": 0.1})]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_value_that_is_no_finite_number_is_left_out(value):
    assert read_all(f"Step 1 | loss:{value} lr:0.1 \n".encode()) == [(1, {"lr": 0.1})]


def test_of_a_very_long_line_only_the_end_is_read():
    long = b"x" * (1 << 20)
    reader = MetricReader()
    assert [found for _ in range(4) for found in reader.feed(long)] == []
    assert [step for step, _ in reader.feed(b"Step 1 | loss:0.5 lr:0.1 \nStep 2 | loss:0.4 lr:0.1 \n")] == [1, 2]


def test_text_in_another_encoding_is_no_error():
    assert read_all(b"\xff\xfe\x00|\nStep 1 | loss:0.5 lr:0.1 \n") == [(1, {"loss": 0.5, "lr": 0.1})]
