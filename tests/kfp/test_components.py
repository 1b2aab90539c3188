"""What the components compile to, and that their folders hold what kubeflow/pipelines-components asks for."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from component_readme import render
from kfp import compiler, dsl

import trainjob_kfp
from trainjob_kfp import export_model, fine_tune, initialize_dataset, initialize_model, train
from trainjob_kfp.image import BASE_IMAGE
from trainjob_kfp.launcher import Outputs

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kfp" / "tickets_llm.py"
COMPONENTS = [initialize_dataset, initialize_model, fine_tune, train, export_model]
APPLIED = {"RESOURCES", "ENV", "KUBERNETES_AFFINITY", "KUBERNETES_TOLERATIONS", "KUBERNETES_NODE_SELECTOR"}


def compiled(component, folder):
    path = folder / "component.yaml"
    compiler.Compiler().compile(component, str(path))
    return path.read_text()


def folder_of(component):
    return Path(inspect.getfile(component.python_func)).parent


@pytest.fixture(params=COMPONENTS, ids=lambda component: component.python_func.__name__)
def component(request):
    return request.param


def test_it_compiles_to_a_small_component_that_installs_nothing(component, tmp_path):
    text = compiled(component, tmp_path)
    [executor] = yaml.safe_load(text)["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"] == BASE_IMAGE
    assert "pip install" not in text
    assert len(text) < 20_000


def test_what_is_set_on_the_task_is_passed_through(component, tmp_path):
    [spec] = yaml.safe_load(compiled(component, tmp_path))["components"].values()
    assert {passthrough["field"] for passthrough in spec["taskConfigPassthroughs"]} == APPLIED
    # What is for the training pods must not be asked for by the launcher's pod, too.
    assert not any(passthrough.get("applyToTask") for passthrough in spec["taskConfigPassthroughs"])


def test_every_optional_parameter_has_a_default_that_kfp_local_can_read(component):
    """`kfp.local` 2.17 fails on an integer without one, and pipelines can't pass None on at all."""
    for parameter in inspect.signature(component.python_func).parameters.values():
        if parameter.annotation is not dsl.TaskConfig:
            assert parameter.default is not None


def test_no_parameter_takes_a_credential(component):
    credentials = ("token", "password", "access_key", "credential")
    for name in inspect.signature(component.python_func).parameters:
        assert not any(word in name for word in credentials)


def test_outputs_are_the_same_everywhere(component, tmp_path):
    [spec] = yaml.safe_load(compiled(component, tmp_path))["components"].values()
    assert set(spec["outputDefinitions"]["parameters"]) == set(Outputs._fields)


def test_every_parameter_is_described(component, tmp_path):
    [spec] = yaml.safe_load(compiled(component, tmp_path))["components"].values()
    assert all(parameter.get("description") for parameter in spec["inputDefinitions"]["parameters"].values())


def test_its_folder_is_complete(component):
    folder = folder_of(component)
    assert {"__init__.py", "component.py", "metadata.yaml", "README.md", "OWNERS"} <= {
        path.name for path in folder.iterdir()
    }
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    assert list(metadata) == ["name", "stability", "dependencies", "tags", "lastVerified", "ci"]
    assert metadata["name"] == component.python_func.__name__ == folder.name
    assert metadata["dependencies"]["kubeflow"][0]["name"] == "Pipelines"


def test_its_readme_is_that_of_its_code(component):
    """Write them anew with `python tests/kfp/component_readme.py`."""
    assert (folder_of(component) / "README.md").read_text() == render(component)


def test_the_example_compiles_and_holds_the_whole_chain(tmp_path):
    out = tmp_path / "tickets_llm.yaml"
    subprocess.run([sys.executable, str(EXAMPLE), "compile", str(out)], check=True, timeout=60)
    tasks = yaml.safe_load(out.read_text())["root"]["dag"]["tasks"]
    assert tasks["fine-tune"]["dependentTasks"] == ["initialize-dataset", "initialize-model"]
    assert tasks["export-model"]["dependentTasks"] == ["fine-tune"]
    assert out.stat().st_size < 40_000


def test_another_image_can_be_named_at_compile_time():
    code = "from trainjob_kfp.image import BASE_IMAGE; print(BASE_IMAGE)"
    environment = {**os.environ, "TRAINJOB_KFP_IMAGE": "mirror.example/launcher:1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "mirror.example/launcher:1"


def test_the_launcher_does_not_need_kfp():
    code = (
        "import sys, trainjob_kfp.launcher, trainjob_kfp.steps; print([m for m in sys.modules if m.startswith('kfp')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_surface():
    assert set(trainjob_kfp.__all__) == {component.python_func.__name__ for component in COMPONENTS}
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = trainjob_kfp.nope
