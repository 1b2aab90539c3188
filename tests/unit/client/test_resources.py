"""Tests of the fields that an informer keeps of an object."""

from __future__ import annotations

import pytest

from trainjob.client.resources import Resource

SPEC = {
    "restartPolicy": "Never",
    "nodeName": "n",
    "trainer": {"numNodes": 2, "image": "x"},
    "containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}}, {"name": "b"}, None],
}


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ((), SPEC),
        (("restartPolicy", "missing"), {"restartPolicy": "Never"}),
        (("trainer.numNodes",), {"trainer": {"numNodes": 2}}),
        (("containers.resources",), {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}, {}]}),
    ],
)
def test_an_informer_keeps_only_the_named_fields_of_the_spec(fields, kept):
    resource = Resource("pods", "/api/v1", "", kept_spec_fields=fields)
    found = resource.without_unused_fields({"metadata": {"name": "p", "managedFields": [1]}, "spec": SPEC})
    assert found == {"metadata": {"name": "p"}, "spec": kept}
