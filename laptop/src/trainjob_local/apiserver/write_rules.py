"""The rules of a write in kube-apiserver's order.

They are: decoding, mutating admission, schema, validating admission.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, cast

from trainjob_local.apiserver.builtin_kinds import BUILTIN_SCHEMAS, METADATA, builtin_problems, with_builtin_defaults
from trainjob_local.apiserver.naming import generate_name_problems, metadata_problems, name_problems
from trainjob_local.apiserver.resources import Resource, by_group_version
from trainjob_local.apiserver.schema import Schema, find_wrong_type, prune, schema_problems, with_defaults
from trainjob_local.apiserver.status_errors import FieldProblem, StatusError, bad_request, invalid
from trainjob_local.apiserver.store import encode_json
from trainjob_local.apiserver.trainjob_schema import TRAINJOB

__all__ = ["SCHEMAS", "Admission", "Operation", "Reader", "Stage", "WriteOptions", "WriteRules", "without_nulls"]

Json = dict[str, Any]

SCHEMAS: Mapping[str, Schema] = {"trainjobs": TRAINJOB}
"""Schemas of resources by plural; objects of other resources are stored with all fields of the request."""

_RUNTIMES = ("trainingruntimes", "clustertrainingruntimes")
_MAX_SHOWN = 30
_BLOCKING = ("Required value", "Too long")
_DECODER = 'admission webhook "defaulter.trainjob.trainer.kubeflow.org" denied the request: '


class Operation(str, Enum):
    """The kind of a write, as admission rules see it."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Stage(str, Enum):
    """The stage in which an admission rule applies.

    As in kube-apiserver, mutating rules apply before the schema checks (422), and validating rules after them.
    """

    MUTATING = "mutating"
    VALIDATING = "validating"


class Reader(Protocol):
    """The reads that an admission rule may make; both methods raise `StatusError`."""

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """Return a copy of one object; raise a 404 error if it does not exist."""

    def list(self, resource: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Json]:
        """Return copies of the selected objects; raise a 400 error if a selector is not valid."""


Admission = Callable[[Operation, Json, "Json | None", Reader], Json]
"""A rule of a webhook or admission plugin.

It gets the operation, the new object (its own copy), the old one (None on create) and a reader. It returns the object
for the next rule, or raises `StatusError`. On DELETE the new object is the object to delete, and the server ignores the
returned one. Rules do not apply to writes of the status.
"""


@dataclass
class WriteOptions:
    """The options of a write.

    Attributes:
        dry_run: whether to apply all rules and store nothing; a new object then has no resourceVersion.
        field_validation: handling of unknown fields: `Strict` rejects the object, `Warn` and `Ignore` drop the fields.
        warnings: warnings for the client, which the write adds if `field_validation` is `Warn`.
    """

    dry_run: bool = False
    field_validation: str = "Strict"
    warnings: list[str] = field(default_factory=list)


