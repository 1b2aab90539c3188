"""Request with a complete TrainJob manifest, as for kubectl."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem, ProblemKind
from trainjob.spec.base import invalid_field, iterate_texts, to_json_value
from trainjob.spec.base_request import WaitSettings
from trainjob.spec.credential_checks import check_document
from trainjob.spec.job import check_queue, check_suspension
from trainjob.spec.problems import REDACTED, format_value
from trainjob.spec.queue import PODSET_PREFIX, QUEUE_LABEL, Queue, check_partial_admission
from trainjob.spec.resources import CLAIMS_ADVICE, Runtime
from trainjob.spec.secrets import FILE_KEY_ADVICE

_HOST_VARIABLE = re.compile(r"(?:ADDR|HOST|ENDPOINT|URL|SERVER|MASTER)$")  # end of its name
_TOP_LEVEL_KEYS = ("apiVersion", "kind", "metadata", "spec")
_METADATA_KEYS = ("name", "generateName", "namespace", "labels", "annotations")


class TrainJobManifest(WaitSettings):
    """A complete TrainJob manifest, as for kubectl.

    The API server validates its spec strictly. Its name is the start of the TrainJob's name, because every attempt has
    its own name. Hosts of its pods that contain the name in the manifest are refused. Its labels and annotations are
    retained.

    Attributes:
        manifest: the TrainJob as a dict, or as YAML or JSON text.
        max_restarts: how often a failing container may be restarted in place before the TrainJob is ended. In
            Python and files, None (null) leaves it to the runtime.
    """

    manifest: dict[str, Any]
    max_restarts: int | None = Field(default=0, ge=0)

    @field_validator("manifest", mode="before")
    @classmethod
    def _validate_manifest(cls, value: Any) -> Any:
        # Imported here, because most DAGs have no manifest when they are parsed.
        from trainjob.spec.trainer_versions import API_VERSION, find_version_problems

        content = _parse_text(value) if isinstance(value, str) else value
        if not isinstance(content, Mapping):
            raise invalid_field("", content, f"it must be a TrainJob: a mapping with {', '.join(_TOP_LEVEL_KEYS)}")
        _check_keys("", content, _TOP_LEVEL_KEYS)
        if content.get("kind") == "TrainJob" and (problems := list(find_version_problems(content))):
            raise InvalidSpec(problems)
        for name, wanted in (("apiVersion", API_VERSION), ("kind", "TrainJob")):
            if content.get(name) != wanted:
                raise invalid_field(name, content.get(name), f"it must be {wanted}")
        _check_metadata(content.get("metadata") or {})
        _check_spec(content.get("spec"))
        plain = to_json_value(content)
        check_document(plain)
        _check_placeholders(plain)
        _check_hosts((plain.get("metadata") or {}).get("name") or "", plain["spec"])
        return plain

    @model_validator(mode="after")
    def _validate_end_actions(self) -> Self:
        check_suspension(self, self.queue, self.runtime)
        check_queue(self.queue, self.runtime)
        return self

    @property
    def name(self) -> str | None:
        """Prefix of the TrainJob's name; None if the manifest has no name.

        It is `name` or `generateName` of the manifest.
        """
        metadata = self._metadata
        return metadata.get("name") or metadata.get("generateName") or None

    @property
    def namespace(self) -> str:
        """Namespace in the manifest; empty if it has none."""
        return self._metadata.get("namespace") or ""

    @property
    def runtime(self) -> Runtime:
        """Training runtime in the manifest."""
        reference = self.manifest["spec"]["runtimeRef"]
        return Runtime(name=reference["name"], kind=reference.get("kind") or "ClusterTrainingRuntime")

    @property
    def queue(self) -> Queue | None:
        """Kueue queue in the manifest's labels; None if they name none."""
        name = (self._metadata.get("labels") or {}).get(QUEUE_LABEL)
        return Queue(name=name) if name else None

    @property
    def _metadata(self) -> dict[str, Any]:
        return self.manifest.get("metadata") or {}


def _parse_text(text: str) -> Any:
    from trainjob.spec.yaml_documents import parse_yaml, split_documents

    found = [document for _, document in split_documents(text)]
    if len(found) > 1:
        rule = (
            "a manifest has one TrainJob: apply the other documents, such as a TrainingRuntime, once with "
            "`kubectl apply -f FILE -l trainer.kubeflow.org/framework`, and pass the TrainJob alone"
        )
        raise invalid_field("", f"a text of {len(found)} documents", rule)
    return parse_yaml(text)


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, Mapping):
        raise invalid_field("metadata", metadata, f"it must be a mapping, with some of {', '.join(_METADATA_KEYS)}")
    _check_keys("metadata.", metadata, _METADATA_KEYS)
    for name in ("name", "generateName", "namespace"):
        if not isinstance(metadata.get(name, ""), str | None):
            raise invalid_field(f"metadata.{name}", metadata[name], "it must be a string")
    for name in ("labels", "annotations"):
        if not isinstance(metadata.get(name, {}), Mapping | None):
            raise invalid_field(f"metadata.{name}", metadata[name], "it must be a mapping")
        for key, text in (metadata.get(name) or {}).items():
            if str(key).startswith(PODSET_PREFIX):
                rule = "Kueue ignores it here, without an error: give it to the pods, as metadata of a runtimePatch"
                raise invalid_field(f"metadata.{name}.{key}", text, rule)
        check_partial_admission(metadata.get(name) or {}, f"metadata.{name}")


