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
def test_a_step_on_a_full_disk_is_a_storage_full(cluster, unique, monkeypatch, script, is_log_deleted):
    """Each write to /dev/full fails with ENOSPC, as one to a full disk does.

    If the log is deleted with its pod, the lines that were received before decide.
    """
    read = cluster.open_log

    def open_log(pod, *arguments, **options):
        if (options.get("tail") or 0) > 1:
            raise NotFound(f"pod {pod} is gone")
        return read(pod, *arguments, **options)

    if is_log_deleted:
        monkeypatch.setattr(cluster, "open_log", open_log)
    container = CustomTrainerContainer(image="busybox", command=["sh", "-c", script])
    reference = submit(cluster, TrainJob(trainer=container), RunKey("test", "workflow", unique, "run-1"))
    outcome = wait(cluster, reference)
    assert outcome.category is Category.STORAGE_FULL
    tail = outcome.log_tail if is_log_deleted else outcome.log_tail[-1:]  # the next run may have printed a line
    assert any("No space left on device" in line for line in tail)
    with pytest.raises(StorageFull, match=r"No space left on device\n(.*\n)*.*-> free space in the workspace"):
        outcome.raise_for_failure()
