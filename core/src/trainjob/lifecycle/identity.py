"""Who asked for a TrainJob: the run key that stays the same over retries, crashes and restarts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from trainjob.manifest import labels


@dataclass(frozen=True)
class RunKey:
    """Names one step of one run of a workflow, whatever try it is.

    Attributes:
        engine: `airflow`, `kfp`, or another caller's name.
        workflow: the DAG or pipeline.
        task: the task or step in it.
        run: the DAG run or pipeline run.
        map_index: which of several mapped or looped instances; empty for a plain task.
        origin: what tells two installations apart that share a namespace, such as the workflow engine's address.
    """

    engine: str
    workflow: str
    task: str
    run: str
    map_index: str = ""
    origin: str = ""

    @cached_property
    def digest(self) -> str:
        """16 hex digits that stand for the key in names and labels."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    @property
    def canonical(self) -> str:
        """The key as JSON with sorted keys; also what the TrainJob's annotation holds."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    def __str__(self) -> str:
        index = f"[{self.map_index}]" if self.map_index else ""
        run = f" {self.run}" if self.run else ""
        return f"{self.engine} {'.'.join(part for part in (self.workflow, self.task) if part)}{index}{run}".strip()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_text(cls, canonical: str) -> RunKey | None:
        """The inverse of [canonical][]; None when a text is no run key, as anybody may edit an annotation."""
        try:
            parts = json.loads(canonical)
        except (ValueError, RecursionError):
            return None
        names = {field.name for field in fields(cls)}
        if not isinstance(parts, dict) or set(parts) != names or not all(isinstance(v, str) for v in parts.values()):
            return None
        return cls(**parts)


def run_key_of(job: Mapping[str, Any]) -> RunKey | None:
    """Who asked for a TrainJob; None when its annotation does not tell."""
    return RunKey.from_text(labels.annotation(job, labels.RUN_KEY))


@dataclass(frozen=True)
class JobReference:
    """One TrainJob, for good: the uid tells it from a later one of the same name.

    Attributes:
        name: its name.
        namespace: its namespace.
        uid: its uid.
        attempt: the n-th TrainJob for its run key, from 1.
        adopted: it existed before this process asked for it.
        adopted_at: when that was, which tells this adoption from later ones; empty for one that was created.
    """

    name: str
    namespace: str
    uid: str
    attempt: int = 1
    adopted: bool = False
    adopted_at: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
