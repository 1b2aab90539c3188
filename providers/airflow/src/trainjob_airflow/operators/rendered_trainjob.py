"""The TrainJob of a task as text for the tab "Rendered Templates" of Airflow's UI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.client import Cluster
    from trainjob.lifecycle import JobReference

_TEXT_LENGTHS = (2000, 500, 200, 100, 50)  # characters of the longest text in the manifest, tried in this order


def render_trainjob(context: Context, cluster: Cluster, step: Any, reference: JobReference) -> str:
    """Return the TrainJob of a task as YAML, as it is sent to the cluster.

    No request is sent. Therefore the manifest of an adopted TrainJob is built again, from the same request. If this
    process does not know the cluster's Trainer yet, the manifest is that for Trainer 2.2 and newer. Packed code is
    replaced by its digest. In the spec, `***` replaces what may be a credential, and values of variables whose names
    Airflow considers as sensitive.

    Args:
        context: context of the task.
        cluster: client of the cluster.
        step: the step that the task runs.
        reference: reference to its TrainJob.
    """
    from trainjob.lifecycle.prepared_job import prepare_job
    from trainjob.manifest import build_trainjob, detect_dialect
    from trainjob.manifest.review import summarize_manifest
    from trainjob.spec.redaction import redact
    from trainjob_airflow.lineage import parent_run_variables
    from trainjob_airflow.run_key import get_renewal, get_run_key
    from trainjob_airflow.version_compat import conf

    prepared = prepare_job(
        step,
        get_run_key(context),
        reference.namespace,
        variables=parent_run_variables(context),
        renewal=get_renewal(context),
        interruptions=reference.interruptions,
        num_nodes=reference.num_nodes,
    )
    metadata = {**prepared.build_metadata(reference.attempt), "name": reference.name}
    manifest = build_trainjob(prepared.job, **metadata, dialect=detect_dialect(cluster.known_spec_fields))
    summary = summarize_manifest(manifest)
    shown = {**summary, "spec": mask_values(redact(summary["spec"]))}
    return dump_within(shown, conf.getint("core", "max_templated_field_length"))


def mask_values(value: Any) -> Any:
    """Return a spec with `***` for the values of variables with sensitive names.

    Airflow itself masks only the values of a dict, by their keys. A list of variables has names and values instead.
    """
    from trainjob_airflow.version_compat import redact

    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            return {**value, "value": redact(value["value"], value["name"])}
        return {name: mask_values(each) for name, each in value.items()}
    return (
        [mask_values(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
    )


def dump_within(manifest: Mapping[str, Any], max_length: int) -> str:
    """Return a manifest as YAML of a limited length.

    Long texts in it are cut as far as necessary, because Airflow would cut the end of the manifest. If that is not
    enough, the result is longer.

    Args:
        manifest: the manifest.
        max_length: maximum number of characters, `[core] max_templated_field_length`.
    """
    text = _dump(manifest)
    for length in _TEXT_LENGTHS:
        if len(text) <= max_length:
            break
        text = _dump(_cut_texts(manifest, length))
    return text


def _cut_texts(value: Any, length: int) -> Any:
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}… ({len(value):,} characters)"
    if isinstance(value, Mapping):
        return {name: _cut_texts(each, length) for name, each in value.items()}
    return (
        [_cut_texts(each, length) for each in value]
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
    )


def _dump(manifest: Any) -> str:
    from trainjob.spec.yaml_output import dump_yaml

    return dump_yaml([manifest], width=120, allow_unicode=True)
