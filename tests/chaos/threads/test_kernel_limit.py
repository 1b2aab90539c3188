"""A process reaches the kernel's limit of threads while its waits end; then the limit is lifted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.logs.scripted_jobs import ScriptedCluster
from tests.chaos.threads.scripted_waits import SUCCESS, create_job, end_job

PROCESS = Path(__file__).with_name("limited_process.py")
WAITS, LATER_WAITS = 40, 6


def test_no_wait_hangs_after_the_kernel_has_refused_threads(tmp_path):
    with ScriptedCluster() as scripted:
        (tmp_path / "token").write_text(scripted.token)
        groups = [
            [create_job(scripted, f"{name}-{n}") for n in range(count)]
            for name, count in (("ending", WAITS), ("later", LATER_WAITS))
        ]
        references = json.dumps([[job.reference.to_dict() for job in group] for group in groups])
        command = [sys.executable, PROCESS, scripted.url, tmp_path / "token", references]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                state = process.stdout.readline().strip()
                if state == "not enforced":
                    pytest.skip("this kernel does not enforce RLIMIT_NPROC for threads")
                assert state == "limited"
                for job in [*groups[0], *groups[1]]:
                    end_job(job, SUCCESS)
                was_stalled, results, later_results = json.loads(process.stdout.readline())
            finally:
                process.kill()
    assert was_stalled  # during the whole time of the limit
    assert results == ["Complete, 3 lines"] * WAITS
    assert later_results == ["Complete, 3 lines"] * LATER_WAITS
