"""Tests of the conversion of API responses to typed errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.client.api_errors import error_from_status, not_kubernetes_response
from trainjob.errors import AdmissionRefused, PermissionDenied, QuotaExceeded, Unauthorized

RBAC = (
    'trainjobs.trainer.kubeflow.org is forbidden: User "x" cannot create resource "trainjobs" in API group '
    '"trainer.kubeflow.org" in the namespace "ml"'
)
QUOTA = (
    'trainjobs.trainer.kubeflow.org "t" is forbidden: exceeded quota: team, requested: '
    "count/trainjobs.trainer.kubeflow.org=1, used: count/trainjobs.trainer.kubeflow.org=5, limited: "
    "count/trainjobs.trainer.kubeflow.org=5"
)
WEBHOOK = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: no such runtime'


@pytest.mark.parametrize(
    ("message", "error", "retryable"),
    [
        (RBAC, PermissionDenied, False),
        (RBAC.replace('"x"', '"system:anonymous"'), Unauthorized, True),  # no rule is missing, but credentials are
        (QUOTA, QuotaExceeded, True),
        (WEBHOOK, AdmissionRefused, False),
    ],
)
def test_a_403_has_the_error_of_its_cause(message, error, retryable):
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": message})
    found = error_from_status(403, body, {}, server="https://k", doing="create trainjobs in namespace ml")
    assert (type(found), found.retryable, found.status) == (error, retryable, 403)
    assert message in str(found)


NOT_SECONDS = ("", "soon", "-1", "1.5", "\u00b2", "Sat, 21 Nov 2099 20:00:00 GMT")


@pytest.mark.parametrize(
    ("message", "seconds"), [("1", 1.0), ("0", 0.0), ("86400", 86400.0), *((message, None) for message in NOT_SECONDS)]
)
def test_retry_after_is_read_as_seconds(message, seconds):
    found = error_from_status(
        429, "", {"Retry-After": message}, server="https://k", doing="list trainjobs in namespace ml"
    )
    assert found.retry_after == seconds


@given(body=st.binary(max_size=400))
def test_an_unknown_response_is_shown_as_one_short_line(body):
    found = not_kubernetes_response(body, doing="list trainjobs in namespace ml")
    assert not found.retryable
    assert "\n" not in found.message
    assert len(found.message) < 400
