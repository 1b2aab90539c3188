"""The cost of a program that the benchmarks start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_STARTER = """
import json, resource, subprocess, sys, time
start = time.monotonic()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
wall, usage = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
found = {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss / 1024}
print(json.dumps({**found, "written": usage.ru_oublock * 512 / 1e9}))
"""


def measure_program(command: Sequence[Any], environment: Mapping[str, str]) -> dict[str, float]:
    """Run a program, and return what it has cost.

    These are its `wall` and `cpu` time in seconds, `memory` in MiB and GB `written` to disks. A small process starts
    it, because the memory of a new process is at first that of its parent.

    Raises:
        RuntimeError: the program fails.
    """
    starter = [sys.executable, "-c", _STARTER, *map(str, command)]
    done = subprocess.run(starter, env=dict(environment), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} has failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
