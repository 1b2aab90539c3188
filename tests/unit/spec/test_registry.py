"""The field `registry` of an export with an MLflow server."""

from __future__ import annotations

import pytest

from trainjob import ExportModel, InvalidSpec, MLflowRegistry, ModelRegistry, SecretReference

URI = "https://mlflow.example.org"
EXPORT = {"workspace": "w", "destination": "s3://b/x"}
NAME_RULE = "it must be a name without / and :, and must not begin with .."
ALIAS_RULE = "it must consist of letters, digits, - and _, and not be latest or v1"
LOCATION_RULE = "MLflow accepts no path of a node and no bucket alone"


def refusal(registry, **fields):
    with pytest.raises(InvalidSpec) as refused:
        ExportModel(registry=registry, **{**EXPORT, **fields})
    return str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "tickets"},
        {"model": "Support tickets, v.2 (it's)", "alias": "champion", "secret": "mlflow"},
        {"model": "m", "alias": "v1-candidate", "secret": {"name": "s", "keys": {"MLFLOW_TRACKING_TOKEN": "token"}}},
    ],
)
def test_an_instance_and_a_dict_are_the_same(fields):
    registry = MLflowRegistry(tracking_uri=f"{URI}/", **fields)
    assert registry.tracking_uri == URI
    from_dict = ExportModel(registry={"backend": "mlflow", "tracking_uri": URI, **fields}, **EXPORT)
    assert from_dict.registry == registry == ExportModel(registry=registry, **EXPORT).registry
    assert ExportModel(**from_dict.model_dump()) == from_dict
    if isinstance(registry.secret, SecretReference):
        assert "secret" in registry.model_dump()


def test_a_dict_without_a_backend_is_a_kubeflow_registry():
    fields = {"server": "https://registry", "model": "tickets"}
    assert ExportModel(registry=fields, **EXPORT).registry == ModelRegistry(**fields)
    assert ExportModel(registry=None, **EXPORT).registry is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backend": "kubeflow"}, "backend cannot be 'kubeflow': it must be mlflow; omit it for a Kubeflow"),
        ({"backend": None}, "backend is required: it must be mlflow"),
        ({"tracking_uri": "mlflow.example.org"}, "tracking_uri cannot be 'mlflow.example.org': it must be a URI"),
        ({"tracking_uri": "databricks://p"}, "tracking_uri cannot be 'databricks://p': allowed are https://…"),
        ({"tracking_uri": "https://me:word@mlflow"}, "tracking_uri cannot be ***"),
        ({"tracking_uri": f"{URI}?a=b"}, f"tracking_uri cannot be '{URI}?a=b': it must be only the server's"),
        ({"model": " "}, f"model cannot be ' ': {NAME_RULE}"),
        ({"model": "a/b"}, f"model cannot be 'a/b': {NAME_RULE}"),
        ({"model": "a:b"}, f"model cannot be 'a:b': {NAME_RULE}"),
        ({"model": "..a"}, f"model cannot be '..a': {NAME_RULE}"),
        ({"model": "a" * 257}, "it must have at most 256 characters"),
        ({"alias": ""}, f"alias cannot be '': {ALIAS_RULE}"),
        ({"alias": "a b"}, f"alias cannot be 'a b': {ALIAS_RULE}"),
        ({"alias": "Latest"}, f"alias cannot be 'Latest': {ALIAS_RULE}"),
        ({"alias": "V12"}, f"alias cannot be 'V12': {ALIAS_RULE}"),
        ({"alias": "a" * 256}, "it must have at most 255 characters"),
        ({"version": "v1"}, "version: there is no field"),
        ({"secret": "My Secret"}, "secret cannot be ***: it must be the name of a Secret"),
        ({"access_token": "abc"}, "access_token cannot be ***: give a credential as a reference"),
    ],
)
def test_an_invalid_field(fields, message):
    registry = {"backend": "mlflow", "tracking_uri": URI, "model": "m", **fields}
    found = refusal(registry)
    assert found.startswith("registry.")
    assert message in found


def test_a_missing_field_and_a_value_of_another_type():
    assert "registry.model is required" in refusal({"backend": "mlflow", "tracking_uri": URI})
    assert "registry.tracking_uri is required" in refusal({"backend": "mlflow", "model": "m"})
    assert refusal(URI).startswith("registry")


def test_a_location_that_mlflow_refuses():
    registry = MLflowRegistry(tracking_uri=URI, model="m")
    assert LOCATION_RULE in refusal(registry, destination="s3://bucket")
    assert LOCATION_RULE in refusal(registry, destination="/workspace/export", workspace={"node_path": "/data"})
    assert ExportModel(registry=registry, **{**EXPORT, "destination": "/workspace/export"}).registry == registry
