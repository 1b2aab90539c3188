"""Columns and cells of each resource in tables, which kubectl prints.

Source: k8s.io/kubernetes 1.36 `pkg/printers/internalversion/printers.go`, and the `additionalPrinterColumns` of the
CustomResourceDefinitions of JobSet 0.12.0 and Trainer 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainjob_local.apiserver.durations import format_duration, format_since
from trainjob_local.apiserver.pod_cells import build_pod_cells
from trainjob_local.objects import parse_timestamp

__all__ = ["Printer", "find_printer"]

Json = Mapping[str, Any]
_NONE, _UNSET, _UNKNOWN = "<none>", "<unset>", "<unknown>"
_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True)
class Printer:
    """The columns of a resource, and the function for a row.

    Attributes:
        columns: names of the columns; a name that begins with `+` is shown by `-o wide` only.
        cells: function that returns the cells of an object at a time.
    """

    columns: tuple[str, ...]
    cells: Callable[[Json, datetime], Sequence[Any]]


def find_printer(plural: str) -> Printer:
    """Return the printer of a resource; for those without columns of their own, name and age."""
    return _PRINTERS.get(plural, _DEFAULT)


def _age(body: Json, now: datetime) -> str:
    return format_since(body["metadata"].get("creationTimestamp"), now)


def _default_cells(body: Json, now: datetime) -> list[Any]:
    return [body["metadata"]["name"], _age(body, now)]


def _trainjob_cells(body: Json, now: datetime) -> list[Any]:
    conditions = (body.get("status") or {}).get("conditions") or [{}]
    return [body["metadata"]["name"], conditions[-1].get("type"), _age(body, now)]


def _jobset_cells(body: Json, now: datetime) -> list[Any]:
    status = body.get("status") or {}
    completed = [one["status"] for one in status.get("conditions") or () if one["type"] == "Completed"]
    return [
        body["metadata"]["name"],
        status.get("terminalState"),
        _text(status.get("restarts")),
        completed[0] if completed else None,
        _text(body["spec"].get("suspend")),
        _age(body, now),
    ]


def _text(value: Any) -> str | None:
    """Return the value of a column of type string, as a CustomResourceDefinition prints it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _job_cells(body: Json, now: datetime) -> list[Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    parallelism = spec.get("parallelism", 0)
    total = spec.get("completions") or (f"1 of {parallelism}" if parallelism > 1 else 1)
    began, ended = status.get("startTime"), status.get("completionTime")
    seconds = ((parse_timestamp(ended) if ended else now) - parse_timestamp(began)).total_seconds() if began else 0
    containers = spec["template"]["spec"].get("containers") or ()
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    return [
        body["metadata"]["name"],
        _job_status(body),
        f"{status.get('succeeded', 0)}/{total}",
        format_duration(seconds) if began else "",
        _age(body, now),
        ",".join(one["name"] for one in containers),
        ",".join(one["image"] for one in containers),
        _pairs(selector),
    ]


def _job_status(body: Json) -> str:
    conditions = (body.get("status") or {}).get("conditions") or ()
    true = {one["type"] for one in conditions if one["status"] == "True"}
    ends = [name for name in ("Complete", "Failed") if name in true]
    deleted = ["Terminating"] if "deletionTimestamp" in body["metadata"] else []
    others = [name for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if name in true]
    return [*ends, *deleted, *others, "Running"][0]


def _pairs(labels: Json) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE


def _namespace_cells(body: Json, now: datetime) -> list[Any]:
    return [body["metadata"]["name"], (body.get("status") or {}).get("phase", ""), _age(body, now)]


def _node_cells(body: Json, now: datetime) -> list[Any]:
    status, labels = body.get("status") or {}, body["metadata"].get("labels") or {}
    ready = [one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"]
    state = ("Ready" if ready[0] == "True" else "NotReady") if ready else "Unknown"
    state += ",SchedulingDisabled" if (body.get("spec") or {}).get("unschedulable") else ""
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix)))
    info = status.get("nodeInfo") or {}
    addresses = {one["type"]: one["address"] for one in status.get("addresses") or ()}
    kernel = info.get("kernelVersion") or _UNKNOWN
    return [
        body["metadata"]["name"],
        state,
        roles or _NONE,
        _age(body, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or _UNKNOWN,
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event_cells(body: Json, now: datetime) -> list[Any]:
    involved, series, source = body.get("involvedObject") or {}, body.get("series") or {}, body.get("source") or {}
    first = format_since(body.get("firstTimestamp") or body.get("eventTime"), now)
    last = series.get("lastObservedTime") or body.get("lastTimestamp")
    kind, name = str(involved.get("kind", "")).lower(), involved.get("name")
    sources = [source.get("component") or body.get("reportingComponent") or "", source.get("host") or ""]
    return [
        format_since(last, now) if last else first,
        body.get("type", ""),
        body.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        involved.get("fieldPath", ""),
        ", ".join(filter(None, sources)),
        str(body.get("message", "")).strip(),
        first,
        series.get("count") or body.get("count") or 1,
        body["metadata"]["name"],
    ]


def _service_cells(body: Json, now: datetime) -> list[Any]:
    spec = body.get("spec") or {}
    ports = [f"{one['port']}/{one.get('protocol', 'TCP')}" for one in spec.get("ports") or ()]
    return [
        body["metadata"]["name"],
        spec.get("type", "ClusterIP"),
        spec.get("clusterIP") or _NONE,
        _NONE,
        ",".join(ports) or _NONE,
        _age(body, now),
        _pairs(spec.get("selector") or {}),
    ]


def _claim_cells(body: Json, now: datetime) -> list[Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        body["metadata"]["name"],
        "Terminating" if "deletionTimestamp" in body["metadata"] else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _access_modes(status) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", _UNSET),
        _age(body, now),
        spec.get("volumeMode", _UNSET),
    ]


def _access_modes(part: Json) -> str:
    return ",".join(_ACCESS_MODES.get(mode, mode) for mode in part.get("accessModes") or ())


def _volume_cells(body: Json, now: datetime) -> list[Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    claim = spec.get("claimRef") or {}
    return [
        body["metadata"]["name"],
        (spec.get("capacity") or {}).get("storage", "0"),
        _access_modes(spec),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if "deletionTimestamp" in body["metadata"] else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", _UNSET),
        status.get("reason", ""),
        _age(body, now),
        spec.get("volumeMode", _UNSET),
    ]


def _storage_class_cells(body: Json, now: datetime) -> list[Any]:
    annotations = body["metadata"].get("annotations") or {}
    return [
        body["metadata"]["name"] + (" (default)" if annotations.get(_DEFAULT_CLASS) == "true" else ""),
        body.get("provisioner", ""),
        body.get("reclaimPolicy", "Delete"),
        body.get("volumeBindingMode", "Immediate"),
        body.get("allowVolumeExpansion", False),
        _age(body, now),
    ]


def _secret_cells(body: Json, now: datetime) -> list[Any]:
    return [body["metadata"]["name"], body.get("type", ""), len(body.get("data") or ()), _age(body, now)]


def _config_map_cells(body: Json, now: datetime) -> list[Any]:
    count = len(body.get("data") or ()) + len(body.get("binaryData") or ())
    return [body["metadata"]["name"], count, _age(body, now)]


def _role_cells(body: Json, _now: datetime) -> list[Any]:
    return [body["metadata"]["name"], body["metadata"].get("creationTimestamp")]


def _binding_cells(body: Json, now: datetime) -> list[Any]:
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for one in body.get("subjects") or ():
        where = f"{one.get('namespace', '')}/" if one.get("kind") == "ServiceAccount" else ""
        names.setdefault(one.get("kind", ""), []).append(f"{where}{one.get('name', '')}")
    role = f"{body['roleRef'].get('kind', '')}/{body['roleRef'].get('name', '')}"
    subjects = [", ".join(names[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [body["metadata"]["name"], role, _age(body, now), *subjects]


def _printer(columns: str, cells: Callable[[Json, datetime], Sequence[Any]]) -> Printer:
    return Printer(tuple(columns.split("|")), cells)


_DEFAULT = _printer("Name|Age", _default_cells)
_ROLE = _printer("Name|Created At", _role_cells)
_BINDING = _printer("Name|Role|Age|+Users|+Groups|+ServiceAccounts", _binding_cells)
_PRINTERS: Mapping[str, Printer] = {
    "pods": _printer("Name|Ready|Status|Restarts|Age|+IP|+Node|+Nominated Node|+Readiness Gates", build_pod_cells),
    "trainjobs": _printer("Name|State|Age", _trainjob_cells),
    "jobsets": _printer("Name|TerminalState|Restarts|Completed|Suspended|Age", _jobset_cells),
    "jobs": _printer("Name|Status|Completions|Duration|Age|+Containers|+Images|+Selector", _job_cells),
    "namespaces": _printer("Name|Status|Age", _namespace_cells),
    "nodes": _printer(
        "Name|Status|Roles|Age|Version|+Internal-IP|+External-IP|+OS-Image|+Kernel-Version|+Container-Runtime",
        _node_cells,
    ),
    "events": _printer(
        "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name", _event_cells
    ),
    "services": _printer("Name|Type|Cluster-IP|External-IP|Port(s)|Age|+Selector", _service_cells),
    "persistentvolumeclaims": _printer(
        "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|+VolumeMode", _claim_cells
    ),
    "persistentvolumes": _printer(
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|"
        "+VolumeMode",
        _volume_cells,
    ),
    "storageclasses": _printer(
        "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age", _storage_class_cells
    ),
    "secrets": _printer("Name|Type|Data|Age", _secret_cells),
    "configmaps": _printer("Name|Data|Age", _config_map_cells),
    "roles": _ROLE,
    "clusterroles": _ROLE,
    "rolebindings": _BINDING,
    "clusterrolebindings": _BINDING,
}
