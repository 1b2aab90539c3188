"""The container image that the components run in, built from this distribution's Containerfile."""

from __future__ import annotations

import os
from importlib.metadata import version

IMAGE_VARIABLE = "TRAINJOB_KFP_IMAGE"
"""Names another image, such as a mirror's; read when a pipeline is compiled."""

# "python" in the name tells kfp.local's SubprocessRunner that a Python component is what runs in it.
BASE_IMAGE = os.environ.get(IMAGE_VARIABLE) or f"ghcr.io/trainjob/kfp-trainjob:{version('kfp-trainjob')}-python3.12"
