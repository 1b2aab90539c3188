"""A resource's name is sent as it was given, except for the short names of the SDK."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.spec.resources import resolve_resource_name

SHORT = {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage", "cpu": "cpu", "memory": "memory"}
DOMAINS = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z]{2,5}){1,2}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?", fullmatch=True)


@given(
    st.builds("{}/{}".format, DOMAINS, NAMES)
    | st.builds("hugepages-{}{}".format, st.integers(1, 999), st.sampled_from(["Ki", "Mi", "Gi"]))
)
def test_a_valid_name_is_unchanged(name):
    assert resolve_resource_name(name) == name


@pytest.mark.parametrize("name", SHORT)
def test_a_short_name_may_have_any_case(name):
    assert {resolve_resource_name(each) for each in (name, name.upper(), name.title())} == {SHORT[name]}


def test_a_slice_of_a_gpu_is_a_resource_of_nvidia():
    assert resolve_resource_name("MIG-1g.5gb") == "nvidia.com/mig-1g.5gb"
