"""The project's own client and engine (`trainjob.lifecycle`) on every cluster."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import IMAGE, counters, list_pods
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.errors import InvalidSpec, JobDeleted, JobFailed, WaitTimeout
from trainjob.lifecycle import KillAction, Limits, Listener, cancel, set_suspended, submit, wait
from trainjob.manifest import labels
from trainjob.status import Category, Phase

FRAME = r"printf '1|%s|Loss: 0.5: 100%%|##| '$i'/3 [00:01, 2it/s]\r' $i"
FRAMES = rf"printf 'epochs: 1\n'; for i in 1 2 3; do {FRAME}; done; echo"


@pytest.fixture
def key(unique):
    return RunKey("conformance", "engine", unique, "run-1")


class RecordingListener(Listener):
    """A listener that records what it receives."""

    def __init__(self):
        self.phases, self.lines, self.progress, self.phase_added = [], [], [], threading.Condition()
        super().__init__(self._phase, lambda line: self.lines.append(str(line)), self.progress.append)

    def _phase(self, verdict):
        with self.phase_added:
            self.phases.append(verdict.phase)
            self.phase_added.notify_all()

    def wait_for_phase(self, *phases, seconds=300):
        """Wait until one of these phases has been reported."""
        with self.phase_added:
            assert self.phase_added.wait_for(lambda: set(phases) & set(self.phases), seconds), self.phases


def shell(script, **more):
    return TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script]), **more)


def test_success(cluster, key):
    """A waiter receives all log lines, the progress, the phases and the outcome of a job."""
    reference = submit(cluster, shell(f"echo hello; echo wörld >&2; {FRAMES}"), key)
    recorder = RecordingListener()
    outcome = wait(cluster, reference, listener=recorder)
    assert (outcome.succeeded, outcome.job, reference.adopted) == (True, reference.name, False)
    assert {"[node-0] hello", "[node-0] wörld"} <= set(recorder.lines)
    assert (recorder.phases[-1], recorder.phases.count(Phase.COMPLETE)) == (Phase.COMPLETE, 1)
    last = recorder.progress[-1]
    assert (last.step, last.epochs, last.loss) == (3, 1, 0.5)
    assert outcome.progress == last


def test_failure(cluster, key):
    """A failed command is reported with step, rank, exit code and its last lines. It is not restarted."""
    reference = submit(cluster, shell("echo before; echo 'ValueError: row 7' >&2; exit 3"), key)
    outcome = wait(cluster, reference)
    assert (outcome.phase, outcome.category) == (Phase.FAILED, Category.APPLICATION)
    assert (outcome.step, outcome.rank, outcome.exit_code) == ("node", 0, 3)
    assert {"before", "ValueError: row 7"} <= set(outcome.log_tail)
    with pytest.raises(JobFailed, match="step node, rank 0, exit code 3"):
        outcome.raise_for_failure()


def test_adoption(client, cluster, namespace, key):
    """A retry adopts a running or succeeded job. Another request or a renewal creates a new attempt."""
    first = submit(cluster, shell("echo once"), key)
    assert submit(cluster, shell("echo once"), key).uid == first.uid
    assert wait(cluster, first).succeeded
    after = submit(cluster, shell("echo once"), key)
    assert (after.uid, after.adopted, wait(cluster, after).succeeded) == (first.uid, True, True)
    fresh = submit(cluster, shell("echo once"), key, renewal="again")
    other = submit(cluster, shell("echo another"), key)
    assert len({first.uid, fresh.uid, other.uid}) == 3
    assert (first.attempt, fresh.attempt, fresh.adopted, other.adopted) == (1, 2, False, False)
    listed = client.list("TrainJob", namespace, labelSelector=f"{labels.RUN_KEY}={key.digest}")
    assert {job["metadata"]["name"] for job in listed} >= {first.name, other.name}


def test_concurrent_submissions(client, cluster, namespace, key):
    """Concurrent submissions of the same request get the same job."""
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: submit(cluster, shell("sleep 60"), key), range(6)))
    assert len({reference.uid for reference in found}) == 1
    assert [reference.adopted for reference in found].count(False) == 1
    assert len(client.list("TrainJob", namespace)) == 1


def test_cancellation(client, cluster, namespace, key):
    """Cancellation deletes a running job with its pods, and its waiter reports the deletion."""
    reference = submit(cluster, shell("sleep 60"), key)
    recorder = RecordingListener()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, cluster, reference, listener=recorder)
        recorder.wait_for_phase(Phase.RUNNING)
        (pod,) = list_pods(client, namespace, reference.name)
        assert not cancel(cluster, reference).had_finished
        outcome = waiting.result(300)
    assert outcome.phase is Phase.DELETED
    with pytest.raises(JobDeleted):
        outcome.raise_for_failure()
    client.wait_until_deleted("TrainJob", namespace, reference.name)
    client.wait_until_deleted("Pod", namespace, pod["metadata"]["name"])
    assert cancel(cluster, reference).had_finished


def test_suspension(client, cluster, namespace, key, gate):
    """A waiter waits for a suspended job until the job resumes and ends."""
    file, wait_command = gate
    reference = submit(cluster, shell(f"{wait_command}; echo done"), key)
    client.patch("TrainJob", namespace, reference.name, {"spec": {"suspend": True}})
    recorder = RecordingListener()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, cluster, reference, listener=recorder)
        recorder.wait_for_phase(Phase.SUSPENDED)
        assert set_suspended(cluster, reference.name, namespace, suspended=False)
        file.touch()
        assert waiting.result(300).succeeded
    assert "[node-0] done" in recorder.lines  # a notice may follow: the log of the suspended pod was deleted with it
    assert not set_suspended(cluster, reference.name, namespace, suspended=True)


def test_wait_limits(client, cluster, namespace, key):
    """A limit on the queued time ends the wait, and can keep the job."""
    reference = submit(cluster, shell("sleep 60"), key)
    set_suspended(cluster, reference.name, namespace, suspended=True)
    limits = Limits(queued=timedelta(seconds=0.5), on_timeout=KillAction.KEEP)
    with pytest.raises(WaitTimeout, match="queued"):
        wait(cluster, reference, limits=limits)
    assert client.get("TrainJob", namespace, reference.name)["spec"]["suspend"] is True
    with pytest.raises(WaitTimeout, match="total"):
        wait(cluster, reference, limits=Limits(total=timedelta(seconds=0.3)))
    client.wait_until_deleted("TrainJob", namespace, reference.name)


@pytest.mark.since("2.2")
def test_deadline(cluster, key):
    """A job that is active longer than its deadline is Failed, and its waiter gets the reason DeadlineExceeded."""
    reference = submit(cluster, shell("echo started; sleep 60", deadline=timedelta(seconds=1)), key)
    outcome = wait(cluster, reference)
    assert (outcome.phase, outcome.category, outcome.reason) == (Phase.FAILED, Category.DEADLINE, "DeadlineExceeded")


@pytest.mark.before("2.2")
def test_no_deadline_before_2_2(client, cluster, namespace, key):
    """A deadline before 2.2 is rejected with the version that has deadlines. Nothing is created."""
    with pytest.raises(InvalidSpec, match=r"deadline.*2\.1.*2\.2"):
        submit(cluster, shell("true", deadline=timedelta(seconds=1)), key)
    assert client.list("TrainJob", namespace) == []


def test_several_nodes(cluster, key):
    """With several nodes, log lines and failures name the rank."""
    script = 'echo "rank $JOB_COMPLETION_INDEX"; test "$JOB_COMPLETION_INDEX" != 1 || exit 7; sleep 60'
    trainer = CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script], num_nodes=2)
    recorder = RecordingListener()
    outcome = wait(cluster, submit(cluster, TrainJob(trainer=trainer), key), listener=recorder)
    assert (outcome.rank, outcome.exit_code) == (1, 7)
    assert "[node-1] rank 1" in recorder.lines


def test_run_key_in_labels_and_annotations(client, cluster, namespace, key):
    """Labels and annotations of a job name the engine, workflow, task and run that submitted it."""
    reference = submit(cluster, shell("sleep 60"), key)
    meta = client.get("TrainJob", namespace, reference.name)["metadata"]
    assert meta["labels"]["app.kubernetes.io/managed-by"] == "trainjob"
    assert meta["labels"][labels.RUN_KEY] == key.digest
    assert meta["annotations"][labels.RUN_KEY] == key.canonical
    client.wait_for("TrainJob", namespace, reference.name, lambda job: counters(job).get("node", {}).get("active"))
    assert client.request("DELETE", path_of("TrainJob", namespace, reference.name)).code == 200
