"""Container image of the components, built from this distribution's Containerfile."""

from __future__ import annotations

import os
from importlib.metadata import version

IMAGE_VARIABLE = "TRAINJOB_KFP_IMAGE"
"""Environment variable with another image, such as a mirror's; read when a pipeline is compiled."""

# Because of "python" in the name, kfp.local's SubprocessRunner accepts the component as a Python component.
BASE_IMAGE = os.environ.get(IMAGE_VARIABLE) or f"ghcr.io/trainjob/kfp-trainjob:{version('kfp-trainjob')}-python3.12"
