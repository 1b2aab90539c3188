"""Why an image can't be had, in the kubelet's words; pure.

Source: Kubernetes 1.36 `pkg/kubelet/images`; the cause is containerd's text.
"""

from __future__ import annotations

import re

__all__ = ["why_not"]

# github.com/distribution/reference, regexp.go, without its rarer forms.
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:[A-Za-z0-9.:-]+/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]{{32,}})?"
)


def why_not(image: str, *, there: bool) -> dict[str, str]:
    """The reasons that a container waits for, one after the other, with their texts; none when it can be had.

    Args:
        image: its name.
        there: whether the registry has it.
    """
    if not _REFERENCE.fullmatch(image):
        said = f'couldn\'t parse image name "{image}": invalid reference format'
        return {"InvalidImageName": f'Failed to apply default image tag "{image}": {said}'}
    if there:
        return {}
    said = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'
    return {"ErrImagePull": said, "ImagePullBackOff": f'Back-off pulling image "{image}": ErrImagePull: {said}'}
