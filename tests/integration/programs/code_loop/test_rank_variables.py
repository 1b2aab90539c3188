"""The variables of a run's processes are those that torchrun itself sets."""

from __future__ import annotations

import itertools
import json
import os
import subprocess

import pytest

from tests.support.demo_chain import ENVIRONMENTS
from trainjob.programs.code_loop.rank_variables import build_rank_variables, choose_port

# torchrun's agent opens the store of its workers, and chooses another port for it. The others are of its own restarts.
OWN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"}
UNUSED = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
SHOW = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps(dict(os.environ)))
"""


@pytest.mark.torchtune
@pytest.mark.parametrize("processes", [1, 2])
def test_the_variables_are_those_of_torchrun(tmp_path, torchrun_lock, processes):
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "found").mkdir()
    trainer = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": str(processes)}
    trainer |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "0"}
    variables = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"} | trainer
    python = ENVIRONMENTS["torchtune"] / "bin" / "python"
    command = [python, "-m", "torch.distributed.run", tmp_path / "show.py", tmp_path / "found"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for rank in range(processes):
        found = json.loads((tmp_path / "found" / str(rank)).read_text())
        added = {name: text for name, text in found.items() if variables.get(name) != text}
        built = build_rank_variables(variables, rank, processes, "run")
        assert added.keys() - UNUSED <= built.keys()
        assert {name: text for name, text in built.items() if name not in OWN and added.get(name) != text} == {}
        assert found.keys() >= OWN


@pytest.mark.parametrize(
    ("nodes", "node", "processes", "local_rank", "expected"),
    [("1", "0", 1, 0, ("0", "1")), ("2", "1", 1, 0, ("1", "2")), ("3", "2", 4, 3, ("11", "12"))],
)
def test_ranks_are_counted_over_the_nodes(nodes, node, processes, local_rank, expected):
    trainer = {"PET_NNODES": nodes, "PET_NODE_RANK": node, "PET_MASTER_ADDR": "a", "PET_MASTER_PORT": "1"}
    built = build_rank_variables(trainer, local_rank, processes, "run")
    assert (built["RANK"], built["WORLD_SIZE"]) == expected
    assert (built["GROUP_RANK"], built["GROUP_WORLD_SIZE"]) == (node, nodes)
    assert ("OMP_NUM_THREADS" in built) == (processes > 1)


def test_a_given_number_of_threads_stays():
    trainer = {"PET_NNODES": "1", "PET_MASTER_ADDR": "a", "PET_MASTER_PORT": "1", "OMP_NUM_THREADS": "7"}
    assert "OMP_NUM_THREADS" not in build_rank_variables(trainer, 0, 2, "run")


def test_generations_meet_at_ports_that_are_not_ephemeral():
    ports = [choose_port("29500", generation) for generation in range(100)]
    assert ports[0] == "29500"
    assert all(first != second for first, second in itertools.pairwise(ports))
    assert max(map(int, ports)) < 32768