def _check_spec(spec: Any) -> None:
    """Check the parts of a spec that we read ourselves.

    Raises:
        InvalidSpec: a part is invalid.
    """
    reference = spec.get("runtimeRef") if isinstance(spec, Mapping) else None
    if not isinstance(reference, Mapping) or not isinstance(reference.get("name"), str):
        raise invalid_field("spec.runtimeRef.name", None, "it must name a training runtime, such as torch-distributed")
    trainer = spec.get("trainer")
    if not isinstance(trainer, Mapping | None):
        raise invalid_field("spec.trainer", trainer, "it must be a mapping")
    _check_keys("spec.", {key: spec[key] for key in spec if key in _list_fields("spec.trainer")}, ())
    _check_env("spec.trainer.env", (trainer or {}).get("env"))
    resources = (trainer or {}).get("resourcesPerNode")
    if isinstance(resources, Mapping) and resources.get("claims"):
        raise invalid_field("spec.trainer.resourcesPerNode.claims", resources["claims"], CLAIMS_ADVICE)
    initializer = spec.get("initializer")
    for kind in ("dataset", "model"):
        source = initializer.get(kind) if isinstance(initializer, Mapping) else None
        _check_env(f"spec.initializer.{kind}.env", source.get("env") if isinstance(source, Mapping) else None)


def _check_env(field: str, env: Any) -> None:
    if env is None:
        return
    named = isinstance(env, list) and all(
        isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in env
    )
    if not named:
        raise invalid_field(field, REDACTED, "it must be a list of mappings, each with name and value or valueFrom")
    for number, item in enumerate(env):
        source = item.get("valueFrom")
        if isinstance(source, Mapping) and source.get("fileKeyRef"):
            raise invalid_field(f"{field}[{number}].valueFrom.fileKeyRef", REDACTED, FILE_KEY_ADVICE)


def _check_keys(prefix: str, mapping: Mapping[Any, Any], allowed: tuple[str, ...]) -> None:
    problems = [_describe_key(prefix, key, mapping[key]) for key in mapping if key not in allowed]
    if problems:
        raise InvalidSpec(problems)


def _describe_key(prefix: str, key: Any, value: Any) -> Problem:
    """Return the problem of a key that has no meaning in its place."""
    levels: Mapping[str, Mapping[str, Collection[str]]] = {
        "": {"spec": _list_fields("spec"), "metadata": _METADATA_KEYS},
        "spec.": {"spec.trainer": (key,)},
    }
    level = next((level for level, fields in levels.get(prefix, {}).items() if key in fields), "")
    field = f"{prefix}{key}"
    if level:
        return Problem(field, format_value(field, value), f"it belongs below {level}: indent it", ProblemKind.UNKNOWN)
    return Problem(field, format_value(field, value), "a new TrainJob can't have this field: remove it")


def _list_fields(place: str) -> Collection[str]:
    from trainjob.trainjob_schema import find_schema

    fields: Mapping[str, Any] = find_schema(place)["properties"]
    return fields


def _check_placeholders(manifest: Mapping[str, Any]) -> None:
    """Refuse placeholders in names and images, in which nothing expands them.

    Raises:
        InvalidSpec: the error has each field with a placeholder.
    """
    from trainjob.spec.placeholders import find_placeholders

    metadata, spec = manifest.get("metadata") or {}, manifest["spec"]
    fields = {
        **{f"metadata.{name}": metadata.get(name) for name in ("name", "generateName", "namespace")},
        "spec.runtimeRef.name": spec["runtimeRef"]["name"],
        "spec.trainer.image": (spec.get("trainer") or {}).get("image"),
    }
    problems = [
        problem
        for field, value in fields.items()
        for found in find_placeholders(value)[:1]
        for problem in invalid_field(field, value, f"{found} seems to be a placeholder: replace it").problems
    ]
    if problems:
        raise InvalidSpec(problems)


def _check_hosts(name: str, spec: Any) -> None:
    """Refuse hosts of the TrainJob's own pods, which contain the name in the manifest.

    A pod of a JobSet has the host `JOBSET-JOB-INDEX-INDEX.JOBSET`, and all pods have the Service `JOBSET`. The JobSet
    has the TrainJob's final name.

    Raises:
        InvalidSpec: a text of the spec contains such a host, or is the Service in a variable for a host.
    """
    if not name:
        return
    quoted = re.escape(name)
    host = re.compile(rf"(?<![\w.-]){quoted}(-[a-z0-9-]+-\d+-\d+)\.{quoted}(?![\w-])")
    texts = {field: text for field, _, text in iterate_texts(spec, "spec")}
    for field, text in texts.items():
        found = host.search(text)
        variable = texts.get(f"{field.removesuffix('.value')}.name", "")
        if not (found or (text == name and field.endswith(".value") and _HOST_VARIABLE.search(variable))):
            continue
        new = f"$(JOBSET_NAME){found[1]}.$(JOBSET_NAME)" if found else "$(JOBSET_NAME)"
        rule = (
            "no pod will have this host, because every attempt has a name of its own: write "
            f"{new}, and before it in env the variable JOBSET_NAME with "
            "valueFrom: {fieldRef: {fieldPath: metadata.labels['jobset.sigs.k8s.io/jobset-name']}}; "
            "`trainjob migrate convert` writes hosts so"
        )
        raise invalid_field(field, found[0] if found else text, rule)
