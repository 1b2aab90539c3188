"""Test of a step whose disk is full, on a laptop cluster."""

from __future__ import annotations

import pytest

from trainjob import CustomTrainerContainer, TrainJob
from trainjob.errors import StorageFull
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
def test_a_step_on_a_full_disk_is_a_storage_full(cluster, unique, script):
    """Each write to /dev/full fails with ENOSPC, as one to a full disk does."""
    container = CustomTrainerContainer(image="busybox", command=["sh", "-c", script])
    reference = submit(cluster, TrainJob(trainer=container), RunKey("test", "workflow", unique, "run-1"))
    outcome = wait(cluster, reference)
    assert outcome.category is Category.STORAGE_FULL
    assert "No space left on device" in outcome.log_tail[-1]
    with pytest.raises(StorageFull, match=r"No space left on device\n.*-> free space in the workspace"):
        outcome.raise_for_failure()
