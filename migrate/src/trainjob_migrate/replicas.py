"""The kinds of replicas of a v1 job, for which a TrainJob has a single template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import Path, format_path
from trainjob_migrate.identity import OPERATOR_LABEL_PREFIX
from trainjob_migrate.templates import describe_placeholder

# Fields whose difference has no effect: the Worker's values are used.
_IGNORED_FIELDS = ("creationTimestamp", "restartPolicy", "ports", "imagePullPolicy", "terminationMessagePath")
_ABSENT = object()
# Mappings that may be missing in one template: each of their keys is then a difference of its own.
_MAPPINGS = (("metadata",), ("metadata", "labels"), ("metadata", "annotations"))
# Labels and annotations that the kubelet, a network plugin, a mesh or a scheduler reads from the pod.
_READ_BY_OTHERS = re.compile(
    r"(?!app\.kubernetes\.io/)(?:.*\.)?(?:k8s\.io|kubernetes\.io|x-k8s\.io|cni\.cncf\.io|istio\.io|linkerd\.io|kuma\.io|"
    r"cilium\.io|projectcalico\.org|ovn\.org|hashicorp\.com|volcano\.sh)/.*"
)

_INIT_ADVICE = "; if only one node may run it, test JOB_COMPLETION_INDEX in it, which is 0 on the first node"

_Difference = tuple[Path, Any, Any]


@dataclass(frozen=True)
class Replicas:
    """One kind of replicas.

    Attributes:
        path: path in the source.
        spec: the replica spec at this path.
    """

    path: Path
    spec: Mapping[str, Any]

    @property
    def template(self) -> Mapping[str, Any]:
        """Pod template of the replicas."""
        template = self.spec.get("template")
        return template if isinstance(template, Mapping) else {}

    @property
    def count(self) -> int:
        """Number of replicas; 1 if the source does not set it."""
        count = self.spec.get("replicas")
        return int(count) if count is not None and _is_count(count) else 1

    @property
    def has_valid_count(self) -> bool:
        """Return whether the number of replicas is a number, or not set."""
        count = self.spec.get("replicas")
        return count is None or _is_count(count)


def find_replicas(specs: Any, path: Path, role: str) -> Replicas | None:
    """Return the replicas of a kind, or None.

    The name of the kind may be written in any case, as the Training Operator accepts it.
    """
    for key, spec in specs.items() if isinstance(specs, Mapping) else ():
        if key.lower() == role.lower() and isinstance(spec, Mapping):
            return Replicas((*path, key), spec)
    return None


def convert_count(draft: Draft, replicas: Replicas, *, exactly: int | None = None) -> int:
    """Record the number of replicas and return it; a kind may require an exact number."""
    path, count = (*replicas.path, "replicas"), replicas.spec.get("replicas")
    if count is not None and not _is_count(count):
        rule = f"it must be a whole number, {'at least 1' if exactly is None else f'namely {exactly}'}"
        draft.fields.mark_refused(path, f"{rule}{describe_placeholder(count)}")
    elif exactly is not None and replicas.count != exactly:
        draft.fields.mark_refused(path, f"it must be {exactly}")
    elif count is not None:
        draft.fields.mark_converted(path, "spec.trainer.numNodes", "the sum of all replicas")
    return replicas.count


def record_unused_template(draft: Draft, other: Replicas, kept: Replicas, *, main: str) -> None:
    """Record the template that is not used for the TrainJob.

    Differences to the template that is used are refused, unless they have no effect. Call it before the other template
    is converted, because the first result of a field is final.

    Args:
        draft: the draft; its `reserved` has the variables whose values in the job have no effect.
        other: the replicas whose template is not used.
        kept: the replicas whose template is used.
        main: name of the training container.
    """
    old, new = (*other.path, "template"), (*kept.path, "template")
    labels: list[str] = []
    for inner, mine, theirs in _differences(other.template, kept.template, ()):
        is_label = inner[:2] in _MAPPINGS and len(inner) == 3 and not _is_read(str(inner[2]), other, kept)
        labels += [str(inner[2])] if is_label and not str(inner[2]).startswith(OPERATOR_LABEL_PREFIX) else []
        is_relevant = not is_label and not any(part in _IGNORED_FIELDS for part in inner)
        role, kept_role = str(other.path[-1]), str(kept.path[-1])
        name = _find_element(inner)
        if mine is _ABSENT:
            path, what = _in_source(kept.template, new, inner), f"the {role} has {f'no {name}' if name else 'none'}"
        elif theirs is _ABSENT:
            path, what = (
                _in_source(other.template, old, inner),
                f"the {kept_role} has {f'no {name}' if name else 'none'}",
            )
        else:
            path = _in_source(other.template, old, inner)
            what = f"the {kept_role} has another value{f' of {name}' if name else ''}"
        if inner[:4] == ("spec", "containers", main, "env") and name in draft.reserved:
            draft.fields.mark_dropped(path, draft.reserved[name])
        elif is_relevant:
            where = format_path(path)
            advice = f"make {where} equal in both{_INIT_ADVICE if inner[:2] == ('spec', 'initContainers') else ''}"
            draft.fields.mark_refused(path, f"{what}, but a TrainJob has one template for all nodes: {advice}")
        elif mine is not _ABSENT:
            draft.fields.mark_dropped(path, f"{what}; the value of the {kept_role} is used")
    if labels:
        draft.add_finding(
            "labels",
            f"{other.path[-1]} and {kept.path[-1]} differ in labels or annotations: {', '.join(labels)}.",
            "The pods of a TrainJob have one template. A program outside the job may select pods by them.",
            f"All pods have those of the {kept.path[-1]}. The pod with rank 0 has the label "
            "batch.kubernetes.io/job-completion-index: 0.",
        )
    draft.fields.mark_converted(old, "spec.trainer", f"the same as {format_path(new)}")


def _is_read(key: str, *replicas: Replicas) -> bool:
    """Return whether a label or annotation affects the pod, or a part of the pod reads it."""
    return bool(_READ_BY_OTHERS.fullmatch(key)) or any(_mentions(one.template.get("spec"), key) for one in replicas)


def _mentions(value: Any, key: str) -> bool:
    if isinstance(value, Mapping):
        return key in value or any(_mentions(inner, key) for inner in value.values())
    if isinstance(value, list):
        return any(_mentions(inner, key) for inner in value)
    return value == key or (isinstance(value, str) and f"['{key}']" in value)


def _find_element(inner: Path) -> str:
    """Return the name of the variable, mount or volume in which templates differ.

    It is empty for other fields.
    """
    places = [place for place, step in enumerate(inner[:-1]) if step in ("env", "volumeMounts", "volumes")]
    return str(inner[places[-1] + 1]) if places else ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _differences(mine: Any, theirs: Any, path: Path) -> Iterator[_Difference]:
    """Yield the path and both values of each difference.

    Lists of named objects are compared by name, in any order.
    """
    mine, theirs = _by_name(mine), _by_name(theirs)
    may_be_missing = path[-1:] == ("env",) or path in _MAPPINGS
    if may_be_missing and isinstance(mine, Mapping) != isinstance(theirs, Mapping):
        # A container without variables lacks each variable of the other.
        mine, theirs = ({} if one is _ABSENT or one == [] else one for one in (mine, theirs))
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        for key in {**mine, **theirs}:
            yield from _differences(mine.get(key, _ABSENT), theirs.get(key, _ABSENT), (*path, key))
    elif mine != theirs or isinstance(mine, bool) != isinstance(theirs, bool):
        yield path, mine, theirs


def _by_name(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        names = [item.get("name") for item in value]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return value


def _in_source(value: Any, start: Path, inner: Path) -> Path:
    """Return the path of a difference in the source.

    A list element that the difference identifies by name has its index in the source.
    """
    path = start
    for step in inner:
        if isinstance(value, list):
            number = next(number for number, item in enumerate(value) if item.get("name") == step)
            path, value = (*path, number), value[number]
        else:
            path, value = (*path, step), value[step]
    return path
