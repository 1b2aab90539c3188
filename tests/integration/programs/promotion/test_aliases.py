"""The alias of a promoted version, in a real MLflow server and in a Kubeflow Model Registry made from its contract."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.support.crash_points import kill_parameters
from tests.support.promotions import ALIAS_POINTS, Promoter
from tests.support.registry_server import RegistryServer
from trainjob.programs.export.mlflow_registration import MLflowEntry, MLflowRegistration
from trainjob.programs.export.origin import Origin
from trainjob.programs.export.registration import Registration, RegistryEntry
from trainjob.programs.promotion.aliases import MLflowAlias, ModelRegistryAlias

A, B = "s3://models/tickets/a", "s3://models/tickets/b"


class KubeflowRegistry:
    """Two versions of a model, registered as an export does it; a digest's start is a name."""

    names = ("aaaaaaaaaaaa", "bbbbbbbbbbbb")

    def __init__(self, server, model, uris=(A, B)):
        self._server, self.model = server, model
        self.options = {"server": server.url, "model": model}
        self.champion = ModelRegistryAlias(server.url, model, "champion")
        for uri, letter in zip(uris, "ab", strict=True):
            Registration(RegistryEntry(server.url, model, uri), letter * 64).create({"loss": 1.5})

    def alias(self, name="champion"):
        [model] = self._server.objects["registered_model"]
        return model.get("customProperties", {}).get(name, {}).get("string_value", "")


class MLflowRegistry:
    """The same in MLflow, whose versions have numbers."""

    names = ("1", "2")

    def __init__(self, server, model, uris=(A, B)):
        self._server, self.model = server, model
        self.options = {"tracking_uri": server.url, "model": model}
        self.champion = MLflowAlias(server.url, model, "champion")
        for uri, letter in zip(uris, "ab", strict=True):
            MLflowRegistration(MLflowEntry(server.url, model, uri), letter * 64, Origin()).create({"loss": 1.5})

    def alias(self, name="champion"):
        return self._server.get_aliases(self.model).get(name, "")


@contextmanager
def open_registry(kind, get_fixture, name, uris=(A, B)):
    """Yield a registry with two versions of a model."""
    if kind == "mlflow":
        yield MLflowRegistry(get_fixture("mlflow"), f"tickets {name}'s", uris)
        return
    with RegistryServer() as server:
        yield KubeflowRegistry(server, name, uris)
        assert server.violations == []


@pytest.fixture(params=["kubeflow", "mlflow"])
def registry(request, unique):
    with open_registry(request.param, request.getfixturevalue, unique) as opened:
        yield opened


@pytest.fixture
def registered(promoter, registry) -> Promoter:
    """Return promotions that set the alias in a registry."""
    return replace(promoter, options={**promoter.options, "registry": registry.options})


def test_the_alias_follows_the_served_model(registered, registry, served):
    for model, version in ((A, registry.names[0]), (B, registry.names[1])):
        registered.result("promote", f"of-{version}", model=model)
        assert (served(), registry.alias()) == (model, version)
        assert registry.champion.find_uri() == model
    registered.result("rollback", "undo", any_run=True)
    assert (served(), registry.alias()) == (A, registry.names[0])
    registered.result("rollback", "undo-the-first", any_run=True)
    assert (served(), registry.alias()) == ("", "")
    assert registry.champion.find_uri() == ""


def test_other_aliases_stay(registered, registry):
    registered.result("promote", "monday", model=A, alias="staging")
    registered.result("promote", "tuesday", model=B)
    assert (registry.alias("staging"), registry.alias()) == registry.names


def test_a_model_that_fails_gets_no_alias(registered, registry, served):
    registered.result("promote", "monday", model=A)
    code, output = registered.run("promote", "tuesday", model=f"{B}bad", version=registry.names[1])
    assert code == 1, output
    assert (served(), registry.alias()) == (A, registry.names[0])


def test_a_model_without_a_version_is_refused_before_anything_changes(registered, registry, served):
    registered.result("promote", "monday", model=A)
    code, output = registered.run("promote", "tuesday", model="s3://models/tickets/c")
    assert code == 1
    assert f"the registry has no version of {registry.model} with the address s3://models/tickets/c" in output
    assert (served(), registry.alias()) == (A, registry.names[0])


def test_a_rollback_without_the_registry_is_refused(registered, registry, promoter, served):
    registered.result("promote", "monday", model=A)
    code, output = promoter.run("rollback", "undo", any_run=True)
    assert code == 1
    assert "has set an alias in a registry\n  -> give the registry and the alias of that promotion" in output
    assert (served(), registry.alias()) == (A, registry.names[0])


def test_the_alias_alone(registered, registry):
    options = {**registered.options, "kind": "Registry", "command": []}
    alone = replace(registered, options=options)
    assert alone.result("promote", "monday", model=A)["promoted"] is True
    assert alone.result("promote", "tuesday", model=B)["before"] == A
    assert registry.alias() == registry.names[1]
    alone.result("rollback", "undo", run="run-of-tuesday")
    assert registry.alias() == registry.names[0]


@pytest.mark.parametrize("point", kill_parameters(ALIAS_POINTS))
def test_a_kill_leaves_no_half_of_a_promotion(registered, registry, served, point):
    registered.result("promote", "monday", model=A)
    for key, end in (("tuesday", "promote"), ("wednesday", "rollback")):
        code, output = registered.run("promote", key, model=B, killed_at=point)
        assert code == -signal.SIGKILL, output
        if end == "promote":
            registered.result("promote", key, model=B)
            assert (served(), registry.alias()) == (B, registry.names[1])
            registered.result("rollback", f"undo-{key}", run=f"run-of-{key}")
        else:
            registered.result("rollback", f"undo-{key}", run=f"run-of-{key}")
        assert (served(), registry.alias()) == (A, registry.names[0])


def test_a_registry_that_refuses_keeps_the_model_before(registered, registry, served, refusing_url):
    registered.result("promote", "monday", model=A)
    address = {name: refusing_url for name in ("server", "tracking_uri") if name in registry.options}
    code, output = registered.run(
        "promote", "tuesday", model=B, version=registry.names[1], registry={**registry.options, **address}
    )
    assert code == 1
    assert f"{B} was not promoted: {refusing_url}: no response" in output
    assert (served(), registry.alias()) == (A, registry.names[0])
