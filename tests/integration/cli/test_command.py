"""The command as a whole: help, root options, errors, colours."""

from __future__ import annotations

import json
import subprocess
import sys

import yaml


def test_help_tells_the_exit_codes_and_loads_no_client(trainjob):
    told = trainjob("--help")
    assert told.returncode == 0
    assert "3 the TrainJob failed" in " ".join(told.stdout.split())
    code = "import sys; from trainjob.cli.application import application; application(); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'typer'" in loaded
    assert not [each for each in ("kubernetes", "urllib3", "starlette", "uvicorn") if f"'{each}'" in loaded]


def test_which_cluster(trainjob, laptop, tmp_path):
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


def test_usage_is_code_2_and_no_traceback(trainjob):
    for arguments in (["nothing"], ["submit"], ["submit", "file", "--nope"], ["logs", "x", "--rank", "-1"]):
        wrong = trainjob(*arguments)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "Traceback" not in wrong.stderr


def test_a_reader_that_takes_one_line_is_no_error(environment):
    shell = f"{sys.executable} -m trainjob runtimes | head -1"
    done = subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout.split()[0]) == (0, "", "NAME")


def test_colours_are_for_terminals(terminal, trainjob):
    screen = terminal("submit", "/nowhere")
    assert screen.end() == 2
    assert "\x1b[1;31merror:\x1b[0m" in screen.shown
    assert "\x1b" not in trainjob("submit", "/nowhere").stderr
