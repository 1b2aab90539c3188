"""Every command with unusual encodings, closed streams, full disks, pipes without readers and narrow terminals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest
import yaml

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key
from tests.support.pseudo_terminal import PseudoTerminal

SECONDS = 300.0
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "bert", "annotations": {"who": "Zoë 日本 😀"}},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [
        {"name": "pytorch", "image": "x", "command": ["torchrun", "train.py", "--title", "Zoë 日本 😀"]},
    ]}}}}},
}  # fmt: skip
STEP = "step: TrainJob\nname: tune\ntrainer: {image: busybox, command: [echo, Zoë 日本 😀]}\n"
# Every command that reads a file or the cluster and ends by itself, with its exit code.
COMMANDS = {
    "version": (["--version"], 0),
    "help": (["--help"], 0),
    "help of a command": (["run", "--help"], 0),
    "no such command": (["nothing"], 2),
    "no such file": (["submit", "/nowhere/Zoë"], 2),
    "submit -o": (["submit", "step.yaml", "-o", "yaml", "--dialect", "2.2"], 0),
    "run -o": (["run", "step.yaml", "-o", "summary", "--dialect", "2.2"], 0),
    "submit": (["submit", "step.yaml"], 0),
    "list": (["list"], 0),
    "list --json": (["list", "--json"], 0),
    "describe": (["describe", "failed"], 0),
    "describe --json": (["describe", "failed", "--json"], 0),
    "describe -o": (["describe", "failed", "-o", "yaml"], 0),
    "describe of nothing": (["describe", "Zoë"], 2),
    "wait": (["wait", "failed"], 3),
    "wait --json": (["wait", "failed", "--json"], 3),
    "watch": (["watch", "failed"], 3),
    "watch --json": (["watch", "failed", "--json"], 3),
    "logs": (["logs", "failed"], 0),
    "logs -f": (["logs", "-f", "failed"], 0),
    "cost": (["cost"], 0),
    "runtimes": (["runtimes"], 0),
    "check": (["check"], 1),
    "sweep": (["sweep"], 0),
    "cancel": (["cancel", "failed"], 0),
    "suspend": (["suspend", "failed"], 0),
    "resume": (["resume", "failed"], 0),
    "export": (["export", "failed", "s3://models/Zoë"], 2),
    "migrate convert": (["migrate", "convert", "jobs"], 0),
    "migrate report": (["migrate", "report", "jobs"], 0),
    "migrate report --format markdown": (["migrate", "report", "jobs", "--format", "markdown"], 0),
    "migrate report --json": (["migrate", "report", "jobs", "--json"], 0),
    "migrate report --from-cluster": (["migrate", "report", "--from-cluster"], 1),
    "migrate diff": (["migrate", "diff", "jobs"], 0),
    "migrate compare": (["migrate", "compare", "bert", "--with", "failed"], 1),
    "migrate test": (["migrate", "test", "jobs/none.yaml"], 2),
}
QUICK = {"list", "migrate report", "describe", "no such file"}


def each_command(names=tuple(COMMANDS)):
    """Return a parameter for each command; all but a few are slow."""
    return pytest.mark.parametrize(
        "command", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "jobs").mkdir()
    (folder / "jobs" / "zoë.yaml").write_text(yaml.safe_dump(JOB, allow_unicode=True), "utf-8")
    (folder / "step.yaml").write_text(STEP, "utf-8")
    return folder


@pytest.fixture(scope="module")
def api_server(tmp_path_factory):
    with bare_apiserver(tmp_path_factory.mktemp("server")) as server:
        server.create_trainjob("failed", make_run_key("train"))
        server.set_finished("failed", "Failed", "Zoë 日本 😀: out of memory")
        yield server


@pytest.fixture
def start(api_server, folder):
    """Return a function that starts a command: `start(name, env={}, **options)`."""
    processes = []

    def start(command, env=None, **options):
        arguments = COMMANDS[command][0] if isinstance(command, str) else command
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        kubeconfig = {"KUBECONFIG": str(api_server.kubeconfig), "COLUMNS": "120"}
        process = subprocess.Popen(
            [sys.executable, "-m", "trainjob", *arguments],
            cwd=folder,
            env={**os.environ, **kubeconfig, **(env or {})},
            **(pipes | options),
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def prints(start):
    """Return a function that returns whether a command writes to standard output."""
    return lambda command: bool(finish(start(command))[1])


def finish(process):
    """Return exit code, standard output and standard error of a command, as text."""
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, (out or b"").decode("utf-8", "replace"), (err or b"").decode("utf-8", "replace")


ENCODINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "LC_ALL=C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@each_command()
def test_characters_that_the_encoding_lacks_are_replaced(start, command, encoding):
    code, _, errors = finish(start(command, env=ENCODINGS[encoding]))
    assert "Traceback" not in errors
    assert code == COMMANDS[command][1], errors


def test_replaced_characters_are_question_marks_and_json_and_yaml_are_complete(start, folder, tmp_path):
    ascii_only = ENCODINGS["ascii"]
    assert '--title", "Zo? ?? ?' in finish(start("migrate report", env=ascii_only))[1]
    written = finish(start("migrate convert", env=ascii_only))[1]
    assert yaml.safe_load(written)["spec"]["trainer"]["command"][-1] == "Zoë 日本 😀"
    assert "Zo\\u00eb" in finish(start("migrate report --json", env=ascii_only))[1]
    to = tmp_path / "to"
    finish(start(["migrate", "convert", str(folder / "jobs"), "--to", str(to)], env=ENCODINGS["LC_ALL=C"]))
    [file] = to.iterdir()
    assert yaml.safe_load(file.read_text("utf-8"))["spec"]["trainer"]["command"][-1] == "Zoë 日本 😀"


@pytest.mark.parametrize(
    "arguments", [["describe"], ["wait"], ["submit"], ["migrate", "report"], ["list", "-n"], ["list", "-l"]]
)
def test_an_argument_that_is_no_text_is_refused(start, arguments):
    code, _, errors = finish(start([*arguments, b"a\xff"]))
    assert (code in (1, 2), "Traceback" in errors) == (True, False), errors
    assert errors.startswith("error: ")


@each_command()
def test_a_reader_that_is_gone_ends_the_command_by_sigpipe(start, prints, command):
    """`head -1` ends `cat` and kubectl in the same way. Without any output, the command ends as usual."""
    reader, writer = os.pipe()
    os.close(reader)
    process = start(command, stdout=writer)
    os.close(writer)
    code, _, errors = finish(process)
    follows = command == "logs -f"  # it ends as soon as the reader is gone, also before its first line
    expected = -signal.SIGPIPE if prints(command) or follows else COMMANDS[command][1]
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    assert code == expected, errors


@each_command()
def test_both_outputs_without_a_reader_end_the_command_by_sigpipe(start, command):
    reader, writer = os.pipe()
    os.close(reader)
    process = start(command, stdout=writer, stderr=writer)
    os.close(writer)
    process.wait(SECONDS)
    assert process.returncode in (-signal.SIGPIPE, COMMANDS[command][1])


@each_command()
def test_a_full_disk_is_an_error_without_a_traceback(start, prints, command):
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        code, _, errors = finish(start(command, stdout=full))
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    if prints(command):
        assert (code, "No space left on device" in errors) == (1, True), errors
    else:
        assert code == COMMANDS[command][1]


@each_command()
@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)], ids=str)
def test_closed_streams_are_no_error(start, command, closed):
    def close():
        for descriptor in closed:
            os.close(descriptor)

    code, _, errors = finish(start(command, preexec_fn=close))
    assert "Traceback" not in errors
    assert code == COMMANDS[command][1], errors


def test_a_closed_standard_input_is_an_empty_file(start):
    code, _, errors = finish(start(["submit", "-"], preexec_fn=lambda: os.close(0)))
    assert (code, "Traceback" in errors) == (2, False)
    assert errors.startswith("error: standard input cannot be empty")


@each_command()
def test_a_terminal_of_one_column(api_server, folder, command):
    environment = {**os.environ, "KUBECONFIG": str(api_server.kubeconfig)}
    arguments = [sys.executable, "-m", "trainjob", *COMMANDS[command][0]]
    screen = PseudoTerminal(["env", "-C", str(folder), *arguments], environment, columns=1)
    try:
        assert screen.wait_for_exit() == COMMANDS[command][1], screen.output
        assert "Traceback" not in screen.output
    finally:
        screen.close()


@pytest.mark.parametrize("columns", ["0", "-1", "many", "100000"])
def test_unusual_values_of_columns(start, columns):
    for command in ("list", "help", "migrate diff"):
        code, _, errors = finish(start(command, env={"COLUMNS": columns}))
        assert (code, "Traceback" in errors) == (0, False), errors


ON_A_CLUSTER = [
    "submit", "list", "describe", "wait", "watch", "logs", "logs -f", "cost", "runtimes", "check", "sweep", "cancel",
    "suspend", "resume", "export", "migrate report --from-cluster", "migrate compare",
]  # fmt: skip


@pytest.fixture
def silent_server(tmp_path):
    """Yield an environment and the socket of its API server, which never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "a", "cluster": {"server": url}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        yield {"KUBECONFIG": str(tmp_path / "kubeconfig")}, server


@pytest.mark.parametrize(("sent", "codes"), [(signal.SIGINT, {130}), (signal.SIGTERM, {143, -signal.SIGTERM})])
@each_command(["run", *ON_A_CLUSTER])
def test_a_signal_during_a_request_ends_the_command_without_a_traceback(start, silent_server, command, sent, codes):
    environment, server = silent_server
    process = start(["run", "step.yaml"] if command == "run" else command, env=environment)
    connection, _ = server.accept()
    with connection:
        process.send_signal(sent)
        if command == "run":  # the first signal ends the TrainJob, which needs a response
            process.stderr.readline()
            process.send_signal(sent)
        code, _, errors = finish(process)
    assert "Traceback" not in errors
    assert code in codes, errors
