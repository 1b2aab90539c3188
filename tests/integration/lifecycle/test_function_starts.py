"""Tests of the command of a function on runtimes without torch.

The command runs with the variables that the Trainer sets for each framework.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from trainjob import CustomTrainer
from trainjob.manifest.function import function_command

# A replacement for mpirun of Open MPI that starts two processes on this machine.
MPIRUN = """#!/bin/sh
test "$1 $2" = "--hostfile /etc/mpi/hostfile" || exit 9
shift 2
for rank in 1 0; do OMPI_COMM_WORLD_RANK=$rank "$@" || exit 8; done
"""


def report_rank():
    import os

    rank = os.environ.get("OMPI_COMM_WORLD_RANK")
    print(f"here is {rank}")
    return {"rank": rank}


@pytest.fixture
def run_function(tmp_path):
    """Return a function that runs the command with variables and returns its lines."""
    (tmp_path / "mpirun").write_text(MPIRUN)
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)

    def start(function, **variables):
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            function_command(CustomTrainer(func=function)),
            env={"PATH": path, "TMPDIR": str(tmp_path), **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return start


def test_mpirun_starts_the_function_on_every_host_and_rank_0_returns_its_result(run_function):
    lines = run_function(report_rank, OMPI_MCA_orte_default_hostfile="/etc/mpi/hostfile", JOB_COMPLETION_INDEX="0")
    assert lines == ["here is 1", "here is 0", f"trainjob result: {json.dumps({'rank': '0'})}"]


def test_without_a_framework_the_function_runs_once(run_function):
    assert run_function(report_rank) == ["here is None", 'trainjob result: {"rank": null}']


def test_only_the_first_node_returns_a_result(run_function):
    assert run_function(report_rank, JOB_COMPLETION_INDEX="1") == ["here is None"]
