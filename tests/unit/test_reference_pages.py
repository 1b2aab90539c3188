"""Tests that the reference pages fit the code: errors, commands, labels and annotations, environment variables."""

from __future__ import annotations

import ast
import pkgutil
import re
import zlib
from pathlib import Path

import pytest
import yaml

import trainjob.errors
from tools.docs import check_reference
from tools.parameters import fields, write
from tools.reference import commands, errors
from trainjob.errors import TrainJobError
from trainjob.manifest import labels
from trainjob.spec.base import Spec
from trainjob.spec.queue import PRIORITY_LABEL, QUEUE_LABEL
from trainjob.status.failed_mark import FAILED_MARK
from trainjob_local.kubelet.kubelet import FAULT_ANNOTATION

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
SOURCES = [
    path
    for folder in ("core", "laptop", "migrate", "demo", "providers/airflow", "components/kfp")
    for path in sorted((ROOT / folder / "src").rglob("*.py"))
]
# Text before a variable's name in a lookup: `os.environ["NAME"]`, `variables.get("NAME")`.
LOOKUP = re.compile(r'\b(?:environ|env|environment|variables)(?:\.(?:get|setdefault|pop)\(|\[)\s*"([A-Z][A-Z0-9_]+)"')
TEST_FOR_MEMBER = re.compile(r'"([A-Z][A-Z0-9_]+)" (?:not )?in (?:os\.)?(?:environ|variables|environment)\b')
VARIABLE_CONSTANT = re.compile(r'^_?[A-Z_]+_VARIABLE = "([A-Z][A-Z0-9_]+)"', re.MULTILINE)
OWN_KEY = re.compile(r"\b(?:[a-z]+\.)?trainjob\.dev/[a-z-]+")


@pytest.mark.parametrize("generator", [errors, commands])
def test_a_generated_page_is_up_to_date(generator):
    """`make reference` writes the pages."""
    assert generator.PAGE.read_text("utf-8") == generator.render_page()


def test_the_operators_components_and_parameters_are_those_of_the_steps():
    """`make reference` writes them."""
    stale = [str(path) for path, text in write.render_files().items() if (ROOT / path).read_text("utf-8") != text]
    assert not stale


def test_the_names_of_the_glossary_exist():
    names = re.findall(r"`(trainjob(?:_local)?(?:\.\w+)+)`", (REFERENCE / "glossary.md").read_text("utf-8"))
    assert len(names) > 40
    assert [name for name in names if not exists(name)] == []


def exists(name):
    """Return whether a module, its attribute, or a field of its class has a name."""
    owner, _, last = name.rpartition(".")
    try:
        found = pkgutil.resolve_name(owner)
        return hasattr(found, last) or last in getattr(found, "model_fields", {}) or bool(pkgutil.resolve_name(name))
    except (AttributeError, ImportError):
        return False


def test_a_field_that_its_class_does_not_describe_is_an_error():
    class Described(Spec):
        """A class.

        Attributes:
            first: a text
                in two lines.
        """

        first: str = "a"

    class Undescribed(Described):
        """A class with a field that nobody described."""

        second: int | None = None

    [field] = fields.list_fields(Described)
    assert (field.name, field.kind, field.full_description) == ("first", "text", "a text in two lines; by default `a`.")
    with pytest.raises(ValueError, match="the docstring of Undescribed does not describe second"):
        fields.list_fields(Undescribed)


def test_each_error_has_a_cause_and_a_remedy(monkeypatch):
    class NewError(TrainJobError):
        """Something that happened."""

    monkeypatch.setattr(errors, "_GROUPS", {"New": (NewError,)})
    with pytest.raises(ValueError, match="the docstring of NewError has no Cause, no Remedy"):
        errors.render_page()


def test_each_public_error_is_on_the_page():
    listed = {error for group in errors._GROUPS.values() for error in group}
    public = {getattr(trainjob.errors, name) for name in trainjob.errors.__all__}
    kinds = {each for each in public if isinstance(each, type) and issubclass(each, TrainJobError)}
    assert kinds - {TrainJobError} <= listed


def read_page(name):
    return (REFERENCE / name).read_text("utf-8")


def test_each_label_and_annotation_is_on_the_page():
    page = read_page("annotations.md")
    constants = [
        value for value in vars(labels).values() if isinstance(value, str) and value.startswith(f"{labels.PREFIX}/")
    ]
    assert len(constants) > 15
    for name in (*constants, *labels.MANAGED_BY, QUEUE_LABEL, PRIORITY_LABEL, FAILED_MARK, FAULT_ANNOTATION):
        assert f"`{name}" in page, name


