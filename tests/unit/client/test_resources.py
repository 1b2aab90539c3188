"""Tests of the paths of Kubernetes objects, and of the fields that an informer keeps of them."""

from __future__ import annotations

import pytest

from trainjob.client.resources import Resource
from trainjob.errors import InvalidSpec

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


@pytest.mark.parametrize("name", ["", " ", "../x", "A", "a/b"])
def test_an_object_has_no_path_without_a_valid_name(name):
    """With an empty name it would be the path of all objects, which a DELETE then deletes."""
    resource = Resource("trainjobs", "/apis/trainer.kubeflow.org/v1alpha1", "")
    assert resource.object_path("ml", "tune").endswith("/namespaces/ml/trainjobs/tune")
    assert resource.collection_path("ml").endswith("/namespaces/ml/trainjobs")
    with pytest.raises(InvalidSpec, match=r"name cannot be .* it must be a Kubernetes name"):
        resource.object_path("ml", name)
