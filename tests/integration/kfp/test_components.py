"""Tests of the compiled components, and of their folders, which follow the rules of kubeflow/pipelines-components."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from docstring_parser import parse
from google.protobuf import json_format
from kfp import components, dsl
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineSpec

import trainjob_kfp
from tests.integration.kfp import golden
from trainjob_kfp.image import BASE_IMAGE
from trainjob_kfp.outputs import Outputs

APPLIED_TASK_CONFIG = {
    "RESOURCES",
    "ENV",
    "KUBERNETES_AFFINITY",
    "KUBERNETES_TOLERATIONS",
    "KUBERNETES_NODE_SELECTOR",
    "KUBERNETES_VOLUMES",
}
CATEGORIES = {"data_processing", "training", "evaluation", "deployment"}
WITH_A_JOB = pytest.mark.parametrize(
    "component", [name for name in trainjob_kfp.__all__ if name != "cleanup"], indirect=True
)


def test_dir_and_version_of_the_package():
    assert set(dir(trainjob_kfp)) == {*trainjob_kfp.__all__, "source", "__version__"}
    assert trainjob_kfp.__version__ == version("kfp-trainjob")


@pytest.fixture(params=trainjob_kfp.__all__)
def component(request):
    return getattr(trainjob_kfp, request.param)


@pytest.fixture
def compiled_component(component):
    return yaml.safe_load(golden.compile_to_yaml(component))


@pytest.fixture
def component_spec(component, compiled_component):
    [spec] = [spec for spec in compiled_component["components"].values() if "executorLabel" in spec]
    return spec


def component_folder(component):
    return Path(inspect.getfile(component.python_func)).parent


def parameters(component):
    return inspect.signature(component.python_func).parameters.values()


def test_a_compiled_component_installs_nothing(compiled_component):
    [executor] = compiled_component["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"] == BASE_IMAGE
    *start_command, _source = executor["container"]["command"]
    assert "pip install" not in str(start_command)


@pytest.mark.parametrize("name", golden.load_components())
def test_the_compiled_yaml_is_unchanged(name):
    """The golden files are up to date; golden.py writes them. A difference changes cache keys."""
    text = golden.compile_to_yaml(golden.load_components()[name])
    print(f"\n{name}: {len(text):,} bytes of YAML")
    assert text == (golden.FOLDER / f"{name}.yaml").read_text("utf-8")


@pytest.mark.parametrize("name", golden.load_components())
def test_the_compiled_yaml_is_valid(name):
    text = golden.compile_to_yaml(golden.load_components()[name])
    loaded = yaml.safe_load(text)
    spec = json_format.ParseDict(loaded, PipelineSpec())
    executors = loaded["deploymentSpec"]["executors"]
    labels = {component.executor_label for component in spec.components.values() if component.executor_label}
    assert labels == set(executors)
    assert all(executor["container"]["command"] for executor in executors.values())
    assert set(components.load_component_from_text(text).pipeline_spec.components) == set(spec.components)


@WITH_A_JOB
def test_settings_of_the_task_are_passed_to_the_component(component_spec):
    assert {passthrough["field"] for passthrough in component_spec["taskConfigPassthroughs"]} == APPLIED_TASK_CONFIG
    # The launcher's pod must not request the resources of the training pods, too.
    assert not any(passthrough.get("applyToTask") for passthrough in component_spec["taskConfigPassthroughs"])


def test_every_optional_parameter_has_a_default_that_kfp_local_can_read(component):
    """`kfp.local` 2.17 fails on an integer without a default, and a pipeline cannot pass None."""
    for parameter in parameters(component):
        if parameter.annotation not in (dsl.TaskConfig, dsl.Input[dsl.Dataset]):
            assert parameter.default is not None


def test_no_parameter_accepts_a_credential(component):
    credentials = ("token", "password", "access_key", "credential")
    for parameter in parameters(component):
        assert not any(word in parameter.name for word in credentials)


@WITH_A_JOB
def test_all_components_have_the_common_outputs(component_spec):
    assert set(component_spec["outputDefinitions"]["parameters"]) >= set(Outputs._fields)


def test_every_parameter_is_described(component, component_spec):
    described = {entry.arg_name for entry in parse(inspect.getdoc(component.python_func)).params}
    assert described == {parameter.name for parameter in parameters(component)}
    assert all(parameter.get("description") for parameter in component_spec["inputDefinitions"]["parameters"].values())


def test_the_component_folder_is_complete(component):
    folder = component_folder(component)
    assert folder.parent.name in CATEGORIES
    assert {"__init__.py", "component.py", "metadata.yaml", "README.md", "OWNERS"} <= {
        path.name for path in folder.iterdir()
    }
    assert "approvers" in yaml.safe_load((folder / "OWNERS").read_text())


def test_the_component_metadata_is_valid(component):
    folder = component_folder(component)
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    assert list(metadata) == ["name", "stability", "dependencies", "tags", "lastVerified", "ci"]
    assert metadata["name"] == component.python_func.__name__ == folder.name
    assert metadata["stability"] in ("experimental", "alpha", "beta", "stable")
    dependencies = metadata["dependencies"]["kubeflow"]
    assert [dependency["name"] for dependency in dependencies] == ["Pipelines", "Trainer"]
    # The check of kubeflow/pipelines-components wants three numbers.
    assert all(re.fullmatch(r">=\d+\.\d+\.\d+", dependency["version"]) for dependency in dependencies)


def test_the_module_imports_only_standard_library_kfp_and_this_package(component):
    """Other imports are inside the function, where the launcher's image has them."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(component.python_func)))
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in imported}
    assert tops <= {*sys.stdlib_module_names, "kfp", "trainjob_kfp"}


