"""Identity of a TrainJob: its run key and its reference.

The run key stays the same over retries, crashes and restarts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from trainjob.client import ClusterIdentity
from trainjob.errors import IncompatibleVersion
from trainjob.manifest import find_attempt, labels
from trainjob.status.nested_fields import get_int, get_str


@dataclass(frozen=True)
class RunKey:
    """Identity of one step of one workflow run, the same for every try.

    Attributes:
        engine: `airflow`, `kfp`, or another caller's name.
        workflow: the DAG or pipeline.
        task: the task or step in it.
        run: the DAG run or pipeline run.
        map_index: index of a mapped or looped instance, or a text that distinguishes tasks of one name; empty for a
            plain task.
        origin: text that distinguishes two installations that share a namespace, such as the workflow engine's address.
    """

    engine: str
    workflow: str
    task: str
    run: str
    map_index: str = ""
    origin: str = ""

    @cached_property
    def digest(self) -> str:
        """Hash of the key for names and labels, 16 hex digits."""
        return _compute_digest(self.canonical)

    @cached_property
    def canonical(self) -> str:
        """The key as JSON with sorted keys, the value of the TrainJob's annotation."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    def __str__(self) -> str:
        index = f"[{self.map_index}]" if self.map_index else ""
        run = f" {self.run}" if self.run else ""
        return f"{self.engine} {'.'.join(part for part in (self.workflow, self.task) if part)}{index}{run}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the run key as JSON values."""
        return asdict(self)

    @classmethod
    def from_text(cls, canonical: str) -> RunKey | None:
        """Return the key from the text of [canonical][], or None if the text is not a run key.

        Users can edit the annotation, so it may have any text. Another version may have written it: unknown fields are
        ignored, and missing ones get their defaults.
        """
        try:
            parts = json.loads(canonical)
        except (ValueError, RecursionError):
            return None
        if not isinstance(parts, dict):
            return None
        known = _select_fields(cls, parts)
        try:
            return cls(**known) if all(isinstance(value, str) for value in known.values()) else None
        except TypeError:  # a field without a default is missing
            return None


def find_digest(job: Mapping[str, Any]) -> str:
    """Return the digest of the run key for which a TrainJob was created; else an empty text.

    This is the one rule by which steps, sweeps and the page know their TrainJobs. The name follows from the digest of
    the run key ([trainjob.manifest.job_name][]), which the annotation has, or else the label. A copy under another name
    has the labels and annotations of the original, but not its name. A label beside an annotation does not count,
    because users, tools and admission policies change labels.
    """
    text = labels.get_annotation(job, labels.RUN_KEY)
    digest = _compute_digest(text) if text else get_str(job, "metadata", "labels", labels.RUN_KEY)
    return digest if _find_attempt(job, digest) else ""


def is_attempt_of(job: Mapping[str, Any], key: RunKey) -> bool:
    """Return whether a TrainJob was created for a run key; see [find_digest][]."""
    return find_digest(job) == key.digest


def run_key_of(job: Mapping[str, Any]) -> RunKey | None:
    """Return the run key for which a TrainJob was created, from its annotation.

    It is None if the annotation is missing or invalid, or if the TrainJob was created otherwise; see [find_digest][].
    """
    return RunKey.from_text(labels.get_annotation(job, labels.RUN_KEY)) if find_digest(job) else None


def attempt_of(job: Mapping[str, Any]) -> int:
    """Return the attempt number of a TrainJob from its name, or else from its label, or 0.

    Only the label has it if a step has adopted a TrainJob that was created for another run key.
    """
    return _find_attempt(job, find_digest(job)) or _get_attempt_label(job)


def _compute_digest(canonical: str) -> str:
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()[:16]


def _find_attempt(job: Mapping[str, Any], digest: str) -> int:
    return find_attempt(get_str(job, "metadata", "name"), digest, _get_attempt_label(job))


def _get_attempt_label(job: Mapping[str, Any]) -> int:
    return max(get_int(job, "metadata", "labels", labels.ATTEMPT), 0)


@dataclass(frozen=True)
class JobReference:
    """Reference to one TrainJob; the uid distinguishes it from a later one of the same name.

    Attributes:
        name: its name.
        namespace: its namespace.
        uid: its uid.
        attempt: its number among the TrainJobs of its run key, from 1.
        adopted: whether it existed before this process submitted it.
        adopted_at: time of this adoption, which distinguishes it from later adoptions; empty for a created TrainJob.
        interruptions: number of attempts before it that the infrastructure interrupted, and that this one continues.
        failures: number of attempts before it that failed in the same try of the step.
        cluster: identity of its cluster, as the process that submitted it reached it; None if it was not recorded.
        num_nodes: its number of nodes; None if it is the runtime's.
        fewer_nodes: number of nodes that the next attempt requests if this one gets no reservation; None if this
            TrainJob waits for its own.
        hung_on: names of the cluster's nodes on which attempts before it hung.
    """

    name: str
    namespace: str
    uid: str
    attempt: int = 1
    adopted: bool = False
    adopted_at: str = ""
    interruptions: int = 0
    failures: int = 0
    cluster: ClusterIdentity | None = None
    num_nodes: int | None = None
    fewer_nodes: int | None = None
    hung_on: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the reference as JSON values."""
        return {**asdict(self), "cluster": self.cluster and self.cluster.to_dict(), "hung_on": list(self.hung_on)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JobReference:
        """Return the reference from the result of [to_dict][] of this or another version.

        Unknown fields are ignored, and missing ones get their defaults.

        Raises:
            IncompatibleVersion: name, namespace or uid is missing, or `values` is not a mapping.
        """
        try:
            known = _select_fields(cls, values)
            hung_on = tuple(known.get("hung_on", ()))
            return cls(**{**known, "cluster": ClusterIdentity.from_dict(known.get("cluster")), "hung_on": hung_on})
        except TypeError as error:
            raise IncompatibleVersion.of_values(cls.__name__, error) from None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def _select_fields(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a dataclass's fields.

    Values of fields that only another version has are left out.

    Raises:
        TypeError: `values` is not a mapping.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{type(values).__name__} is not a mapping")
    return {field.name: values[field.name] for field in fields(cls) if field.name in values}
