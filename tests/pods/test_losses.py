"""A launcher's pod is lost, whenever that may be: the engine's next try takes the TrainJob over.

A pod whose object is deleted gets SIGTERM before SIGKILL: there, the launcher may have deleted the TrainJob, and the
next try makes another. Never are there two.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from kfp_pods import LATENCIES, SHORT

from trainjob.manifest import labels
from trainjob.status import judge

pytestmark = pytest.mark.timeout(600)
EACH, TOGETHER = 25, 5


class Audit:
    """Sees every change of every TrainJob; a context manager."""

    def __init__(self, cluster):
        self._informer = cluster.trainjob_informer("default")
        self._lock, self._jobs, self.doubles = threading.Lock(), {}, []

    def __enter__(self):
        self._subscription = self._informer.add_event_handler(None, self._note)
        return self

    def __exit__(self, *_):
        self._subscription.close()

    def of(self, run):
        """All TrainJobs that the run has ever had."""
        with self._lock:
            return [job for jobs in self._jobs.values() for job, _ in jobs.values() if job["labels"][labels.RUN] == run]

    def _note(self, change):
        assert change.error is None, change.error
        meta = change.found["metadata"]
        works = not change.gone and not judge(change.found).phase.finished
        with self._lock:
            of_key = self._jobs.setdefault(meta["labels"][labels.RUN_KEY], {})
            of_key[meta["uid"]] = meta, works
            if sum(one for _, one in of_key.values()) > 1:
                self.doubles.append([job["name"] for job, _ in of_key.values()])


def lose(pods, pod, process, way):
    if way == "killed":
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)  # the rest of a container goes with its first process
    else:
        pods.lose(pod)
    return pod.end()


def test_a_hundred_losses_at_any_moment_make_no_second_job(pods, cluster, kubeconfigs, spans, chance):
    print({latency: f"{seconds:.1f} s" for latency, seconds in spans.items()})
    plans = [
        (latency, chance.uniform(0.0, 1.1 * spans[latency]), chance.choice(("killed", "deleted", "made anew")))
        for latency in LATENCIES
        for _ in range(EACH)
    ]
    chance.shuffle(plans)

    def attempt(plan):
        latency, moment, way = plan
        told, run = f"{way} after {moment:.2f} s at {latency} s latency", pods.new_run()
        pod = pods.start(run, kubeconfigs[latency], **SHORT)
        process = pod.process()
        time.sleep(moment)
        phase = lose(pods, pod, process, way)
        if phase == "Succeeded":
            return run, pod, told, "too late"
        same = way == "made anew"  # by Argo, while its own view of the pod is pending: no try is counted
        again = pods.start(run, kubeconfigs[latency], 0 if same else 1, pod.name if same else "", **SHORT)
        phase = again.end()
        assert phase == "Succeeded", f"{told}: {phase}\n{pods.said(again)}"
        return run, again, told, "adopted" if ": adopted, uid" in pods.said(again) else "created"

    with Audit(cluster) as audit, ThreadPoolExecutor(TOGETHER) as threads:
        tries = list(threads.map(attempt, plans))
        made = Counter(len(audit.of(run.id)) for run, _, _, _ in tries)
    print(Counter(how for _, _, _, how in tries), "TrainJobs ever made for a run:", made)
    assert not audit.doubles
    left = cluster.list_trainjobs("default", f"{labels.ENGINE}=kfp")
    for run, pod, told, _ in tries:
        [job] = [one["metadata"] for one in left if one["metadata"]["labels"][labels.RUN] == run.id]
        given = pod.output()["parameterValues"]
        wanted = {"job": job["name"], "namespace": "default", "uid": job["uid"], "status": "Complete"}
        assert {name: given[name] for name in wanted} == wanted, told
