"""A run is terminated, whenever that may be: no TrainJob goes on that nobody waits for."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.kfp_pods import LATENCIES, ONE_SECOND_JOB
from tests.support.polling import wait_until
from trainjob.client import Connection
from trainjob.lifecycle import RunKey
from trainjob.manifest import labels
from trainjob.status import derive_verdict
from trainjob_kfp.launcher import clean_up

pytestmark = pytest.mark.timeout(600)
LONG_JOB = {**ONE_SECOND_JOB, "args": ["600"]}
PODS_PER_LATENCY, CONCURRENT_PODS = 25, 5
SECONDS = 3.0  # after the last process has died: what was sent has arrived by then
# A process that is killed this soon after the signal may not have run since, on a busy machine; and kube-apiserver
# drops a request whose sender dies within about 5 ms. No launcher can end a job in no time: what is left is cleanup's.
NO_TIME = 0.05
_RESULTS = "was deleted|did not exist any more|was retained|no TrainJob was created|could not be deleted"


def terminate(process):
    """As the exec of `argoexec kill 15 1` does, into a container that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)


def reported_result(log):
    """How a pod's last words say that its job ended."""
    told = re.findall(_RESULTS, log)
    return told[-1] if told else "complete" if "Complete" in log else "killed before it said anything"


def find_orphans(cluster, tries):
    """The TrainJobs of these runs that go on."""
    runs = {run.id for run, _, _ in tries}
    jobs = cluster.list_trainjobs("default", f"{labels.ENGINE}=kfp")
    return [
        job for job in jobs if job["metadata"]["labels"][labels.RUN] in runs and not derive_verdict(job).phase.finished
    ]


def seconds_to_end(log):
    """Seconds between the signal and the end of every process."""
    found = re.search(r"emissary: all is killed ([\d.]+) s after the signal", log)
    return float(found[1]) if found else 1.0


def assert_no_orphans(pods, cluster, connection, tries):
    """None of the runs has a TrainJob that goes on; a short one may be at its own end.

    Where there was no time for anything, the run's exit handler finds it.
    """
    print(Counter(reported_result(pods.read_log(pod)) for _, pod, _ in tries))
    time.sleep(SECONDS)
    hopeless = [one for one in tries if seconds_to_end(pods.read_log(one[1])) < NO_TIME]
    for run, pod, _ in hopeless:
        key = RunKey("kfp", run.workflow, "clean-up", run.id)
        print(
            f"killed after {seconds_to_end(pods.read_log(pod)):.3f} s; cleaned up: {clean_up(connection=connection, key=key)}"
        )
    try:
        wait_until(lambda: not find_orphans(cluster, tries), 30)
    except AssertionError:
        left = {job["metadata"]["labels"][labels.RUN] for job in find_orphans(cluster, tries)}
        told = [f"terminated {moment}:\n{pods.read_log(pod)}" for run, pod, moment in tries if run.id in left]
        pytest.fail("\n".join(told))


def test_a_hundred_terminations_at_any_moment_leave_no_job(
    pods, laptop, cluster, kubeconfigs, pod_seconds, random_numbers
):
    print({latency: f"{seconds:.1f} s" for latency, seconds in pod_seconds.items()})
    plans = [
        (
            latency,
            random_numbers.uniform(0.0, 1.15 * pod_seconds[latency]),
            random_numbers.choice((ONE_SECOND_JOB, LONG_JOB)),
        )
        for latency in LATENCIES
        for _ in range(PODS_PER_LATENCY)
    ]
    random_numbers.shuffle(plans)

    def attempt(plan):
        latency, moment, job = plan
        run = pods.new_run()
        pod = pods.start(run, kubeconfigs[latency], **job)
        process = pod.wait_for_process()
        time.sleep(moment)
        terminate(process)
        pod.wait_for_end()
        return run, pod, f"after {moment:.2f} s at {latency} s latency"

    with ThreadPoolExecutor(CONCURRENT_PODS) as threads:
        tries = list(threads.map(attempt, plans))
    assert_no_orphans(pods, cluster, Connection(kubeconfig=str(laptop.kubeconfig)), tries)


def test_terminations_while_the_request_to_create_is_on_its_way_leave_no_job(
    pods, laptop, cluster, proxies, kubeconfigs, random_numbers
):
    plans = [(latency, random_numbers.uniform(0.0, latency)) for latency in LATENCIES for _ in range(5)]

    def attempt(plan):
        latency, moment = plan
        run = pods.new_run()
        sent = proxies[latency].event_when_sent(run.id.encode())  # it is in no other request
        pod = pods.start(run, kubeconfigs[latency], **LONG_JOB)
        process = pod.wait_for_process()
        assert sent.wait(60)
        time.sleep(moment)
        terminate(process)
        pod.wait_for_end()
        return run, pod, f"{moment:.3f} s after its creation was asked for at {latency} s latency"

    with ThreadPoolExecutor(CONCURRENT_PODS) as threads:
        tries = list(threads.map(attempt, plans))
    assert_no_orphans(pods, cluster, Connection(kubeconfig=str(laptop.kubeconfig)), tries)
