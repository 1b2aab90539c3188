"""Labels and annotations of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from trainjob.spec.base import invalid_field
from trainjob.spec.credential_checks import check_values
from trainjob.spec.queue import check_partial_admission

_OWN_PREFIX = "trainjob.dev/"
# Annotations of this project that a program of the user's own that exports a model sets, too; see manifest.labels.
_EXPORT_KEYS = (f"{_OWN_PREFIX}model", f"{_OWN_PREFIX}exports")
_MANAGED_BY = "app.kubernetes.io/managed-by"
# Kubernetes 1.36, apimachinery/pkg/util/validation (IsQualifiedName, IsValidLabelValue)
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _validate_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    _check_keys(labels, allowed=())
    for key, value in labels.items():
        if not _LABEL_VALUE.fullmatch(value):
            rule = "a label's value has at most 63 letters, digits, -, _ and ., with a letter or digit at both ends"
            raise invalid_field(key, value, rule)
    return labels


def _validate_annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    _check_keys(annotations, allowed=_EXPORT_KEYS)
    check_partial_admission(annotations, "")
    return annotations


def _check_keys(texts: Mapping[str, str], allowed: tuple[str, ...]) -> None:
    check_values(texts)
    for key, value in texts.items():
        if not _KEY.fullmatch(key):
            raise invalid_field(key, value, "a key is a name with an optional prefix, such as example.org/team")
        if (key.startswith(_OWN_PREFIX) or key == _MANAGED_BY) and key not in allowed:
            raise invalid_field(key, value, "this key is set by trainjob itself; choose another one")


Labels = Annotated[Mapping[str, str], AfterValidator(_validate_labels)]
Annotations = Annotated[Mapping[str, str], AfterValidator(_validate_annotations)]
