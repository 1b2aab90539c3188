"""Tests of the comparison of two clusters by their addresses and certificate authorities."""

from __future__ import annotations

import pytest

from trainjob.client import ClusterIdentity

OUTSIDE, INSIDE = "https://lb:6443", "https://10.96.0.1:443"


@pytest.mark.parametrize(
    ("one", "other", "may_differ", "differs"),
    [
        ((OUTSIDE, ("a",)), (OUTSIDE, ("a",)), False, False),
        ((OUTSIDE, ("a",)), (INSIDE, ("a",)), False, False),
        ((OUTSIDE, ("a",)), (INSIDE, ("a", "b")), False, False),  # the authority is being replaced
        ((OUTSIDE, ("a",)), (INSIDE, ("b",)), True, True),
        ((INSIDE, ("a",)), (INSIDE, ("b",)), True, False),  # pods of two clusters, or a replaced authority
        ((OUTSIDE, ()), (OUTSIDE, ("a",)), False, False),
        ((OUTSIDE, ()), (INSIDE, ("a",)), True, False),
        ((OUTSIDE, ()), (OUTSIDE, ()), False, False),
    ],
)
def test_the_authorities_decide_and_else_the_addresses(one, other, may_differ, differs):
    first, second = ClusterIdentity(*one), ClusterIdentity(*other)
    assert (first.may_differ(second), second.may_differ(first)) == (may_differ, may_differ)
    assert (first.differs(second), second.differs(first)) == (differs, differs)


@pytest.mark.parametrize("values", [None, {}, [], {"server": 1}, {"authorities": ["a"]}])
def test_values_without_an_address_are_no_identity(values):
    assert ClusterIdentity.from_dict(values) is None


def test_an_identity_is_read_from_the_values_of_another_version():
    assert ClusterIdentity.from_dict({"server": OUTSIDE, "new": 1}) == ClusterIdentity(OUTSIDE)
    identity = ClusterIdentity(OUTSIDE, ("a",))
    assert ClusterIdentity.from_dict({**identity.to_dict(), "new": 1}) == identity
