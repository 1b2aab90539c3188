"""Numbered lines in the logs of launchers, of which one adopts the TrainJob of the other."""

from __future__ import annotations

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.kfp_pods import LATENCIES
from tests.support.polling import wait_until
from trainjob.manifest import labels
from trainjob_kfp.written_times import ANNOTATION

COUNT = "n=0; while [ ! -e {end} ]; do n=$((n+1)); echo line $n; sleep 0.05; done; echo last $n"
RUNS = 4


def read_numbers(text):
    return [int(number) for number in re.findall(r" \[node-0\] line (\d+)$", text, re.MULTILINE)]


def has_stored_a_line(cluster, run):
    jobs = cluster.list_trainjobs("default", f"{labels.RUN}={run.id}")
    return any('"times":{"' in job["metadata"]["annotations"].get(ANNOTATION, "") for job in jobs)


def hand_over(pods, cluster, kubeconfig, folder, signal_number):
    """Run two launchers of one task, and return their logs."""
    run, end = pods.new_run(), folder / "end"
    job = {"image": "busybox", "command": ["sh"], "args": ["-c", COUNT.format(end=end)], "on_kill": "keep"}
    first = pods.start(run, kubeconfig, **job)
    process = first.wait_for_process()
    if signal_number == signal.SIGKILL:
        wait_until(lambda: has_stored_a_line(cluster, run), 120)
    else:
        wait_until(lambda: len(read_numbers(pods.read_log(first))) > 20, 60)
    os.kill(process, signal_number)
    assert first.wait_for_end() == "Failed"
    second = pods.start(run, kubeconfig, 1, **job)
    second.wait_for_process()
    wait_until(lambda: len(read_numbers(pods.read_log(second))) > 20, 60)
    end.touch()
    assert second.wait_for_end() == "Succeeded", pods.read_log(second)
    return pods.read_log(first), pods.read_log(second)


def count_lines(before, after):
    first, second = read_numbers(before), read_numbers(after)
    _, notice, marked = after.partition("may appear again, in the pod of an earlier launcher\n")
    repeated = set(first) & set(second)
    assert second == list(range(second[0], second[-1] + 1))
    assert f"[node-0] last {second[-1]}\n" in after
    return {
        "lines": len({*first, *second}),
        "lost": second[-1] - len({*first, *second}),
        "repeated": len(repeated),
        "marked": len(repeated & set(read_numbers(marked if notice else ""))),
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_log_continues_in_the_launcher_that_adopts_the_trainjob(
    pods, cluster, kubeconfigs, tmp_path, evidence, number
):
    folders = [tmp_path / str(index) for index in range(RUNS)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(RUNS) as threads:
        logs = list(
            threads.map(lambda folder: hand_over(pods, cluster, kubeconfigs[LATENCIES[0]], folder, number), folders)
        )
    # Argo's emissary ends the container within a second after SIGTERM, so a launcher may have no time to store. Then
    # the next one announces repeated lines. The launcher's last message is not in its log: KFP's launcher has ended.
    orderly = [log for log in logs if number == signal.SIGTERM and "lines of its last second may" in log[1]]
    killed = [log for log in logs if log not in orderly]
    for end, is_orderly, ended in (("orderly hand-over", True, orderly), ("SIGKILL", False, killed)):
        counts = [count_lines(*log) for log in ended]
        if counts:
            total = {name: sum(one[name] for one in counts) for name in counts[0]}
            print(end, len(counts), total)
            evidence("takeover", process="KFP launcher", end=end, runs=len(counts), **total)
            assert total["lost"] == 0
            assert total["repeated"] == total["marked"]
            assert not is_orderly or total["repeated"] <= 21 * len(counts)  # of the last second, 20 lines a second
