"""Tests of the pytest plugin in a separate pytest session, as users have it."""

from __future__ import annotations

import json
import subprocess
import sys

USER_TESTS = """
import ssl
import time
import urllib.error
import urllib.request

import pytest


@pytest.fixture(scope="session")
def trainjob_cluster_options():
    return {"gpus": 3}


def get(trainjob_cluster, path):
    headers = {"Authorization": f"Bearer {trainjob_cluster.token}"}
    request = urllib.request.Request(trainjob_cluster.server + path, headers=headers)
    tls = ssl.create_default_context(cafile=trainjob_cluster.ca_file)
    with urllib.request.urlopen(request, context=tls) as answer:
        return answer.read().decode()


def test_options_reach_the_cluster(trainjob_cluster):
    assert '"nvidia.com/gpu":"3"' in get(trainjob_cluster, "/api/v1/nodes").replace(" ", "")


def test_faults(trainjob_cluster, trainjob_faults):
    trainjob_faults.answer(429, times=10, resource="nodes")
    with pytest.raises(urllib.error.HTTPError, match="429"):
        get(trainjob_cluster, "/api/v1/nodes")


def test_latency(trainjob_cluster, trainjob_faults):
    trainjob_faults.set_latency(0.5)
    began = time.monotonic()
    get(trainjob_cluster, "/api/v1/nodes")
    assert time.monotonic() - began >= 0.5


def test_faults_end_with_their_test(trainjob_cluster):
    assert get(trainjob_cluster, "/api/v1/nodes")
"""


def run_pytest(folder, *options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_the_fixtures_work_in_user_tests(tmp_path):
    (tmp_path / "test_user.py").write_text(USER_TESTS)
    done = run_pytest(tmp_path)
    assert (done.returncode, "4 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_nothing_is_imported_before_a_fixture_is_used(tmp_path):
    program = """
import json
import sys


def test_modules():
    print(json.dumps([name for name in sys.modules if name.partition(".")[0] in ("trainjob", "trainjob_local")]))
"""
    (tmp_path / "test_user.py").write_text(program)
    done = run_pytest(tmp_path, "-s")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert sorted(json.loads(line.rstrip("."))) == ["trainjob_local", "trainjob_local.pytest_plugin"]
