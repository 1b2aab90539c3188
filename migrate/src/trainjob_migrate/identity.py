"""The identity of a job: kind, name, labels and the fields that the API server sets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from trainjob.manifest import Dialect
from trainjob.spec.base import invalid_field
from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import FieldRecorder, Path
from trainjob_migrate.templates import describe_placeholder
from trainjob_migrate.value_checks import report_placeholders

UNSUPPORTED_KINDS: Mapping[str, str] = {
    "PaddleJob": "the Trainer has no runtime for PaddlePaddle; keep the Training Operator for this job",
    "MXJob": "the Trainer has no runtime for MXNet, which is a retired project",
}
"""Kinds for which the Trainer has no runtime, in any version of their API, with the reason of their refusal."""
KINDS = ("PyTorchJob", "MPIJob", "XGBoostJob", "JAXJob", "TFJob", *UNSUPPORTED_KINDS)
"""Kinds of the Training Operator; `MXJob` until 1.7."""
OPERATOR_LABEL_PREFIX = "training.kubeflow.org/"
"""Prefix of the labels that the Training Operator sets on its pods.

Source: training-operator 1.9 pkg/apis/kubeflow.org/v1/common_types.go.
"""
OPERATOR_PORTS = ("pytorchjob-port", "jaxjob-port", "xgboostjob-port", "tfjob-port", "master")
"""Names of the ports of the Training Operator's rendezvous."""
_VERSIONS = {"MPIJob": ("kubeflow.org/v1", "kubeflow.org/v2beta1")}
_VERSION = "kubeflow.org/v1"
IN_RUN_POLICY = "and cleanPodPolicy, backoffLimit and activeDeadlineSeconds in spec.runPolicy"
"""What to change in jobs of versions before kubeflow.org/v1, beside the replicas; the end of a sentence."""
_OLD_VERSIONS = {
    "MPIJob": ": write kubeflow.org/v2beta1, spec.template as the templates of Launcher and Worker in "
    f"spec.mpiReplicaSpecs, spec.gpus or replicas as Worker.replicas and spec.slotsPerWorker, {IN_RUN_POLICY}",
    "PyTorchJob": ": write kubeflow.org/v1, the list spec.replicaSpecs as the mapping spec.pytorchReplicaSpecs, "
    f"{IN_RUN_POLICY}",
}
"""What to change in a job of an older version, as the end of a rule."""
# JobSet 0.12 rejects a job if a pod's name could have more than 63 characters. The longest names end in
# -launcher-0-0-abcde or -node-0-99999-abcde.
_LONGEST_NAME = 44
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)
"""Fields of the metadata of any object that only the API server sets."""
_DROPPED = {
    **dict.fromkeys(SERVER_FIELDS, "the API server sets it"),
    "ownerReferences": "deleting the owner would delete the TrainJob; let the owner create TrainJobs",
    "finalizers": "the controller that set it waits for the end of the old job",
}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


# Prefixes of labels and annotations that mean the same on any object, or that are documented for TrainJobs.
_COMMON_PREFIXES = re.compile(r"(?:.*\.)?(?:kubernetes\.io|k8s\.io|x-k8s\.io|argoproj\.io|helm\.sh)")


def is_job_name(name: str) -> bool:
    """Return whether a name contains only what the name of a TrainJob may contain."""
    return bool(_NAME.fullmatch(name))


