"""Tests of the command as a whole: help, root options, errors, colors."""

from __future__ import annotations

import importlib
import json
import shlex
import subprocess
import sys
from importlib.metadata import distributions

import pytest
import yaml

from trainjob.cli import application
from trainjob.cli.command_help import format_help


def test_help_has_the_exit_codes_and_imports_no_client(trainjob):
    shown = trainjob("--help")
    assert shown.returncode == 0
    assert "3 the TrainJob failed" in " ".join(shown.stdout.split())
    code = "import sys; from trainjob.cli.application import application; application(); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'typer'" in loaded
    assert not [each for each in ("kubernetes", "urllib3", "starlette", "uvicorn") if f"'{each}'" in loaded]


def test_version_lists_the_installed_distributions(trainjob):
    """A bug report needs the versions of all distributions of this project, on one line each."""
    shown = trainjob("--version")
    assert (shown.returncode, shown.stderr) == (0, "")
    expected = {f"{one.name} {one.version}" for one in distributions() if "trainjob" in one.name}
    assert set(shown.stdout.splitlines()) == expected
    assert shown.stdout.startswith("trainjob ")


def test_the_list_of_commands_has_the_first_line_of_each_docstring():
    for module, function, summary in application._COMMANDS.values():
        command = getattr(importlib.import_module(f"trainjob.cli.{module}"), function)
        assert format_help(command).split("\n\n")[0] == summary
    for name, (_, summary) in application._COMMANDS_ELSEWHERE.items():
        assert application._load_command(name).help.split("\n\n")[0] == summary


def test_kubeconfig_and_context_select_the_cluster(trainjob, laptop, tmp_path):
    content = yaml.safe_load(laptop.kubeconfig.read_text())
    context = content["contexts"][0]["context"]
    content["contexts"].append({"name": "other", "context": {**context, "cluster": "none"}})
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(content))
    nothing = {"KUBECONFIG": str(tmp_path / "none")}
    assert trainjob("--kubeconfig", file, "runtimes", env=nothing).returncode == 0
    other = trainjob("--kubeconfig", file, "--context", "other", "runtimes", "--json", env=nothing)
    assert (other.returncode, other.stdout) == (1, "")
    assert json.loads(other.stderr)["error"] == "NoClusterConfigured"


def test_usage_errors_exit_with_code_2_and_no_traceback(trainjob):
    for arguments in (["nothing"], ["submit"], ["submit", "file", "--nope"], ["logs", "x", "--rank", "-1"]):
        wrong = trainjob(*arguments)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize("command", ["describe", "cancel", "wait", "logs"])
def test_an_empty_name_is_refused_at_once(trainjob, command):
    """Run `trainjob cancel "$JOB"` with a variable that is not set."""
    wrong = trainjob(command, "")
    assert wrong.returncode == 2
    assert "it must be a Kubernetes name" in wrong.stderr


def test_a_reader_of_one_line_causes_no_error(environment):
    shell = f"{shlex.quote(sys.executable)} -m trainjob runtimes | head -1"
    done = subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout.split()[:1]) == (0, "", ["NAME"])


def test_colors_appear_only_in_terminals(terminal, trainjob):
    screen = terminal("submit", "/nowhere")
    assert screen.wait_for_exit() == 2
    assert "\x1b[1;31merror:\x1b[0m" in screen.output
    assert "\x1b" not in trainjob("submit", "/nowhere").stderr