def test_each_key_of_this_project_in_sources_and_manifests_is_on_the_page():
    page = read_page("annotations.md")
    paths = [*SOURCES, *(ROOT / "manifests").rglob("*.yaml")]
    found = {name for path in paths for name in OWN_KEY.findall(path.read_text("utf-8"))}
    found.discard("trainjob.dev/local-directory")  # the provisioner of a laptop cluster's volumes
    assert {name for name in found if f"`{name}" not in page} == set()


def test_the_page_has_no_key_that_the_code_does_not_have():
    text = "\n".join(path.read_text("utf-8") for path in [*SOURCES, *(ROOT / "manifests").rglob("*.yaml")])
    known = {value for value in vars(labels).values() if isinstance(value, str)}
    assert {name for name in OWN_KEY.findall(read_page("annotations.md")) if name not in text} <= known


def list_variables(text):
    """Return the environment variables that a source reads, and those that constants name."""
    found = {*LOOKUP.findall(text), *TEST_FOR_MEMBER.findall(text), *VARIABLE_CONSTANT.findall(text)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and re.fullmatch(
            r"_?(?:[A-Z_]+_)?(?:ENV|ENVIRONMENT|KEYS)", ast.unparse(node.targets[0])
        ):
            found |= {
                each.value
                for each in ast.walk(node.value)
                if isinstance(each, ast.Constant) and re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", str(each.value))
            }
    return found


def test_the_variables_of_a_source_are_found():
    lookups = ['A = os.environ["ONE"]', 'TWO_VARIABLE = "TWO"', 'b = variables.get("THREE")', '"FIVE" in os.environ']
    assert list_variables("\n".join([*lookups, '_ENV = {"FO_UR": "1"}'])) == {"ONE", "TWO", "THREE", "FO_UR", "FIVE"}


def test_each_environment_variable_is_on_the_page():
    page = set(re.findall(r"`([A-Z][A-Z0-9_a-z]+)(?:=\w+)?`", read_page("environment-variables.md")))
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in list_variables(path.read_text("utf-8"))
        if name not in page
    }
    assert missing == set()


def granted_permissions(manifest):
    """Return the resources and verbs that the Roles in a folder of manifests/ grant."""
    documents = [
        document
        for path in sorted((ROOT / "manifests" / manifest).glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text("utf-8"))
    ]
    return {
        (resource, verb)
        for document in documents
        if document["kind"] in ("Role", "ClusterRole")
        for rule in document["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def listed_permissions(text):
    """Return the resources and verbs in texts such as "`pods`: list, watch"."""
    found = re.findall(r"`([a-z/]+)`(?: \((?:Kueue|Argo)\))?: ([a-z]+(?:, (?!for )[a-z]+)*)", text)
    return {(resource, verb) for resource, verbs in found for verb in verbs.split(", ")}


def test_the_permissions_are_those_of_the_manifests():
    page = read_page("permissions.md")
    role, rest = page.split("## Additional permissions")
    assert listed_permissions(role) == granted_permissions("steps")
    rows = dict(re.findall(r"^\| `(\w+)` \| (`[^|]*) \|", rest.split("## Subjects")[0], re.MULTILINE))
    assert set(rows) == {"airflow", "kfp", "person", "code", "dev", "promotion", "cluster"}
    for manifest, text in rows.items():
        assert listed_permissions(text) == granted_permissions(manifest), manifest


def test_public_names_are_read_without_an_import():
    names = check_reference.list_public_names()
    assert {
        "trainjob.submit",
        "trainjob.errors.Interrupted",
        "trainjob_airflow.Workspace",
        "trainjob_kfp.train",
    } <= names
    with pytest.raises(ValueError, match="__all__"):
        check_reference.read_public_names("import os\n")


def test_the_names_of_an_inventory_are_read():
    entries = zlib.compress(
        b"trainjob.submit py:function 1 reference/#$ -\ntrainjob.wait py:function 1 reference/#$ -\n"
    )
    header = b"# Sphinx inventory version 2\n# Project: x\n# Version: 0\n# compressed with zlib\n"
    assert check_reference.read_inventory(header + entries) == {"trainjob.submit", "trainjob.wait"}
