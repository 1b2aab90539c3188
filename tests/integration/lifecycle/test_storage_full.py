"""Test of a step whose disk is full, on a laptop cluster."""

from __future__ import annotations

import pytest

from trainjob import CustomTrainerContainer, TrainJob
from trainjob.errors import NotFound, StorageFull
from trainjob.lifecycle import RunKey, submit, wait
from trainjob.status import Category


@pytest.mark.parametrize(
    "script",
    [
        "echo step 7; head -c 100000 /dev/zero > /dev/full",
        """echo step 7; python3 -c "open('/dev/full', 'w').write('x' * 100000)" """,
    ],
    ids=["shell", "python"],
)
@pytest.mark.parametrize("is_log_deleted", [False, True])
def test_a_step_on_a_full_disk_is_a_storage_full(cluster, unique, monkeypatch, tmp_path, script, is_log_deleted):
    """Each write to /dev/full fails with ENOSPC, as one to a full disk does.

    The kubelet may restart the container before the wait ends the TrainJob; the next run prints nothing.
    If the log is deleted with its pod, the lines that were received before decide.
    """
    read = cluster.open_log

    def open_log(pod, *arguments, **options):
        if (options.get("tail") or 0) > 1:
            raise NotFound(f"pod {pod} is gone")
        return read(pod, *arguments, **options)

    if is_log_deleted:
        monkeypatch.setattr(cluster, "open_log", open_log)
    first_run_only = f"test -e {tmp_path}/ran && exec sleep 600; touch {tmp_path}/ran; {script}"
    container = CustomTrainerContainer(image="busybox", command=["sh", "-c", first_run_only])
    reference = submit(cluster, TrainJob(trainer=container), RunKey("test", "workflow", unique, "run-1"))
    outcome = wait(cluster, reference)
    assert outcome.category is Category.STORAGE_FULL
    assert "No space left on device" in outcome.log_tail[-1]
    with pytest.raises(StorageFull, match=r"No space left on device\n.*-> free space in the workspace"):
        outcome.raise_for_failure()
