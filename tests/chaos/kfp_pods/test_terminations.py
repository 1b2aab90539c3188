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

from tests.support.kfp_pods import LATENCIES, SHORT
from tests.support.polling import until
from trainjob.client import Connection
from trainjob.lifecycle import RunKey
from trainjob.manifest import labels
from trainjob.status import judge
from trainjob_kfp.launcher import clean_up

pytestmark = pytest.mark.timeout(600)
LONG = {**SHORT, "args": ["600"]}
EACH, TOGETHER = 25, 5
SECONDS = 3.0  # after the last process has died: what was sent has arrived by then
# A process that is killed this soon after the signal may not have run since, on a busy machine; and kube-apiserver
# drops a request whose sender dies within about 5 ms. No launcher can end a job in no time: what is left is cleanup's.
NO_TIME = 0.05
_FATES = "was deleted|was gone|was left alone|nothing was created|could not be deleted"


def terminate(process):
    """As the exec of `argoexec kill 15 1` does, into a container that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)


def fate(said):
    """How a pod's last words say that its job ended."""
    told = re.findall(_FATES, said)
    return told[-1] if told else "complete" if "Complete" in said else "killed before it said anything"


def orphans(cluster, tries):
    """The TrainJobs of these runs that go on."""
    runs = {run.id for run, _, _ in tries}
    jobs = cluster.list_trainjobs("default", f"{labels.ENGINE}=kfp")
    return [job for job in jobs if job["metadata"]["labels"][labels.RUN] in runs and not judge(job).phase.finished]


def lived(said):
    """Seconds between the signal and the end of every process."""
    found = re.search(r"emissary: all is killed ([\d.]+) s after the signal", said)
    return float(found[1]) if found else 1.0


def assert_no_orphans(pods, cluster, connection, tries):
    """None of the runs has a TrainJob that goes on; a short one may be at its own end.

    Where there was no time for anything, the run's exit handler finds it.
    """
    print(Counter(fate(pods.said(pod)) for _, pod, _ in tries))
    time.sleep(SECONDS)
    hopeless = [one for one in tries if lived(pods.said(one[1])) < NO_TIME]
    for run, pod, _ in hopeless:
        key = RunKey("kfp", run.workflow, "clean-up", run.id)
        print(f"killed after {lived(pods.said(pod)):.3f} s; cleaned up: {clean_up(connection=connection, key=key)}")
    try:
        until(lambda: not orphans(cluster, tries), 30)
    except AssertionError:
        left = {job["metadata"]["labels"][labels.RUN] for job in orphans(cluster, tries)}
        told = [f"terminated {moment}:\n{pods.said(pod)}" for run, pod, moment in tries if run.id in left]
        pytest.fail("\n".join(told))


def test_a_hundred_terminations_at_any_moment_leave_no_job(pods, laptop, cluster, kubeconfigs, spans, chance):
    print({latency: f"{seconds:.1f} s" for latency, seconds in spans.items()})
    plans = [
        (latency, chance.uniform(0.0, 1.15 * spans[latency]), chance.choice((SHORT, LONG)))
        for latency in LATENCIES
        for _ in range(EACH)
    ]
    chance.shuffle(plans)

    def attempt(plan):
        latency, moment, job = plan
        run = pods.new_run()
        pod = pods.start(run, kubeconfigs[latency], **job)
        process = pod.process()
        time.sleep(moment)
        terminate(process)
        pod.end()
        return run, pod, f"after {moment:.2f} s at {latency} s latency"

    with ThreadPoolExecutor(TOGETHER) as threads:
        tries = list(threads.map(attempt, plans))
    assert_no_orphans(pods, cluster, Connection(kubeconfig=str(laptop.kubeconfig)), tries)


def test_terminations_while_the_request_to_create_is_on_its_way_leave_no_job(
    pods, laptop, cluster, proxies, kubeconfigs, chance
):
    plans = [(latency, chance.uniform(0.0, latency)) for latency in LATENCIES for _ in range(5)]

    def attempt(plan):
        latency, moment = plan
        run = pods.new_run()
        sent = proxies[latency].notice(run.id.encode())  # it is in no other request
        pod = pods.start(run, kubeconfigs[latency], **LONG)
        process = pod.process()
        assert sent.wait(60)
        time.sleep(moment)
        terminate(process)
        pod.end()
        return run, pod, f"{moment:.3f} s after its creation was asked for at {latency} s latency"

    with ThreadPoolExecutor(TOGETHER) as threads:
        tries = list(threads.map(attempt, plans))
    assert_no_orphans(pods, cluster, Connection(kubeconfig=str(laptop.kubeconfig)), tries)
