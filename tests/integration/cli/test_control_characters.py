"""Tests that control characters from a cluster reach neither a terminal nor a pipe."""

from __future__ import annotations

import pytest

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key
from tests.integration.cli.gated_steps import GatedStep
from trainjob.manifest import job_name

# The clipboard, the screen, an 8-bit sequence, a carriage return, an override and a color; as printf and as text.
PRINTED = r"\033]52;c;aGk=\a\033[2J\302\2332J one\rtwo \342\200\256 \033[32mgreen\n"
LINE = "^[]52;c;aGk=^G^[[2J<U+009B>2J one-two <U+202E> ^[[32mgreen"
COLORED_LINE = LINE.replace("^[[32mgreen", "\x1b[32mgreen\x1b[0m")
DANGEROUS = "\x1b]52", "\x1b[2J\x1b", "\x9b", "\u202e", "\a"
MESSAGE = "\x1b]52;c;aGk=\a\x9b2J one\rtwo \u202e \x1b[32mgreen"
SHOWN_MESSAGE = "^[]52;c;aGk=^G<U+009B>2J one^Mtwo <U+202E> ^[[32mgreen"


def assert_shown_as_text(output, *texts):
    """Check an output that rich may have colored, so that its own sequences are allowed."""
    assert [one for one in DANGEROUS if one in output] == []
    assert [one for one in texts if one not in output] == []


def make_step(folder, code=0):
    """Return a step file of a job that prints control characters."""
    step = GatedStep(folder, "tune", code=code, first_command=f"printf '{PRINTED}' | tr '\\r' '-'")
    step.open_gate()
    return step.file


@pytest.fixture
def api_server(tmp_path):
    with bare_apiserver(tmp_path) as server:
        yield server


@pytest.mark.slow
def test_a_training_s_log_and_the_error_s_tail_are_shown_as_text(terminal, namespace, tmp_path):
    running = terminal("run", make_step(tmp_path, code=3), "-n", namespace)
    assert running.wait_for_exit() == 3, running.output
    assert_shown_as_text(running.output.replace(f"log: {LINE}", ""), LINE)
    assert f"log: {LINE}" in running.output


@pytest.mark.slow
def test_logs_are_shown_as_text_on_a_terminal_and_in_a_pipe(terminal, trainjob, namespace, tmp_path):
    done = terminal("run", make_step(tmp_path), "-n", namespace, "--keep-colors", "--run-id", "1")
    assert done.wait_for_exit() == 0, done.output
    assert_shown_as_text(done.output, COLORED_LINE)
    name = trainjob("submit", tmp_path / "tune.yaml", "-n", namespace, "--run-id", "1").stdout.strip()
    for option in ((), ("-f",)):
        screen = terminal("logs", name, "-n", namespace, *option)
        assert screen.wait_for_exit() == 0
        assert_shown_as_text(screen.output, LINE)
    assert trainjob("logs", name, "-n", namespace).stdout == f"[node-0] {LINE}\n[node-0] done\n"
    colored = trainjob("logs", name, "-n", namespace, "--keep-colors").stdout
    assert colored == f"[node-0] {COLORED_LINE}\n[node-0] done\n"
    assert LINE in trainjob("logs", name, "-n", namespace, "--keep-colors", env={"NO_COLOR": "1"}).stdout


@pytest.mark.parametrize("command", ["watch", "describe", "wait"])
def test_messages_of_the_cluster_are_shown_as_text(api_server, terminal, command):
    api_server.create_trainjob("ended")
    api_server.set_finished("ended", "Failed", MESSAGE)
    screen = terminal("--kubeconfig", api_server.kubeconfig, command, "ended")
    assert screen.wait_for_exit() == (0 if command == "describe" else 3)
    assert_shown_as_text("".join(screen.output.split()), "".join(SHOWN_MESSAGE.split()))


def test_annotations_in_a_table_are_shown_as_text(api_server, terminal):
    key = make_run_key("\x1b[2Jtune")
    api_server.create_trainjob(job_name("one", key.digest, 1), key)
    screen = terminal("--kubeconfig", api_server.kubeconfig, "list")
    assert screen.wait_for_exit() == 0
    assert_shown_as_text(screen.output, "nightly.^[[2Jtune run-1")
