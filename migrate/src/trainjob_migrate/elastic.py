"""Conversion of a PyTorchJob's elasticPolicy.

torchrun still gets its options; the number of nodes is fixed. Sources: training-operator 1.9
pkg/controller.v1/pytorch/elastic.go; the Trainer has no elastic jobs up to 2.3 (a TODO in
pkg/runtime/framework/plugins/torch/torch.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob_migrate.draft import Draft
from trainjob_migrate.environment import rendezvous_endpoint
from trainjob_migrate.field_records import Path

_ENV = "spec.trainer.env"


def convert_elastic(draft: Draft, path: Path, policy: Any, nodes: int | None) -> None:
    """Add an elastic policy to the draft.

    Besides the number of nodes, its options become variables that torchrun reads and a TrainJob may set. `nodes` is
    None if the number of replicas is refused.
    """
    if not isinstance(policy, Mapping):
        return
    _size(draft, path, policy, nodes)
    host, port = policy.get("rdzvHost"), policy.get("rdzvPort")
    host = draft.rename_hosts(host) if isinstance(host, str) else None
    variables = {
        "PET_RDZV_BACKEND": _convert_option(draft, path, policy, "rdzvBackend", str) or "c10d",
        "PET_RDZV_ENDPOINT": rendezvous_endpoint(host, port if isinstance(port, int) else None),
        "PET_RDZV_ID": _convert_option(draft, path, policy, "rdzvId", str),
        "PET_RDZV_CONF": _conf(draft, (*path, "rdzvConf"), policy.get("rdzvConf")),
        "PET_MAX_RESTARTS": _convert_option(draft, path, policy, "maxRestarts", int),
        "PET_STANDALONE": "1" if _convert_option(draft, path, policy, "standalone", bool) else None,
    }
    for field, kind in (("rdzvHost", str), ("rdzvPort", int)):
        _convert_option(draft, path, policy, field, kind)
    draft.fields.mark_dropped((*path, "metrics"), "a running TrainJob is never scaled")
    given = {name: str(value) for name, value in variables.items() if value is not None}
    draft.reserved.update(dict.fromkeys(given, "the elasticPolicy takes precedence"))
    draft.environment += [{"name": name, "value": value} for name, value in given.items()]


def _convert_option(draft: Draft, path: Path, policy: Mapping[str, Any], field: str, kind: type) -> Any:
    value = policy.get(field)
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        return None
    draft.fields.mark_converted((*path, field), _ENV)
    return value


def _size(draft: Draft, path: Path, policy: Mapping[str, Any], nodes: int | None) -> None:
    limits = {field: policy[field] for field in ("minReplicas", "maxReplicas") if policy.get(field) is not None}
    for field, limit in limits.items():
        if limit == nodes:
            draft.fields.mark_converted((*path, field), "spec.trainer.numNodes")
        elif isinstance(limit, int):
            draft.fields.mark_dropped((*path, field), "a TrainJob has a fixed number of nodes, the sum of all replicas")
    if any(limit != nodes for limit in limits.values()) or (policy.get("metrics") and len(limits) < 2):
        has_restarts = isinstance(policy.get("maxRestarts"), int) and policy["maxRestarts"] > 0
        restarts = "; torchrun still restarts its processes if one fails, up to maxRestarts times"
        draft.add_finding(
            "elastic",
            f"The job is elastic: from {limits.get('minReplicas', nodes)} to {limits.get('maxReplicas', nodes)} nodes.",
            "The Trainer has no elastic jobs (up to 2.3): the training waits for all nodes and gets no others later.",
            f"It runs on {nodes or 'a fixed number of'} nodes{restarts if has_restarts else ''}.",
        )


def _conf(draft: Draft, path: Path, conf: Any) -> str | None:
    if not isinstance(conf, list) or not conf:
        return None
    pairs = [(item.get("key"), item.get("value")) if isinstance(item, Mapping) else (None, None) for item in conf]
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in pairs):
        return None
    for number in range(len(conf)):
        draft.fields.mark_converted((*path, number, "key"), _ENV)
        draft.fields.mark_converted((*path, number, "value"), _ENV)
    return ",".join(f"{key}={value}" for key, value in pairs)
