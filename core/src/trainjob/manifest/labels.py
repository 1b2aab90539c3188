"""Labels and annotations that say whose a TrainJob is."""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "trainjob.dev"
RUN_KEY = f"{PREFIX}/run-key"
"""Label: the run key's digest. Annotation: the whole run key as JSON."""
ATTEMPT = f"{PREFIX}/attempt"
SPEC_HASH = f"{PREFIX}/spec-hash"
ENGINE, WORKFLOW, TASK, RUN = (f"{PREFIX}/{part}" for part in ("engine", "workflow", "task", "run"))
MANAGED_BY: Mapping[str, str] = {"app.kubernetes.io/managed-by": "trainjob"}
_LONGEST_VALUE = 63


def label_value(text: str) -> str:
    """Text as a label's value: what Kubernetes does not allow becomes `_`, and the rest is cut off.

    For people and selectors by hand; never for identity, which is the digest's.
    """
    return re.sub(r"[^-A-Za-z0-9_.]+", "_", text)[:_LONGEST_VALUE].strip("-_.")


def run_labels(key: Mapping[str, str], digest: str, attempt: int) -> dict[str, str]:
    """The labels of a run key's TrainJob.

    Args:
        key: the run key's parts: engine, workflow, task, run.
        digest: the run key's digest.
        attempt: the attempt's number, from 1.
    """
    readable = {f"{PREFIX}/{part}": label_value(key[part]) for part in ("engine", "workflow", "task", "run")}
    return {**MANAGED_BY, **readable, RUN_KEY: digest, ATTEMPT: str(attempt)}