class WriteRules:
    """The rules for writes.

    Args:
        reader: reader of objects for admission rules.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._admissions: dict[tuple[Stage, str], list[Admission]] = defaultdict(list)

    def add_admission(self, resource: Resource, admission: Admission, stage: Stage) -> None:
        """Register an admission rule for a resource and a stage."""
        self._admissions[stage, resource.plural].append(admission)

    def decode(self, resource: Resource, body: Any) -> Json:
        """Return a copy of the body of a request, without nulls and with kind and apiVersion set.

        Raises:
            StatusError: 400 if the body has another apiVersion or kind (422 for the kind of a custom resource), or if a
                value that the server reads has a wrong type.
        """
        sent: Any = without_nulls(json.loads(encode_json(body)))
        if not isinstance(sent, dict) or (resource.custom and "kind" not in sent):
            raise bad_request(_unrecognized_message(resource, body))
        version = sent.setdefault("apiVersion", "" if resource.custom else resource.api_version)
        named = sent.setdefault("kind", resource.kind)
        if version != resource.api_version and resource.custom:
            expected = f"does not match the expected API version ({resource.api_version})"
            raise bad_request(f"the API version in the data ({version}) {expected}")
        if (version, named) != (resource.api_version, resource.kind):
            raise _wrong_kind_error(resource, sent)
        sent.setdefault("metadata", {})
        if resource.custom:
            problem = find_wrong_type(METADATA, sent["metadata"], "metadata")
        else:
            problem = find_wrong_type(BUILTIN_SCHEMAS.get(resource.plural, BUILTIN_SCHEMAS[""]), sent)
        if problem:
            raise bad_request(f'{named} in version "{resource.version}" cannot be handled as a {named}: {problem}')
        return cast("Json", sent)

    def prune_and_default(self, resource: Resource, body: Json, options: WriteOptions, *, patch: bool = False) -> Json:
        """Return the object without unknown fields and with defaults.

        An object of a resource without schema is returned unchanged.

        Raises:
            StatusError: 400 (422 for a patch) if there are unknown fields and the field validation is `Strict`.
        """
        schema = SCHEMAS.get(resource.plural)
        if schema is None:
            return body
        pruned, unknown = prune(schema, body)
        if unknown and options.field_validation == "Strict":
            raise _strict_decoding_error(resource, body, unknown, patch=patch)
        if options.field_validation == "Warn":
            options.warnings += [f'unknown field "{path}"' for path in unknown]
        return cast("Json", with_defaults(schema, pruned))

    def mutate(self, resource: Resource, operation: Operation, body: Json, old: Json | None) -> Json:
        """Apply the mutating rules and the API server's defaults.

        Raises:
            StatusError: 400 if a value has a wrong type, so that the webhook cannot decode the object; or the error of
                a rule.
        """
        schema = SCHEMAS.get(resource.plural)
        problem = find_wrong_type(schema.properties["spec"], body.get("spec"), "spec") if schema else ""
        if problem:
            raise StatusError(400, "", _DECODER + problem)
        admitted = self._run_admissions(Stage.MUTATING, resource, operation, body, old)
        return with_builtin_defaults(resource.plural, admitted)

    def validate(self, resource: Resource, prepared: Json, old: Json | None, *, status: bool = False) -> Json:
        """Check names and schema, then apply the validating rules.

        Raises:
            StatusError: 422 with all problems, or the error of a rule.
        """
        metadata = prepared["metadata"]
        problems = [*self._identity_problems(resource, metadata, old), *metadata_problems(metadata)]
        schema = SCHEMAS.get(resource.plural)
        if schema:
            problems += schema_problems(
                schema, prepared, old, broken=any(found.kind in _BLOCKING for found in problems)
            )
        elif resource.plural in _RUNTIMES:
            problems += _fraction_problems(prepared.get("spec"), "spec")
        elif not status:
            problems += _builtin_problems(resource, prepared, old)
        if problems:
            raise invalid(resource, metadata.get("name", ""), problems)
        if status:
            return prepared
        operation = Operation.UPDATE if old else Operation.CREATE
        return self._run_admissions(Stage.VALIDATING, resource, operation, prepared, old)

    def admit_deletion(self, resource: Resource, body: Json) -> None:
        """Apply the rules of both stages to a deletion."""
        for stage in Stage:
            self._run_admissions(stage, resource, Operation.DELETE, body, body)

    def _run_admissions(
        self, stage: Stage, resource: Resource, operation: Operation, new: Json, old: Json | None
    ) -> Json:
        for admission in self._admissions[stage, resource.plural]:
            new = admission(operation, new, old, self._reader)
        return new

    @staticmethod
    def _identity_problems(resource: Resource, metadata: Mapping[str, Any], old: Json | None) -> list[FieldProblem]:
        if old is None:
            prefix = metadata.get("generateName", "")
            return [
                *generate_name_problems(resource.name_rule, prefix),
                *name_problems(resource.name_rule, metadata.get("name", "")),
            ]
        known = old["metadata"].get("finalizers") or []
        added = [name for name in metadata.get("finalizers") or () if name not in known]
        if "deletionTimestamp" not in old["metadata"] or not added:
            return []
        listed = ", ".join(json.dumps(name) for name in added)
        detail = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
        )
        return [FieldProblem("metadata.finalizers", "Forbidden", detail=detail)]


def without_nulls(value: Any) -> Any:
    """Return the value without keys that are null, because a Go program ignores them."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _unrecognized_message(resource: Resource, body: Any) -> str:
    text = json.dumps(body)[:1024]
    wanted = f"the object provided is unrecognized (must be of type {resource.kind})"
    shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} ..."
    return f"{wanted}: Object 'Kind' is missing in '{text}' ({shown})"


def _wrong_kind_error(resource: Resource, body: Mapping[str, Any]) -> StatusError:
    given = body["kind"]
    if resource.custom:
        problem = FieldProblem("kind", "Invalid value", json.dumps(given), f"must be {resource.kind}")
        error = invalid(resource, (body.get("metadata") or {}).get("name", ""), [problem])
        text = error.message.replace(resource.kind, str(given), 1)
        return StatusError(error.code, error.reason, text, details={**(error.details or {}), "kind": given})
    group, _, version = str(body["apiVersion"]).rpartition("/")
    if any(known.kind == given for known in by_group_version(group, version)):
        internal = f"{(resource.group or 'core').partition('.')[0]}.{resource.kind}"
        why = f"converting ({version}.{given}) to ({internal}): unknown conversion"
    else:
        where = f'for version "{body["apiVersion"]}" in scheme "pkg/runtime/scheme.go:111"'
        why = f'no kind "{given}" is registered {where}'
    return bad_request(f'{given} in version "{version}" cannot be handled as a {resource.kind}: {why}')


def _strict_decoding_error(resource: Resource, body: Json, unknown: Sequence[str], *, patch: bool) -> StatusError:
    text = "strict decoding error: " + ", ".join(f'unknown field "{path}"' for path in unknown)
    if patch:
        problem = FieldProblem(
            "patch", "Invalid value", json.dumps(json.dumps(body, separators=(",", ":"), sort_keys=True)), text
        )
        return StatusError(422, "Invalid", f' "" is invalid: {problem}')
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {text}'
    )


def _fraction_problems(value: Any, path: str) -> Iterator[FieldProblem]:
    """Yield a problem for each fraction in a training runtime, such as `cpu: 0.5`.

    No field of a runtime accepts one: quantities are integers or strings (Trainer 2.3).
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _fraction_problems(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _fraction_problems(inner, f"{path}[{index}]")
    elif isinstance(value, float) and not value.is_integer():
        detail = f'{path} in body must be of type integer,string: "number"'
        yield FieldProblem(path, "Invalid value", '"number"', detail)


def _builtin_problems(resource: Resource, prepared: Json, old: Json | None) -> list[FieldProblem]:
    """Return the problems of an object of a built-in kind.

    Raises:
        StatusError: 400 if a field that `BUILTIN_SCHEMAS` does not contain is of a wrong type.
    """
    try:
        return builtin_problems(resource.plural, prepared, old)
    except (TypeError, AttributeError, LookupError, ValueError) as error:
        raise bad_request(f"{resource.kind} can't be handled: a field has a value of another type ({error})") from error
