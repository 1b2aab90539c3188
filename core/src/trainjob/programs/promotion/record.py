"""Record of the promotions of one service: a ConfigMap, the newest promotion first.

It is written before and after each change of the service or of a registry. So a promotion that was killed can be
completed or undone by any later one. Every write is refused if another process has written since the record was read.
The annotations of an `InferenceService` cannot hold it: KServe 0.16 copies them to the pods, which would start a new
revision (pkg/controller/v1beta1/inferenceservice/components/predictor.go).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from trainjob.errors import PromotionError
from trainjob.programs.promotion.cluster_api import ChangedMeanwhile, ClusterApi

__all__ = [
    "PROMOTED",
    "ROLLED_BACK",
    "ROLLING_BACK",
    "ROLLING_OUT",
    "Promotion",
    "PromotionRecord",
    "Served",
    "get_record_name",
]

ROLLING_OUT, PROMOTED, ROLLING_BACK, ROLLED_BACK = "rolling out", "promoted", "rolling back", "rolled back"
_GROUP, _PLURAL, _KEY = "/api/v1", "configmaps", "promotions"
_KEPT = 20  # promotions; the record of each has at most a few hundred bytes


@dataclass(frozen=True)
class Served:
    """The model of a service.

    Attributes:
        model: address of the model; empty for none.
        percent: share of the requests that it gets; None for all.
    """

    model: str
    percent: int | None = None


@dataclass(frozen=True)
class Promotion:
    """A promotion of a model, as the record keeps it.

    Attributes:
        key: identifies the step in its workflow run: the same text in all tries.
        run: the workflow run, such as `airflow/nightly/scheduled__1`; empty without one.
        wanted: the model to serve.
        before: the model that was served before.
        state: one of the constants of this module.
        until: RFC 3339 time at which the promotion must have ended.
        marks: states of the service before its last change, by which the change is recognized.
        alias_before: version that had the registry's alias before; None as long as the alias is unchanged.
        reason: why it was rolled back; empty if it was not.
        ended_by: key of the step that rolled it back; empty if it was not.
    """

    key: str
    run: str
    wanted: Served
    before: Served
    state: str = ROLLING_OUT
    until: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)
    alias_before: str | None = None
    reason: str = ""
    ended_by: str = ""

    @property
    def is_open(self) -> bool:
        """True while the promotion or its rollback is in progress."""
        return self.state in (ROLLING_OUT, ROLLING_BACK)

    @property
    def is_late(self) -> bool:
        """True after `until`: a promotion that is still open then was left by a killed process."""
        return datetime.now(timezone.utc) >= datetime.fromisoformat(self.until)


class PromotionRecord:
    """The promotions of one service.

    Args:
        api: client of the cluster.
        name: name of the ConfigMap.
    """

    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api, self._name = api, name
        self._found: dict[str, Any] | None = None
        self.promotions: tuple[Promotion, ...] = ()

    def read(self) -> None:
        """Read the promotions.

        Raises:
            PromotionError: the ConfigMap cannot be read, or has other content.
        """
        self._keep(self._api.get(_GROUP, _PLURAL, self._name))

    def find(self, key: str) -> Promotion | None:
        """Return the promotion of a step."""
        return next((each for each in self.promotions if each.key == key), None)

    @property
    def served(self) -> Served:
        """The model that the newest promotion or rollback has left."""
        if not self.promotions:
            return Served("")
        newest = self.promotions[0]
        return newest.wanted if newest.state in (ROLLING_OUT, PROMOTED) else newest.before

    def put(self, *changed: Promotion) -> None:
        """Write promotions that the record has in their place.

        Raises:
            ChangedMeanwhile: another process has written the record since it was read.
            PromotionError: the API server refuses the request or does not answer.
        """
        by_key = {each.key: each for each in changed}
        self._write([by_key.get(each.key, each) for each in self.promotions])

    def begin(self, promotion: Promotion, *changed: Promotion) -> None:
        """Write a new promotion, in place of an earlier one of its step, and other changes.

        Raises:
            ChangedMeanwhile: as for `put`.
            PromotionError: as for `put`.
        """
        by_key = {each.key: each for each in changed}
        others = [by_key.get(each.key, each) for each in self.promotions if each.key != promotion.key]
        self._write([promotion, *others][:_KEPT])

    def _write(self, rows: Sequence[Promotion]) -> None:
        data = {_KEY: json.dumps([asdict(row) for row in rows], indent=1)}
        if self._found is None:
            labels = {"app.kubernetes.io/part-of": "trainjob"}
            body = {"metadata": {"name": self._name, "labels": labels}, "data": data}
            self._keep(self._api.create(_GROUP, _PLURAL, body))
        else:
            self._keep(self._api.merge(_GROUP, _PLURAL, self._found, {"data": data}))

    def check_unchanged(self) -> None:
        """Check that no other process has written the record since it was read.

        Raises:
            ChangedMeanwhile: another process has written it.
            PromotionError: the ConfigMap cannot be read.
        """
        version = _get_version(self._found)
        found = self._api.get(_GROUP, _PLURAL, self._name)
        if _get_version(found) != version:
            raise ChangedMeanwhile(f"the record {self._name} has changed")

    def _keep(self, found: dict[str, Any] | None) -> None:
        self._found = found
        text = ((found or {}).get("data") or {}).get(_KEY, "[]")
        try:
            self.promotions = tuple(_from_dict(row) for row in json.loads(text))
        except (ValueError, TypeError, KeyError) as error:
            reason = f"the ConfigMap {self._name} has no promotions that this version can read: {error}"
            raise PromotionError(reason, hint="look at it, and delete it if nobody needs it") from error


def get_record_name(kind: str, service: str) -> str:
    """Return the name of the ConfigMap with the promotions of a service."""
    return f"trainjob-promotions-{kind.lower()}-{service}"


def _from_dict(row: Mapping[str, Any]) -> Promotion:
    return Promotion(**{**row, "wanted": Served(**row["wanted"]), "before": Served(**row["before"])})


def _get_version(found: Mapping[str, Any] | None) -> str:
    return str(found["metadata"]["resourceVersion"]) if found else ""