def validate_job(job: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the kind and the metadata of a v1 job.

    Raises:
        InvalidSpec: the document is not a v1 job, or has no name.
    """
    if not isinstance(job, Mapping):
        raise invalid_field("job", job, f"it must be a mapping of one of these kinds: {', '.join(KINDS)}")
    kind, version, metadata = job.get("kind"), job.get("apiVersion"), job.get("metadata")
    if kind not in KINDS:
        raise invalid_field("kind", kind, f"it must be a kind of the Training Operator: {', '.join(KINDS)}")
    versions = _VERSIONS.get(kind, (_VERSION,))
    is_old = kind in (*UNSUPPORTED_KINDS, "TFJob") and isinstance(version, str) and version.startswith("kubeflow.org/")
    if version not in versions and not is_old:
        advice = _OLD_VERSIONS.get(kind, "")
        rule = f"it must be {' or '.join(versions)}; other versions are those of older operators{advice}"
        raise invalid_field("apiVersion", version, rule)
    names = [metadata.get(key) for key in ("name", "generateName")] if isinstance(metadata, Mapping) else []
    if not isinstance(metadata, Mapping) or not any(isinstance(name, str) and name for name in names):
        raise invalid_field(
            "metadata.name", None, "the job must have a name; the names of the TrainJob's pods start with it"
        )
    return str(kind), metadata


def convert_identity(recorder: FieldRecorder, metadata: Mapping[str, Any], dialect: Dialect) -> Draft:
    """Return a draft with the name, namespace, labels and annotations of the source."""
    recorder.mark_converted(("apiVersion",), "apiVersion")
    recorder.mark_converted(("kind",), "kind")
    recorder.mark_dropped(("status",), "the TrainJob has its own status")
    for key, reason in _DROPPED.items():
        recorder.mark_dropped(("metadata", key), reason)
    source_name = metadata.get("name") or metadata.get("generateName")
    draft = Draft(recorder, str(source_name), _shorten_name(str(source_name)), _namespace(recorder, metadata), dialect)
    _convert_name(draft, metadata)
    kept = {key: metadata[key] for key in ("namespace", "labels") if key in metadata}
    report_placeholders(draft, ("metadata",), kept)
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    _convert_string_map(
        draft,
        "labels",
        labels,
        OPERATOR_LABEL_PREFIX,
        "a label of the Training Operator; pods of a TrainJob have the labels of JobSet",
    )
    _convert_string_map(draft, "annotations", annotations, _LAST_APPLIED, "kubectl stores the old document in it")
    return draft


def _namespace(recorder: FieldRecorder, metadata: Mapping[str, Any]) -> str | None:
    namespace = metadata.get("namespace")
    if not isinstance(namespace, str):
        return None
    recorder.mark_converted(("metadata", "namespace"), "metadata.namespace")
    return namespace or None


def _shorten_name(source_name: str) -> str:
    """Return the same name if it is short enough, else its beginning and a hash of it."""
    name = source_name.rstrip("-")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _convert_name(draft: Draft, metadata: Mapping[str, Any]) -> None:
    key = "name" if metadata.get("name") else "generateName"
    path: Path = ("metadata", key)
    if not _NAME.fullmatch(draft.name):
        rule = "lower case letters, digits and -, and starts with a letter"
        placeholder = describe_placeholder(metadata[key])
        draft.fields.mark_refused(path, f"the name of a TrainJob has only {rule} (Trainer 2.1 and later){placeholder}")
        return
    fixed = "" if key == "name" else "used as a fixed name; "
    long = "" if draft.name == draft.source_name.rstrip("-") else f"shortened to {_LONGEST_NAME} characters for JobSet"
    draft.fields.mark_converted(path, "metadata.name", f"{fixed}{long}".removesuffix("; "))
    if key == "generateName":
        draft.add_finding(
            "name",
            f"The job has generateName {draft.source_name}, so that each creation gives it a new name.",
            "kubectl apply refuses generateName, and a generated TrainingRuntime must have the name that the TrainJob "
            "refers to.",
            f"The TrainJob has the fixed name {draft.name}. `trainjob run`, operators and components give each run a "
            "name of its own; for kubectl create, change the name in the file.",
        )
    draft.fields.mark_dropped(("metadata", "generateName"), "metadata.name is set")


def _convert_string_map(draft: Draft, field: str, values: Any, dropped_prefix: str, reason: str) -> None:
    if not isinstance(values, Mapping):
        return
    _report_other_controllers(draft, field, values)
    kept = {}
    for key, value in values.items():
        path = ("metadata", field, key)
        if key.startswith(dropped_prefix):
            draft.fields.mark_dropped(path, reason)
        elif isinstance(value, str):
            draft.fields.mark_converted(path, f"metadata.{field}")
            kept[key] = value
    if kept:
        draft.metadata[field] = kept


def _report_other_controllers(draft: Draft, field: str, values: Mapping[str, Any]) -> None:
    prefixes = {key: key.rpartition("/")[0] for key in values if not key.startswith(OPERATOR_LABEL_PREFIX)}
    keys = [key for key, prefix in prefixes.items() if prefix and not _COMMON_PREFIXES.fullmatch(prefix)]
    if keys:
        draft.add_finding(
            "metadata",
            f"The job has the {field} {', '.join(keys)}.",
            "A program that reads them from v1 jobs may not read them from TrainJobs.",
            f"The TrainJob has the same {field}. Check the program's documentation.",
        )


def contains_operator_label(value: Any) -> bool:
    """Return whether a value refers to a label that a TrainJob's pods do not have."""
    if isinstance(value, Mapping):
        return any(OPERATOR_LABEL_PREFIX in key or contains_operator_label(inner) for key, inner in value.items())
    if isinstance(value, list):
        return any(map(contains_operator_label, value))
    return isinstance(value, str) and OPERATOR_LABEL_PREFIX in value
