"""Conversion of configurations to a framework's class, and the sources packed for its pod."""

from __future__ import annotations

import ast
import base64
import io
import sys
import zipfile
import zlib
from dataclasses import dataclass

import pytest

from trainjob import BuiltinTrainer, FineTune, InvalidSpec, TorchTuneConfig, TrainJob
from trainjob.frameworks.program_options import COPIER_DEPENDENCIES
from trainjob.frameworks.torchtune.framework import PROGRAM_DEPENDENCIES as TORCHTUNE_DEPENDENCIES
from trainjob.frameworks.torchtune.models import MODELS
from trainjob.frameworks.workspace_framework import PROGRAM_DEPENDENCIES
from trainjob.manifest import spec_hash
from trainjob.manifest.function import RESUME_MODULES
from trainjob.manifest.model_check import origin_program
from trainjob.manifest.program_packages import FETCH_PACKAGES, PREPARATION_PACKAGES
from trainjob.manifest.steps import export_program
from trainjob.manifest.supervision import supervision_program
from trainjob.packing import pack_sources, program_command
from trainjob.spec import FrameworkConfig
from trainjob.spec.resources import BUILTIN_MODELS

DEPENDENCIES = {
    "trainjob.frameworks.torchtune.pod": TORCHTUNE_DEPENDENCIES,
    "trainjob.frameworks.trl.pod": PROGRAM_DEPENDENCIES,
    "trainjob.frameworks.llamafactory.pod": PROGRAM_DEPENDENCIES,
    "trainjob.frameworks.unsloth.pod": (*PROGRAM_DEPENDENCIES, "trainjob.frameworks.trl.pod.rows"),
    "trainjob.frameworks.checkpoint_copies": COPIER_DEPENDENCIES,
    "trainjob.programs.fetch": FETCH_PACKAGES[1:],
}
PROGRAMS = {
    **{program: program_command(program, *dependencies) for program, dependencies in DEPENDENCIES.items()},
    "trainjob.frameworks.supervision": supervision_program("mlflow"),  # with the largest of the locks
    "trainjob.programs.export": export_program(),
    "trainjob.programs.export.origin_check": origin_program(),
}
# Packages above the programs; their own `__init__.py` would import pydantic.
PARENTS = (
    "trainjob",
    "trainjob/frameworks",
    *(f"trainjob/frameworks/{name}" for name in ("torchtune", "trl", "llamafactory", "unsloth")),
)


@dataclass
class SdkConfig:
    """Attributes of the Kubeflow SDK's class of this name."""

    epochs: int = 2
    num_nodes: int | None = None
    dataset_preprocess_config: object = None


@pytest.mark.parametrize("config", [{"framework": "torchtune", "epochs": 2}, SdkConfig(), TorchTuneConfig(epochs=2)])
def test_a_configuration_of_any_form_becomes_a_torchtune_config(config):
    assert FineTune(model="llama3.2-1b", workspace="w", config=config).config == TorchTuneConfig(epochs=2)
    assert BuiltinTrainer(config=config).config == TorchTuneConfig(epochs=2)


def test_dump_and_hash_include_the_fields_of_the_frameworks_class():
    steps = [
        FineTune(model="llama3.2-1b", workspace="w", config={"framework": "torchtune", "epochs": epochs})
        for epochs in (2, 3)
    ]
    assert [step.model_dump(exclude_defaults=True)["config"] for step in steps] == [{"epochs": 2}, {"epochs": 3}]
    assert len({spec_hash(step) for step in steps}) == 2


def test_an_error_names_the_full_path_of_the_field():
    with pytest.raises(InvalidSpec) as raised:
        FineTune(model="gpt-2", workspace="w", config={"framework": "torchtune", "epochs": 0, "epoch": 1})
    assert {problem.field for problem in raised.value.problems} == {"config.epochs", "config.epoch"}
    with pytest.raises(InvalidSpec, match=r"trainer\.config\.epochs"):
        TrainJob(trainer={"config": {"epochs": 0}}, runtime="torchtune-llama3.2-1b")


def test_the_base_class_of_configurations_is_refused():
    with pytest.raises(InvalidSpec, match="config"):
        FineTune(model="llama3.2-1b", workspace="w", config=FrameworkConfig())


def test_the_built_in_models_are_those_with_recipes():
    assert tuple(MODELS) == BUILTIN_MODELS


@pytest.mark.parametrize("program", PROGRAMS)
def test_packed_sources_import_only_packed_modules(program):
    command = PROGRAMS[program]
    assert command[4:] == [program]
    texts = read_packed(command[3])
    check_imports(texts)
    assert {f"{program.replace('.', '/')}{end}" for end in ("/__main__.py", ".py")} & texts.keys()
    assert sys.getsizeof(command[3]) < 65_536


def test_a_fetch_that_prepares_rows_packs_what_it_imports():
    command = program_command(*FETCH_PACKAGES, *PREPARATION_PACKAGES)
    texts = read_packed(command[3])
    check_imports(texts)
    assert {f"trainjob/programs/fetch/rows/{name}.py" for name in ("__init__", "prepare", "lock")} <= texts.keys()
    assert sys.getsizeof(command[3]) < 65_536


def test_packed_sources_are_always_the_same():
    names = ("trainjob.programs.fetch", "trainjob.errors")
    assert pack_sources.__wrapped__(*names) == pack_sources.__wrapped__(*names)


def test_a_function_that_resumes_gets_all_modules_that_it_may_import():
    packed = pack_sources(*RESUME_MODULES)
    texts = read_packed(packed)
    check_imports(texts)
    assert {"trainjob/frameworks/transformers/callback.py", "trainjob/checkpoint.py"} <= texts.keys()
    assert len(packed) < 22_000  # it is encoded twice, in a word of 65,536 bytes with the function


def read_packed(packed):
    with zipfile.ZipFile(io.BytesIO(zlib.decompress(base64.b64decode(packed)))) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def check_imports(texts):
    """Check that sources import only each other, and no pydantic."""
    packages = {name.removesuffix("/__init__.py") for name in texts if name.endswith("/__init__.py")}
    modules = {name.removesuffix(".py") for name in texts} | packages
    for name, text in texts.items():
        if name.removesuffix("/__init__.py") in PARENTS:
            assert text == ""
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("trainjob"):
                module = node.module.replace(".", "/")
                assert module in modules, f"{name} imports {module}"
                assert module not in packages or {f"{module}/{alias.name}" for alias in node.names} <= modules
            assert "pydantic" not in ast.unparse(node) or not isinstance(node, ast.Import | ast.ImportFrom)
