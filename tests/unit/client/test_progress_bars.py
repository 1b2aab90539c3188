"""Tests that a log has one line for each progress bar, with the output of the real tqdm."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm  # type: ignore[import-untyped]

from tests.support.log_endpoint import CONTAINER, LogEndpoint, read_lines, split_at
from trainjob.client.log_lines import LogLine
from trainjob.client.log_reader import LogReader

EPOCHS, STEPS = 3, 40
STAMP = b"2026-01-01T00:00:%02d.%09dZ "


def bar(output, count, name, **options):
    return tqdm(range(count), desc=name, file=output, mininterval=0, ncols=60, **options)


def nested_bars(output):
    for _ in bar(output, EPOCHS, "epochs"):
        for _ in bar(output, STEPS, "steps"):
            pass


def three_rows(output):
    for _ in bar(output, 2, "runs"):
        nested_bars(output)


def inner_bars_that_are_not_left(output):
    for _ in bar(output, EPOCHS, "epochs"):
        for _ in bar(output, STEPS, "steps", leave=False):
            pass


def bars_that_are_not_closed(output):
    """Write as TorchTune does: the next bar is created before the last one is deleted."""
    bars = []
    for epoch in range(EPOCHS):
        bars = [bar(output, STEPS, f"epoch {epoch}")]
        for _ in range(STEPS):
            bars[0].update(1)
    bars[0].close()


def lines_between(output):
    """Write as transformers does: losses between the frames, and a bar of an evaluation."""
    with bar(output, EPOCHS * STEPS, "train") as train:
        for step in range(EPOCHS * STEPS):
            train.update(1)
            if step % STEPS == STEPS - 1:
                tqdm.write(f"{{'loss': {step}}}", file=output)
                for _ in bar(output, STEPS, "evaluate", leave=False):
                    pass
                output.write("saved\n")


def one_after_the_other(output):
    for number in range(EPOCHS):
        for _ in bar(output, STEPS, f"bar {number}"):
            pass
        output.write("between\n\n")


def moved_rows(output):
    """Write bars without carriage returns, as other libraries do, with a number of rows."""
    output.write("start\n")
    for step in range(STEPS):
        output.write(f"bar A {step}%\nbar B {step}%\n\x1b[2A")
    output.write("\n\nend\n")


WRITERS = {
    nested_bars: ["steps: 100%", "steps: 100%", "steps: 100%", "epochs: 100%"],
    three_rows: [*["steps: 100%", "steps: 100%", "steps: 100%", "epochs: 100%"] * 2, "runs: 100%"],
    inner_bars_that_are_not_left: ["epochs: 100%"],
    bars_that_are_not_closed: ["epoch 0: 100%", "epoch 1: 100%", "epoch 2: 100%"],
    lines_between: ["{'loss': 39}", "saved", "{'loss': 79}", "saved", "{'loss': 119}", "saved", "train: 100%"],
    moved_rows: ["start", "bar A 0%", "bar B 0%", "bar A 39%", "bar B 39%", "", "end"],
    one_after_the_other: [f"bar {n}: 100%|between||".split("|")[m] for n in range(EPOCHS) for m in range(3)],
}


def write_log(write):
    """Return the endpoint of the log of a program's output."""
    output = io.StringIO()
    write(output)
    lines = output.getvalue().encode().split(b"\n")
    return LogEndpoint([(10**8 * number, "F", line) for number, line in enumerate(lines if lines[-1] else lines[:-1])])


ENDPOINTS = {write: write_log(write) for write in WRITERS}
LOGS = {write: endpoint.respond(None, len(endpoint.records)) for write, endpoint in ENDPOINTS.items()}


def kept_texts(lines):
    """Return the texts of the lines, of a bar only its name and percentage."""
    texts = [line.text.rstrip() for line in lines if not line.frame]
    return [re.sub(r"(%)\|.*", r"\1", text) for text in texts]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_each_bar_is_one_line(write):
    reader = LogReader(CONTAINER)
    lines = read_lines(reader, LOGS[write]) + reader.flush()
    assert kept_texts(lines) == WRITERS[write]
    assert not any("\x1b" in line.text or "\r" in line.text for line in lines)
    assert sum(line.frame for line in lines) >= STEPS  # the frames are progress
    times = [line.time or (0, b"") for line in lines]
    assert times == sorted(times)


@given(st.sampled_from([*WRITERS]), st.lists(st.floats(0, 1), max_size=8))
def test_a_stream_of_bars_may_be_cut_at_any_byte(write, cuts):
    log, reader, whole = LOGS[write], LogReader(CONTAINER), LogReader(CONTAINER)
    lines = read_lines(reader, *split_at(log, [round(at * len(log)) for at in cuts])) + reader.flush()
    assert lines == read_lines(whole, log) + whole.flush()


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_log_of_bars_may_arrive_byte_by_byte(write):
    log, reader, whole = LOGS[write], LogReader(CONTAINER), LogReader(CONTAINER)
    lines = read_lines(reader, *(log[at : at + 1] for at in range(len(log)))) + reader.flush()
    assert lines == read_lines(whole, log) + whole.flush()


@given(st.sampled_from([*WRITERS]), st.floats(0, 1))
def test_a_stream_of_bars_may_break_anywhere(write, part):
    log, reader, endpoint = LOGS[write], LogReader(CONTAINER), ENDPOINTS[write]
    lines = read_lines(reader, log[: round(part * len(log))], broken=True)
    lines += read_lines(reader, endpoint.respond(reader.since, len(endpoint.records))) + reader.flush()
    assert kept_texts(lines) == WRITERS[write]


def test_a_training_that_is_killed_keeps_the_last_state_of_its_bar():
    log = LOGS[nested_bars]
    cut = log.index(b"20/40", len(log) // 2)
    reader = LogReader(CONTAINER)
    lines = read_lines(reader, log[: log.index(b"\n", cut)]) + reader.flush()
    assert kept_texts(lines)[-1].startswith("steps:  50%")


def test_text_after_a_bar_is_returned_at_once():
    """The loss of a step must not wait for the next step."""
    reader, log = LogReader(CONTAINER), LOGS[lines_between]
    end = log.index(b"{'loss': 39}") + len(b"{'loss': 39}\n")
    assert kept_texts(read_lines(reader, log[:end])) == ["{'loss': 39}"]


@pytest.mark.parametrize("text", [b"x\x1b[1;31mred\x1b[0m", b"x\x1b", b"x\x1b[", b"x\x1b[12", b"\x1b[9999A"])
def test_another_escape_sequence_is_text(text):
    reader = LogReader(CONTAINER)
    lines = read_lines(reader, STAMP % (1, 0) + text[:3], text[3:] + b"\n") + reader.flush()
    assert lines == [LogLine("node-0", text.decode())]


def test_many_blank_lines_below_a_bar_are_not_stored():
    reader = LogReader(CONTAINER)
    lines = read_lines(reader, STAMP % (1, 0) + b"a\r5%\n" + (STAMP % (1, 1) + b"\n") * 1000)
    assert len(lines) > 900
    assert len(lines + reader.flush()) == 1002
