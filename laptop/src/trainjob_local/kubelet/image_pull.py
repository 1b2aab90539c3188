"""The pull of a container's image: its events, its waiting states, its retries.

Source: Kubernetes 1.36 `pkg/kubelet/images` (events, reasons, back-off), `pkg/kubelet/container/sync_result.go`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from trainjob_local.environments import EnvironmentLock
from trainjob_local.images import Image
from trainjob_local.kubelet.image_puller import PullFailed
from trainjob_local.kubelet.node_context import NodeContext
from trainjob_local.kubelet.pod_status import waiting_state
from trainjob_local.objects import Json

__all__ = ["ImagePull", "pull_problems"]

# github.com/distribution/reference, regexp.go, without its rarer forms.
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:[A-Za-z0-9.:-]+/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]{{32,}})?"
)


class ImagePull:
    """The pull of one container's image.

    Args:
        node: settings and services of the node.
        pod: the pod.
        image: name of the image.
        push_state: function that reports a waiting state of the container.
        stop: set when the pod has to end.
    """

    def __init__(
        self, node: NodeContext, pod: Json, image: str, push_state: Callable[[Json], None], stop: threading.Event
    ) -> None:
        self._node, self._pod, self._name, self._push_state, self._stop = node, pod, image, push_state, stop
        self._delay = node.settings.backoff

    def run(self) -> Image | None:
        """Wait until the local replacement of the image exists.

        Returns:
            The replacement, or None if the pod has to end first.
        """
        settings = self._node.settings
        if problems := pull_problems(self._name, available=settings.pullable(self._name)):
            for reason, message in problems.items():
                self._report_problem(reason, message)
                self._stop.wait(settings.backoff)
            self._stop.wait()
            return None
        image = settings.image(self._name)
        if image.environment is not None or image.lock is None:
            return image
        while not self._stop.is_set():
            if found := self._node.image_puller.find(image.lock):
                return replace(image, environment=found)
            self._create(image.lock)
        return None

    def _create(self, lock: EnvironmentLock) -> None:
        """Create the environment once, with a back-off after a failure."""
        text = f'Pulling image "{self._name}": creating the environment {lock.name!r}'
        text += f", {lock.announcement}" if lock.announcement else ""
        self._event("Normal", "Pulling", text)
        self._push_state(waiting_state("ContainerCreating", text))  # a real kubelet has no message here
        started = time.monotonic()
        try:
            self._node.image_puller.create(lock, self._stop)
        except PullFailed as error:
            cause = f'failed to pull image "{self._name}": {error}'
            self._report_problem("ErrImagePull", cause)
            self._stop.wait(self._delay)
            self._report_problem("ImagePullBackOff", f'Back-off pulling image "{self._name}": ErrImagePull: {cause}')
            self._stop.wait(self._delay)
            self._delay = min(self._delay * 2, self._node.settings.backoff_max)
        else:
            if not self._stop.is_set():
                seconds = time.monotonic() - started
                self._event("Normal", "Pulled", f'Successfully pulled image "{self._name}" in {seconds:.3f}s')

    def _report_problem(self, reason: str, message: str) -> None:
        if reason == "ErrImagePull":
            self._event("Warning", "Failed", f'Failed to pull image "{self._name}": {message}')
        self._event("Warning", "Failed", f"Error: {reason}")
        self._push_state(waiting_state(reason, message))

    def _event(self, kind: str, reason: str, message: str) -> None:
        self._node.events.record(self._pod, "pods", kind, reason, message)


def pull_problems(image: str, *, available: bool) -> dict[str, str]:
    """Return the reasons why a container waits for its image, with the kubelet's messages.

    Args:
        image: name of the image.
        available: whether the image can be pulled.

    Returns:
        Messages by reason, in the order in which the kubelet reports them; empty if the image can be pulled.
    """
    if not _REFERENCE.fullmatch(image):
        cause = f'couldn\'t parse image name "{image}": invalid reference format'
        return {"InvalidImageName": f'Failed to apply default image tag "{image}": {cause}'}
    if available:
        return {}
    cause = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'
    return {"ErrImagePull": cause, "ImagePullBackOff": f'Back-off pulling image "{image}": ErrImagePull: {cause}'}
