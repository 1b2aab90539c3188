"""Which of our errors an API server's answer is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.client.api_errors import error_from_status, not_kubernetes_response
from trainjob.errors import AdmissionRefused, PermissionDenied, QuotaExceeded

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
    ("said", "error", "retryable"),
    [(RBAC, PermissionDenied, False), (QUOTA, QuotaExceeded, True), (WEBHOOK, AdmissionRefused, False)],
)
def test_three_ways_to_be_forbidden(said, error, retryable):
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": said})
    found = error_from_status(403, body, {}, server="https://k", doing="create trainjobs in namespace ml")
    assert (type(found), found.retryable, found.status) == (error, retryable, 403)
    assert said in str(found)


NO_NUMBERS = ("", "soon", "-1", "1.5", "\u00b2", "Sat, 21 Nov 2099 20:00:00 GMT")


@pytest.mark.parametrize(
    ("said", "seconds"), [("1", 1.0), ("0", 0.0), ("86400", 86400.0), *((said, None) for said in NO_NUMBERS)]
)
def test_when_to_ask_again(said, seconds):
    found = error_from_status(
        429, "", {"Retry-After": said}, server="https://k", doing="list trainjobs in namespace ml"
    )
    assert found.retry_after == seconds


@given(body=st.binary(max_size=400))
def test_what_is_not_understood_is_shown_shortly(body):
    found = not_kubernetes_response(body, doing="list trainjobs in namespace ml")
    assert not found.retryable
    assert "\n" not in found.message
    assert len(found.message) < 400
