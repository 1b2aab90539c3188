"""Use of the GPUs of a pod, as `nvidia-smi` shows it. NVIDIA's container runtime puts the program into each pod."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections import deque

__all__ = ["GpuUse"]

_COMMAND = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
_SAMPLES = 10  # whose mean counts


class GpuUse:
    """Recorder of how much of the time the GPUs compute.

    It has a thread of its own, because `nvidia-smi` hangs if the driver does.
    """

    def __init__(self, interval: float) -> None:
        """Start to record.

        Args:
            interval: seconds between two samples.
        """
        self._interval, self._problem = interval, ""
        self._samples: deque[float] = deque(maxlen=_SAMPLES)
        threading.Thread(target=self._record, name="gpu-use", daemon=True).start()

    def describe_idleness(self, percent: float) -> str:
        """Return a text if the GPUs compute for less of the time, or if that is not known.

        Args:
            percent: smallest percentage of the time without a text.
        """
        is_busy = len(self._samples) < _SAMPLES or statistics.fmean(self._samples) >= percent
        return self._problem or ("" if is_busy else self.describe())

    def describe(self) -> str:
        """Return how much of the last time the GPUs computed; empty before the first sample."""
        if not (samples := list(self._samples)):
            return ""
        minutes = len(samples) * self._interval / 60
        return f"the GPUs computed for {statistics.fmean(samples):.0f} % of the last {minutes:.2g} min"

    def _record(self) -> None:
        while not self._problem:
            try:
                done = subprocess.run(_COMMAND, capture_output=True, text=True, check=True)
                self._samples.append(statistics.fmean(map(float, done.stdout.split())))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self._problem = f"the use of the GPUs is not known: {error}"
            time.sleep(self._interval)
