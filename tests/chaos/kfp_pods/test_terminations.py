"""A run is terminated at any time: no TrainJob keeps running without a caller."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.kfp_pods import CONCURRENT_PODS, LATENCIES, ONE_SECOND_JOB
from tests.support.polling import wait_until
from trainjob.client import Connection
from trainjob.lifecycle import RunKey
from trainjob.manifest import labels
from trainjob.status import derive_verdict
from trainjob_kfp.launcher import clean_up

LONG_JOB = {**ONE_SECOND_JOB, "args": ["600"]}
SECONDS = 3.0  # after the death of the last process, all sent requests have arrived
# On a busy machine a process that is killed this soon after the signal may not have run since. kube-apiserver drops a
# request whose sender dies within about 5 ms. No launcher can delete a job in that time; the rest is work for cleanup.
NO_TIME = 0.05
_RESULTS = "was deleted|did not exist any more|was retained|no TrainJob was created|could not be deleted"


def terminate(process):
    """Send SIGTERM as `argoexec kill 15 1` does; the container may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)


def reported_result(log):
    """Return how a job ended, from the last lines of its launcher's log."""
    results = re.findall(_RESULTS, log)
    return results[-1] if results else "complete" if "Complete" in log else "no last message in the log"


def find_orphans(cluster, tries):
    """Return the unfinished TrainJobs of these runs."""
    runs = {run.id for run, _, _ in tries}
    jobs = cluster.list_trainjobs("default", f"{labels.ENGINE}=kfp")
    return [
        job for job in jobs if job["metadata"]["labels"][labels.RUN] in runs and not derive_verdict(job).phase.finished
    ]


def seconds_to_end(log):
    """Return the seconds between the signal and the end of every process."""
    found = re.search(r"emissary: all is killed ([\d.]+) s after the signal", log)
    return float(found[1]) if found else 1.0


def terminate_pods(pods, cluster, laptop, terminate_pod, plans):
    """Terminate a pod for each plan, and check the TrainJobs of their runs."""
    with ThreadPoolExecutor(CONCURRENT_PODS) as threads:
        tries = list(threads.map(terminate_pod, plans))
    assert_no_orphans(pods, cluster, Connection(kubeconfig=str(laptop.kubeconfig)), tries)


def assert_no_orphans(pods, cluster, connection, tries):
    """Check that no run has an unfinished TrainJob; a short job may need time for its end.

    If a launcher had no time at all, the run's exit handler cleans up.
    """
    print(Counter(reported_result(pods.read_log(pod)) for _, pod, _ in tries))
    time.sleep(SECONDS)
    without_time = [one for one in tries if seconds_to_end(pods.read_log(one[1])) < NO_TIME]
    for run, pod, _ in without_time:
        key = RunKey("kfp", run.workflow, "clean-up", run.id)
        seconds = seconds_to_end(pods.read_log(pod))
        print(f"killed after {seconds:.3f} s; cleaned up: {clean_up(connection=connection, key=key)}")
    try:
        wait_until(lambda: not find_orphans(cluster, tries), 30)
    except AssertionError:
        left = {job["metadata"]["labels"][labels.RUN] for job in find_orphans(cluster, tries)}
        details = [f"terminated {moment}:\n{pods.read_log(pod)}" for run, pod, moment in tries if run.id in left]
        pytest.fail("\n".join(details))


def test_a_hundred_terminations_at_random_times_leave_no_job(pods, laptop, cluster, kubeconfigs, plan_pods):
    def attempt(plan):
        latency, moment, job = plan
        run = pods.new_run()
        pod = pods.start(run, kubeconfigs[latency], **job)
        process = pod.wait_for_process()
        time.sleep(moment)
        terminate(process)
        pod.wait_for_end()
        return run, pod, f"after {moment:.2f} s at {latency} s latency"

    terminate_pods(pods, cluster, laptop, attempt, plan_pods(1.15, (ONE_SECOND_JOB, LONG_JOB)))


def test_terminations_during_the_creation_request_leave_no_job(
    pods, laptop, cluster, proxies, kubeconfigs, random_numbers
):
    plans = [(latency, random_numbers.uniform(0.0, latency)) for latency in LATENCIES for _ in range(5)]

    def attempt(plan):
        latency, moment = plan
        run = pods.new_run()
        sent = proxies[latency].event_when_sent(run.id.encode())  # no other request contains the run's ID
        pod = pods.start(run, kubeconfigs[latency], **LONG_JOB)
        process = pod.wait_for_process()
        assert sent.wait(60)
        time.sleep(moment)
        terminate(process)
        pod.wait_for_end()
        return run, pod, f"{moment:.3f} s after its creation was requested at {latency} s latency"

    terminate_pods(pods, cluster, laptop, attempt, plans)
