"""A launcher after RetryRun: it starts under the same run key, and its pod has no trace of the terminated one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until

TRAINJOBS, PODS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs", "/api/v1/namespaces/default/pods"
LIST, CREATE, LIST_PODS = f"GET {TRAINJOBS}", f"POST {TRAINJOBS}", f"GET {PODS}"
PROGRAM = """
import sys
from trainjob.lifecycle import RunKey
from trainjob_kfp import launcher, steps
step = steps.train({"image": "busybox", "command": ["sh", "-c", sys.argv[2]]}, None)
launcher.launch(step, key=RunKey("kfp", "tickets-x7d2k", "tune", sys.argv[1]))
"""


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        yield server


@pytest.fixture
def start(proxy, unique, tmp_path):
    """Return a function that starts a launcher whose requests the proxy counts."""
    (tmp_path / "kubeconfig").write_text(proxy.kubeconfig_text)
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}

    def start(script):
        command = [sys.executable, "-c", PROGRAM, unique, script]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start


def test_the_next_launcher_waits_for_the_pods_of_the_terminated_one(proxy, start, tmp_path):
    saving = f"trap 'until test -e {tmp_path}/saved; do sleep 0.05; done' TERM; touch {tmp_path}/up; sleep 600 & wait"
    first = start(saving)
    wait_until((tmp_path / "up").exists)
    guarded = [LIST, LIST_PODS, CREATE]  # and the JobSet, whose name is in the path
    assert [request for request in proxy.request_counts if request in guarded] == guarded
    first.send_signal(signal.SIGTERM)
    printed, _ = first.communicate()
    assert first.returncode == 143, printed
    proxy.request_counts.clear()
    second = start("true")
    wait_until(lambda: proxy.request_counts[LIST_PODS] >= 2)
    assert not proxy.request_counts[CREATE]
    (tmp_path / "saved").touch()
    printed, _ = second.communicate()
    assert (second.returncode, proxy.request_counts[CREATE]) == (0, 1), printed
