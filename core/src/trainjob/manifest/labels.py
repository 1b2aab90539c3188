"""Labels and annotations that say whose a TrainJob is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainjob.manifest.durations import duration_text
from trainjob.spec import TrainJob, TrainJobManifest
from trainjob.status.reading import text

PREFIX = "trainjob.dev"
RUN_KEY = f"{PREFIX}/run-key"
"""Label: the run key's digest. Annotation: the whole run key as JSON."""
ATTEMPT = f"{PREFIX}/attempt"
SPEC_HASH = f"{PREFIX}/spec-hash"
RENEWAL = f"{PREFIX}/renewal"
"""Annotation: which of a person's wishes to have the work done again this is; see `trainjob.lifecycle.submit`."""
ENGINE, WORKFLOW, TASK, RUN = (f"{PREFIX}/{part}" for part in ("engine", "workflow", "task", "run"))
MODEL = f"{PREFIX}/model"
"""Annotation: where the model will be when the TrainJob is complete. Ours on exports; anybody may set it."""
TTL_AFTER_SUCCESS, TTL_AFTER_FAILURE = f"{PREFIX}/ttl-after-success", f"{PREFIX}/ttl-after-failure"
"""Annotations: how long a TrainJob stays when it has ended, such as `7d`; see `trainjob.retention.sweep`."""
ON_KILL = f"{PREFIX}/on-kill"
"""Annotation: `suspend` or `keep`, where who asked for it wants no deletion when told to end."""
ADOPTED = f"{PREFIX}/adopted"
"""Annotation: when it was last taken over: each time another text, for who deletes what nobody waits for."""
SUSPENDED = f"{PREFIX}/suspended"
"""Annotation: we suspended it, as nobody waited for it any more; who takes it over lets it go on."""
EXPORTS, EXPORTED = f"{PREFIX}/exports", f"{PREFIX}/exported"
"""Annotations: on an export, whose own claim it reads; on that TrainJob, where its model is by now."""
OWN_CLAIM = "initializer-"
"""Begins the name of the claim that a built-in run keeps its model on; its own name follows (Trainer 2.2 and later)."""
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


def annotation(job: Mapping[str, Any], name: str) -> str:
    """An annotation's text; empty when a TrainJob has none of that name."""
    return text(job, "metadata", "annotations", name)


def adopted_at(job: Mapping[str, Any]) -> str:
    """When a TrainJob was last taken over; empty when it never was."""
    return annotation(job, ADOPTED)


def ending_annotations(job: TrainJob | TrainJobManifest) -> dict[str, str]:
    """What is to become of a TrainJob when it has ended, or when who asked for it is told to end."""
    ttls = {TTL_AFTER_SUCCESS: job.ttl_after_success, TTL_AFTER_FAILURE: job.ttl_after_failure}
    kept = {name: duration_text(length) for name, length in ttls.items() if length is not None}
    return kept if job.on_kill == "delete" else {**kept, ON_KILL: job.on_kill}