def test_the_example_in_the_readme_compiles(component):
    [example] = re.findall(
        r"```python\n(.+?)```", (component_folder(component) / "README.md").read_text("utf-8"), re.DOTALL
    )
    names = {}
    exec(compile(example, "README.md", "exec", dont_inherit=True), names)  # noqa: S102 - the README's own code
    assert component.python_func.__name__.replace("_", "-") in golden.compile_to_yaml(names["example"])


def test_the_example_has_the_whole_chain():
    tasks = yaml.safe_load(golden.compile_to_yaml(golden.load_components()["tickets_llm"]))["root"]["dag"]["tasks"]
    assert tasks["fine-tune"]["dependentTasks"] == ["initialize-dataset", "initialize-model"]
    assert tasks["export-model"]["dependentTasks"] == ["fine-tune"]


def run_python(code, **environment):
    """Return the output of a program in a new interpreter."""
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_environment_variable_selects_the_image_at_compile_time():
    code = "from trainjob_kfp.image import BASE_IMAGE; print(BASE_IMAGE)"
    assert run_python(code, TRAINJOB_KFP_IMAGE="mirror.example/launcher:1") == "mirror.example/launcher:1"


@pytest.mark.parametrize("source", ["image", "configmap"])
def test_writing_a_pipeline_loads_no_kubernetes_and_no_pydantic(source):
    """kfp itself may load both; this test compares the modules before and after the import of the components."""
    code = (
        "import sys, kfp, kfp.dsl; before = set(sys.modules)\n"
        "import trainjob_kfp; trainjob_kfp.fine_tune, trainjob_kfp.export_model\n"
        "print([name for name in set(sys.modules) - before if name.partition('.')[0] in ('kubernetes', 'pydantic')])"
    )
    assert run_python(code, TRAINJOB_KFP_CODE=source) == "[]"


def test_the_launcher_does_not_need_kfp():
    code = (
        "import sys, trainjob_kfp.launcher, trainjob_kfp.steps; print([m for m in sys.modules if m.startswith('kfp')])"
    )
    assert run_python(code) == "[]"


def test_all_lists_the_components_and_other_names_raise_an_attribute_error():
    assert trainjob_kfp.__all__ == sorted(trainjob_kfp.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = trainjob_kfp.nope
