"""The TrainJob of a task as text for the tab "Rendered Templates" of Airflow's UI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TEXT_LENGTHS = (2000, 500, 200, 100, 50)  # characters of the longest text in the manifest, tried in this order


def render_trainjob(job: Mapping[str, Any]) -> str:
    """Return a TrainJob as YAML, for people.

    Its status and what the API server adds to its metadata are left out. Packed code is replaced by its digest. `***`
    replaces what may be a credential, and values of variables whose names Airflow considers as sensitive.

    Args:
        job: the TrainJob as the API server returned it.
    """
    from trainjob.manifest.review import summarize_manifest
    from trainjob.spec.redaction import redact
    from trainjob_airflow.version_compat import conf

    summary, metadata = summarize_manifest(job), job["metadata"]
    shown = {
        **{field: summary[field] for field in ("apiVersion", "kind")},
        "metadata": {
            **{field: metadata[field] for field in ("name", "namespace")},
            **{field: _redact_texts(metadata.get(field) or {}) for field in ("labels", "annotations")},
        },
        "spec": mask_values(redact(summary["spec"])),
    }
    return dump_within(shown, conf.getint("core", "max_templated_field_length"))


def _redact_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations without credentials and without kubectl's copy."""
    from trainjob.spec.redaction import LAST_APPLIED, redact

    return {name: redact(text) for name, text in texts.items() if name != LAST_APPLIED}


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
