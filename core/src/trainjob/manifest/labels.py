"""Labels and annotations that identify the owner of a TrainJob."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from trainjob.spec import TrainJob, TrainJobManifest
from trainjob.spec.durations import format_duration
from trainjob.status.nested_fields import get_str

PREFIX = "trainjob.dev"
RUN_KEY = f"{PREFIX}/run-key"
"""Label: the run key's digest. Annotation: the whole run key as JSON."""
ATTEMPT = f"{PREFIX}/attempt"
SPEC_HASH = f"{PREFIX}/spec-hash"
TRAINING_HASH = f"{PREFIX}/training-hash"
"""Annotation: hash of what the TrainJob computes; see `trainjob.manifest.training_hash`."""
DELIVERED = f"{PREFIX}/delivered"
"""Annotation: time at which the workflow engine had stored that a step ended with the TrainJob's result."""
RENEWAL = f"{PREFIX}/renewal"
"""Annotation: the request's renewal value, which changes whenever a user has the work done again.

See `trainjob.lifecycle.submit`.
"""
ENGINE, WORKFLOW, TASK, RUN = (f"{PREFIX}/{part}" for part in ("engine", "workflow", "task", "run"))
MODEL = f"{PREFIX}/model"
"""Annotation: location of the model after the TrainJob is complete. Exports set it; any user may set it."""
TTL_AFTER_SUCCESS, TTL_AFTER_FAILURE = f"{PREFIX}/ttl-after-success", f"{PREFIX}/ttl-after-failure"
"""Annotations: how long a TrainJob is retained after its end, such as `7d`; see `trainjob.retention.sweep`."""
ON_KILL = f"{PREFIX}/on-kill"
"""Annotation: `suspend` or `keep`, if the TrainJob must not be deleted when its workflow step is killed."""
ADOPTED = f"{PREFIX}/adopted"
"""Annotation: time of the last adoption. Each adoption writes another text, so that the sweep knows the last use."""
INTERRUPTIONS = f"{PREFIX}/interruptions"
"""Annotation: number of attempts before this one that the infrastructure interrupted; missing means 0.

See `trainjob.lifecycle.plan_resubmission`.
"""
FAILURES = f"{PREFIX}/failures"
"""Annotation: number of attempts before this one that failed in the same try of a step; missing means 0.

See `trainjob.lifecycle.plan_resubmission`.
"""
HUNG_ON = f"{PREFIX}/hung-on"
"""Annotation: names of the cluster's nodes on which earlier attempts of the step hung, with commas."""
SHRINKING = f"{PREFIX}/shrinking"
"""Annotation: what follows if the TrainJob gets no nodes; see `trainjob.manifest.node_counts`."""
DEFERRAL = f"{PREFIX}/deferral"
"""Annotation: ID of the last deferral of its Airflow task whose trigger has started."""
SUSPENDED = f"{PREFIX}/suspended"
"""Annotation: this project suspended the TrainJob because nothing waited for it any more. An adoption resumes it."""
LIMIT_REACHED = f"{PREFIX}/limit-reached"
"""Annotation: time of a timeout that did not delete the TrainJob; the limits of the next try count from it."""
EXPORTS, EXPORTED = f"{PREFIX}/exports", f"{PREFIX}/exported"
"""Annotations: on an export, the TrainJob whose own claim it reads; on that TrainJob, the exported model's location."""
CODE = f"{PREFIX}/code"
"""Annotation: SHA-256, commit and branch of the project that travels with the TrainJob, as a JSON object."""
CHANGES = f"{PREFIX}/changes"
"""Annotation: number of the changes that `trainjob dev` has sent. Its change makes the kubelet read them at once."""
CODE_ENGINE = "trainjob-code"
"""Value of [ENGINE][] of a TrainJob that stores code in a workspace; several submissions may wait for it."""
OWN_CLAIM_PREFIX = "initializer-"
"""Prefix of the claim on which a built-in run keeps its model; the TrainJob's name follows (Trainer 2.2 and later)."""
MANAGED_BY: Mapping[str, str] = {"app.kubernetes.io/managed-by": "trainjob"}
_LONGEST_VALUE = 63
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_COMMAND = "cli"


def get_code(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the annotation [CODE][]; empty without one.

    Args:
        metadata: metadata of the TrainJob.
    """
    try:
        found = json.loads(get_str(metadata, "annotations", CODE) or "{}")
    except ValueError:  # a user has changed it
        return {}
    return found if isinstance(found, dict) else {}


def label_value(text: str) -> str:
    """Return a text as a label's value.

    Characters that Kubernetes does not allow become `_`, and the rest is cut off. Use it for people and manual
    selectors, never for identity: the digest identifies.
    """
    return re.sub(r"[^-A-Za-z0-9_.]+", "_", text)[:_LONGEST_VALUE].strip("-_.")


def run_labels(key: Mapping[str, str], digest: str, attempt: int) -> dict[str, str]:
    """Return the labels of a run key's TrainJob.

    Args:
        key: the run key's parts: engine, workflow, task, run.
        digest: the run key's digest.
        attempt: the attempt's number, from 1.
    """
    readable = {f"{PREFIX}/{part}": label_value(key[part]) for part in ("engine", "workflow", "task", "run")}
    return {**MANAGED_BY, **readable, RUN_KEY: digest, ATTEMPT: str(attempt)}


def read_workflow_run(annotations: Mapping[str, str]) -> str:
    """Return the workflow run of a run key, such as `airflow/tickets_llm/manual__1`.

    Its parts are quoted like those of a URL. It is the same for all tasks of the run, and empty without a run key and
    for a TrainJob of the command line, whose requests have no common run.
    """
    key = json.loads(annotations.get(RUN_KEY, "{}"))
    if key.get("engine", _COMMAND) == _COMMAND:
        return ""
    return "/".join(quote(text, safe="") for part in ("engine", "origin", "workflow", "run") if (text := key.get(part)))


def get_annotation(job: Mapping[str, Any], name: str) -> str:
    """Return an annotation's text; empty if the TrainJob has no annotation of that name."""
    return get_str(job, "metadata", "annotations", name)


def list_hung_on(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the cluster's nodes on which attempts before a TrainJob hung.

    Texts that cannot be names are left out, because users can edit the annotation.
    """
    return tuple(name for name in get_annotation(job, HUNG_ON).split(",") if _NODE_NAME.fullmatch(name))


def get_adoption_time(job: Mapping[str, Any]) -> str:
    """Return the time at which a TrainJob was last adopted; empty if it never was."""
    return get_annotation(job, ADOPTED)


def get_interruptions(job: Mapping[str, Any]) -> int:
    """Return the number of interrupted attempts before a TrainJob.

    The number is 0 if the annotation is missing or is not a number, because users can edit it.
    """
    return _get_number(job, INTERRUPTIONS)


def get_failures(job: Mapping[str, Any]) -> int:
    """Return the number of failed attempts before a TrainJob.

    The number is 0 if the annotation is missing or is not a number, because users can edit it.
    """
    return _get_number(job, FAILURES)


def _get_number(job: Mapping[str, Any], annotation: str) -> int:
    text = get_annotation(job, annotation)
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0


def retention_annotations(job: TrainJob | TrainJobManifest) -> dict[str, str]:
    """Return the annotations for retention after the end, and for the kill action of the step."""
    ttls = {TTL_AFTER_SUCCESS: job.ttl_after_success, TTL_AFTER_FAILURE: job.ttl_after_failure}
    kept = {name: format_duration(length) for name, length in ttls.items() if length is not None}
    return kept if job.on_kill == "delete" else {**kept, ON_KILL: job.on_kill}
