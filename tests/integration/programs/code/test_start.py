"""The command of a step starts in the unpacked project, as the runtime's framework requires."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.integration.programs.code.packed_project import find_pythons, pack_texts

SHOW = """
import json, os, subprocess, sys
child = subprocess.check_output([sys.executable, "-c", "import trainer.parts; print(trainer.parts.NAME)"], text=True)
print(json.dumps({"words": sys.argv[1:], "folder": os.getcwd(), "child": child.strip(),
                  "path": os.environ["PYTHONPATH"]}))
"""
PROJECT = {
    "train.py": SHOW,
    "jobs/eval.py": SHOW,
    "trainer/__init__.py": "raise RuntimeError('a search must not import packages')",
    "trainer/cli.py": SHOW,
    "src/trainer/parts.py": "NAME = 'src'",
    "src/tool/__main__.py": SHOW,
    "code.py": SHOW,
    "run.sh": "echo shell",
}
FLAT = {**PROJECT, "trainer/__init__.py": "", "trainer/parts.py": "NAME = 'flat'"}
STARTS = {
    "module": (["--module", "train"], "flat"),
    "module of a package": (["--module", "trainer.cli"], "flat"),
    "package": (["--module", "tool"], "flat"),
    "module with the name of a standard one": (["--module", "code"], "flat"),
    "script": (["--script", "train.py"], "flat"),
    "script in a folder": (["--script", "./jobs/eval.py"], "flat"),
    "command": (["--", sys.executable, "-m", "jobs.eval"], "flat"),
}


@pytest.mark.parametrize(("options", "name"), STARTS.values(), ids=STARTS)
def test_the_command_starts_in_the_project(pod, tmp_path, options, name):
    pod.variables["PYTHONPATH"] = "/opt/image"
    words = ["--epochs", "3", "--", "--module", "a b", "$HOME"]
    separated = [*options, *([] if "--" in options else ["--"]), *words]
    done = pod.run(pack_texts(tmp_path / "code.tgz", FLAT), *separated)
    assert done.returncode == 0, done.stderr
    [folder] = pod.unpacked
    shown = json.loads(done.stdout.splitlines()[-1])
    assert shown == {
        "words": words,
        "folder": str(folder),
        "child": name,
        "path": f"{folder}:{folder}/src:/opt/image",
    }


def test_a_folder_src_that_is_a_package_is_not_searched(pod, tmp_path):
    files = {"src/__init__.py": "", "src/train.py": "import os; print(os.environ['PYTHONPATH'])"}
    done = pod.run(pack_texts(tmp_path / "code.tgz", files), "--module", "src.train")
    assert done.stdout.splitlines()[-1] == str(pod.unpacked[0])


WRONG = {
    "module": (["--module", "trian"], ["no module trian", "trian.py", "did you mean train"]),
    "module of a package": (["--module", "trainer.clu"], ["no module trainer.clu", "trainer/clu.py", "trainer.cli"]),
    "package without a program": (["--module", "trainer"], ["no module trainer", "trainer/__main__.py"]),
    "script": (["--script", "jobs/evla.py"], ["no file jobs/evla.py in the project", "did you mean jobs/eval.py"]),
    "script outside": (["--script", "../train.py"], ["no file ../train.py in the project"]),
    "absolute script": (["--script", "/etc/passwd"], ["no file /etc/passwd in the project"]),
    "program": (["--", "deepspeedd", "train.py"], ["the program deepspeedd does not exist", "PATH"]),
    "program of the project": (["--", "run.sh"], ["the program run.sh does not exist", "start it as ./run.sh"]),
    "program that is a text": (["--", "./run.sh"], ["the program ./run.sh is not executable"]),
}


@pytest.mark.parametrize(("options", "texts"), WRONG.values(), ids=WRONG)
def test_what_does_not_exist_is_reported_before_the_start(pod, tmp_path, options, texts):
    pod.variables["PET_NNODES"] = "2"  # torchrun would fail on each node
    done = pod.run(pack_texts(tmp_path / "code.tgz", PROJECT), *options)
    assert done.returncode == 1
    assert done.stderr.startswith("code: failed: ")
    assert [text for text in texts if text not in done.stderr] == [], done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_module_of_the_image_starts(pod, tmp_path):
    done = pod.run(pack_texts(tmp_path / "code.tgz", {"data.json": "[1]"}), "--module", "json.tool", "--", "data.json")
    assert "1" in done.stdout.splitlines()[-2], done.stderr


TORCHRUN = """
import json, os, runpy, sys
print(json.dumps([sys.argv[1:], os.environ.get("PET_MASTER_ADDR"), os.environ.get("PET_MASTER_PORT")]))
"""


@pytest.mark.parametrize("nodes", ["1", "2"])
@pytest.mark.parametrize("options", [["--module", "train"], ["--script", "train.py"]], ids=["module", "script"])
def test_torchrun_starts_modules_and_scripts(pod, tmp_path, nodes, options):
    image = tmp_path / "image"
    (image / "torch" / "distributed").mkdir(parents=True)
    (image / "torch" / "distributed" / "run.py").write_text(TORCHRUN)
    pod.variables.update(PYTHONPATH=str(image), PET_NNODES=nodes, PET_MASTER_ADDR="job-node-0", PET_MASTER_PORT="29500")
    done = pod.run(pack_texts(tmp_path / "code.tgz", PROJECT), *options, "--", "--lr", "1")
    words, address, port = json.loads(done.stdout.splitlines()[-1])
    script = ["-m", "train"] if options[0] == "--module" else [f"{pod.unpacked[0]}/train.py"]
    assert words == [*script, "--lr", "1"]
    assert address == ("127.0.0.1" if nodes == "1" else "job-node-0")
    assert (port == "29500") == (nodes == "2")


MPIRUN = """#!/bin/sh
echo "mpirun $1 $2"
shift 2
for rank in 0 1; do OMPI_COMM_WORLD_RANK=$rank "$@" || exit; done
"""
RANKS = {
    "module": (["--module", "train"], 2),
    "script": (["--script", "train.py"], 2),
    "python": (["--", "python3", "train.py"], 2),
    "own command": (["--", "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK"], 1),
}


@pytest.mark.parametrize("python", find_pythons())
@pytest.mark.parametrize(("options", "processes"), RANKS.values(), ids=RANKS)
def test_mpirun_lets_each_rank_unpack(pod, tmp_path, options, processes, python):
    pod.python = python
    pod.add_program("mpirun", MPIRUN)
    pod.variables["OMPI_MCA_orte_default_hostfile"] = "/etc/mpi/hostfile"
    files = {"train.py": "import os; print('rank', os.environ['OMPI_COMM_WORLD_RANK'])"}
    done = pod.run(pack_texts(tmp_path / "code.tgz", files), *options)
    assert done.returncode == 0, done.stderr
    assert len(pod.unpacked) == processes
    expected = [f"rank {rank}" for rank in range(2)] if processes == 2 else ["rank "]
    assert [line.rstrip() for line in done.stdout.splitlines() if line.startswith("rank")] == [
        line.rstrip() for line in expected
    ]
    assert ("mpirun --hostfile /etc/mpi/hostfile" in done.stdout) == (processes == 2)


def test_the_program_of_an_image_checks_its_version(pod, tmp_path):
    archive = pack_texts(tmp_path / "code.tgz", PROJECT)
    command = [sys.executable, "-m", "trainjob.programs.code", "--trainjob-version", "99.0.0"]
    options = ["--sha256", archive.sha256, "--archive", str(archive.path), "--", "true"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, env={**os.environ, **pod.variables})
    assert done.returncode == 1
    assert "code: failed: image cannot be trainjob" in done.stderr
