"""API server of the log benchmark, in a separate process.

It serves a TrainJob whose pods have written their logs.
"""

from __future__ import annotations

from tests.support.counting_server import TOKEN
from tools.bench.waiting_server import CA_CERTIFICATE, CA_KEY, COMPLETE, NAMESPACE, NOW, RUNNING
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.manifest import build_trainjob
from trainjob.status.pods import JOBSET_LABEL, RANK_LABEL, STEP_LABEL
from trainjob_local.apiserver import ApiServer, Registry
from trainjob_local.certificates import create_server_context

JOB = "bench"
_PIECE_BYTES = 32 << 10  # bytes that an API server sends at once


def make_log(lines):
    """Return a log as the endpoint returns it with timestamps.

    It has lines of 120 bytes, 1,000 for each second.
    """
    return b"".join(
        b"2026-01-01T%02d:%02d:%02d.%03d000000Z INFO:trainer:%06d loss 2.3456 lr 0.000300 tokens_per_second 7452.2 %s\n"
        % (n // 3_600_000, n // 60_000 % 60, n // 1000 % 60, n % 1000, n, b"." * 17)
        for n in range(lines)
    )


def serve(connection, ranks, lines, folder):
    """Serve until None is received; `("finish",)` ends the job.

    Args:
        connection: connection to the benchmark's process; `serve` first sends (URL, UID of the job).
        ranks: number of pods.
        lines: number of lines in the log of each pod.
        folder: folder that gets the files of the certificate authority; every real API server serves TLS.
    """
    written = make_log(lines)
    pieces = [written[at : at + _PIECE_BYTES] for at in range(0, len(written), _PIECE_BYTES)]

    def source(request):
        yield from () if request.since else pieces  # a reader that reconnects has read all lines

    registry = Registry()
    job = TrainJob(trainer=CustomTrainerContainer(image="x", command=["y"], num_nodes=ranks))
    labels = {"trainjob.dev/run-key": "0123456789abcdef"}
    manifest = build_trainjob(job, name=JOB, namespace=NAMESPACE, labels=labels, annotations={})
    made = registry.create("trainjobs", manifest, NAMESPACE)
    registry.patch("trainjobs", JOB, {"status": RUNNING["trainjobs"]}, NAMESPACE, subresource="status")
    for rank in range(ranks):
        registry.create("pods", _pod_manifest(rank), NAMESPACE)
        registry.bind(f"{JOB}-{rank}", "node", NAMESPACE)
        _set_pod_status(registry, rank, "Running", {"running": {"startedAt": NOW}})
    tls = create_server_context(folder / CA_CERTIFICATE, folder / CA_KEY)
    server = ApiServer(registry, admin_token=TOKEN, log_source=source, tls=tls)
    server.start()
    connection.send((server.url, made["metadata"]["uid"]))
    while connection.recv():
        for rank in range(ranks):
            ended = {"exitCode": 0, "reason": "Completed", "startedAt": NOW, "finishedAt": NOW}
            _set_pod_status(registry, rank, "Succeeded", {"terminated": ended})
        registry.patch("trainjobs", JOB, {"status": COMPLETE["trainjobs"]}, NAMESPACE, subresource="status")
    server.stop()
    registry.close()


def _pod_manifest(rank):
    labels = {JOBSET_LABEL: JOB, STEP_LABEL: "node", RANK_LABEL: str(rank)}
    spec = {"restartPolicy": "OnFailure", "containers": [{"name": "node", "image": "x"}]}
    return {"metadata": {"name": f"{JOB}-{rank}", "labels": labels}, "spec": spec}


def _set_pod_status(registry, rank, phase, state):
    container = {"name": "node", "image": "x", "imageID": "x", "ready": False, "restartCount": 0, "state": state}
    status = {"phase": phase, "containerStatuses": [container]}
    registry.patch("pods", f"{JOB}-{rank}", {"status": status}, NAMESPACE, subresource="status")
