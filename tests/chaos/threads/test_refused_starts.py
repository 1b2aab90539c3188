"""Each start of a thread of one wait is refused once, as at a limit of the operating system."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future

import pytest

from tests.chaos.logs.scripted_jobs import ScriptedCluster, ScriptedJob
from tests.chaos.threads.scripted_waits import (
    FAILURE,
    RESTART,
    SUCCESS,
    Wait,
    check_result,
    create_job,
    end_job,
    wait_blocking,
    wait_on_loop,
)
from tests.support.polling import wait_until
from tests.support.refused_threads import RefusedStarts
from trainjob.client import Cluster, Connection
from trainjob.errors import TrainJobError
from trainjob.status import Outcome

SECONDS = 60
RUNNING = 4  # threads: the writer of the log, the watches of TrainJobs and of pods, the reader of the container's log


@pytest.fixture(scope="module")
def scripted():
    with ScriptedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def connection(scripted, tmp_path_factory):
    token_file = tmp_path_factory.mktemp("credentials") / "token"
    token_file.write_text(scripted.token)
    return Connection(server=scripted.url, token_file=str(token_file), namespace="default")


def start_wait(wait: Wait, cluster: Cluster, job: ScriptedJob) -> Future[tuple[Outcome, list[str]]]:
    """Wait on a thread of the test, which a wait that hangs does not block."""
    result: Future[tuple[Outcome, list[str]]] = Future()

    def run() -> None:
        try:
            result.set_result(wait(cluster, job))
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


@pytest.mark.parametrize("end", [SUCCESS, FAILURE, RESTART])
@pytest.mark.parametrize("wait", [wait_blocking, wait_on_loop])
def test_a_wait_survives_each_refused_start_or_ends_with_an_error_that_a_retry_fixes(wait, end, scripted, connection):
    number, errors = 1, []
    while True:
        name = f"{wait.__name__.replace('_', '-')}-{end}-{number}"
        job, later = create_job(scripted, name), create_job(scripted, f"{name}-later")
        with contextlib.closing(Cluster(connection)) as cluster:
            with RefusedStarts(lambda n, number=number: n == number) as starts:
                waiting = start_wait(wait, cluster, job)
                wait_until(lambda starts=starts, done=waiting.done: starts.count >= RUNNING or done(), SECONDS)
                end_job(job, end)
                error = waiting.exception(SECONDS)
            if error is None:
                check_result(waiting.result(), end)
            else:
                assert isinstance(error, TrainJobError), error
                assert error.retryable
                errors.append(number)
            end_job(later, SUCCESS)
            check_result(start_wait(wait, cluster, later).result(SECONDS), SUCCESS)
        if starts.count < number:
            break
        number += 1
    assert number > 3
    assert len(errors) <= 1  # only the watch of TrainJobs is needed from the beginning
