"""The container's output, to which the training and the recorder write."""

from __future__ import annotations

import os

import pytest

from trainjob.frameworks.supervision import container_output
from trainjob.frameworks.supervision.container_output import ContainerOutput


@pytest.fixture
def pipe(monkeypatch):
    """Yield the end of a pipe that contains what is written to standard output."""
    source, target = os.pipe()
    monkeypatch.setattr(container_output, "_STDOUT", target)
    yield source
    os.close(source)
    os.close(target)


def written(pipe):
    return os.read(pipe, 1 << 16)


def test_a_line_of_ours_waits_until_the_trainings_line_is_complete(pipe):
    output = ContainerOutput()
    output.write(b"half of ")
    output.print_line("tracking: run 1")
    assert written(pipe) == b"half of "
    output.write(b"a ")
    assert written(pipe) == b"a "
    output.write(b"line\nand half of ")
    assert written(pipe) == b"line\ntracking: run 1\nand half of "
    output.print_line("tracking: run 2")
    output.print_line("tracking: run 3")
    output.write(b"another\n")
    assert written(pipe) == b"another\ntracking: run 2\ntracking: run 3\n"


def test_a_line_of_ours_between_complete_lines_is_written_at_once(pipe):
    output = ContainerOutput()
    output.print_line("tracking: run 1")
    assert written(pipe) == b"tracking: run 1\n"
    output.write(b"one\ntwo\n")
    output.print_line("tracking: run 2")
    assert written(pipe) == b"one\ntwo\ntracking: run 2\n"


@pytest.mark.parametrize("frames", [b"\r 10%\r 20%", b" 10%\r", b"begin\n\r 10%"])
def test_frames_of_a_progress_bar_do_not_delay_a_line(pipe, frames):
    output = ContainerOutput()
    output.write(frames)
    output.print_line("tracking: run 1")
    assert written(pipe) == frames + b"\ntracking: run 1\n"


def test_a_line_that_becomes_a_progress_bar_releases_a_waiting_line(pipe):
    output = ContainerOutput()
    output.write(b" 10%")
    output.print_line("tracking: run 1")
    output.write(b"\r 20%")
    assert written(pipe) == b" 10%\r 20%\ntracking: run 1\n"


def test_frames_of_an_earlier_line_do_not_split_the_next_one(pipe):
    output = ContainerOutput()
    output.write(b"\r100%\nhalf of")
    output.print_line("tracking: run 1")
    assert written(pipe) == b"\r100%\nhalf of"


def test_after_the_end_of_the_output_lines_follow_on_a_new_line(pipe):
    output = ContainerOutput()
    output.write(b"no line end")
    output.print_line("tracking: run 1")
    output.end()
    output.print_line("tracking: run 2")
    assert written(pipe) == b"no line end\ntracking: run 1\ntracking: run 2\n"


def test_a_closed_standard_output_is_no_error_of_our_lines(monkeypatch):
    source, target = os.pipe()
    monkeypatch.setattr(container_output, "_STDOUT", target)
    os.close(source)
    output = ContainerOutput()
    output.print_line("tracking: run 1")
    with pytest.raises(BrokenPipeError):
        output.write(b"a line\n")
    output.end()
    os.close(target)
