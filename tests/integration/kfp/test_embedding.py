"""Tests of components with embedded sources: which sources, reproducible bytes, and runs without our packages."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tokenize
from io import StringIO
from pathlib import Path

import pytest

import trainjob
import trainjob_kfp
from tests.support.component_runs import LAUNCHER, load_containers, run_component
from trainjob.errors import InvalidSpec
from trainjob.frameworks.trl.argument_table import TRL_VERSIONS
from trainjob.minify import minify
from trainjob.status import Phase, derive_verdict
from trainjob_kfp import embedding, packaging
from trainjob_kfp.unused_code import remove_unused_code

HERE = Path(__file__).resolve().parent
MAX_ARGUMENT_BYTES = 131_072  # bytes; MAX_ARG_STRLEN of Linux, and Argo 4.0's MaxEnvVarLen for the template in a pod
SOURCES = [
    path
    for package in (trainjob, trainjob_kfp)
    for path in sorted(Path(package.__file__).parent.rglob("*.py"))
    if path.parent.name not in ("local", "cli")
]
EMBED_ENVIRONMENT = {"TRAINJOB_KFP_EMBED": "true", "TRAINJOB_KFP_IMAGE": "python-with-kfp"}


def compile_all(folder, **environment):
    """Run golden.py in a new interpreter, and return the texts that it wrote, by name."""
    environment = {**os.environ, **environment}
    subprocess.run([sys.executable, HERE / "golden.py", folder], env=environment, check=True, timeout=120)
    return {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.yaml"))}


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    return compile_all(tmp_path_factory.mktemp("embedded"), **EMBED_ENVIRONMENT, PYTHONHASHSEED="1")


def packed_text(container):
    return re.search(r'^_unpack\("(.+)"\)$', container["command"][-1], re.MULTILINE)[1]


class DocstringStripper(ast.NodeTransformer):
    """Remover of docstrings and annotations in a syntax tree, as `minify` does in the text."""

    def visit(self, node):
        self.generic_visit(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [child for child in node.body if not self.is_removable(child)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return node

    def is_removable(self, node):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return text or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-3:]))
def test_minify_does_not_change_the_program(path):
    text = path.read_text("utf-8")
    minified = minify(text)
    assert ast.dump(ast.parse(minified)) == ast.dump(DocstringStripper().visit(ast.parse(text)))
    assert not [
        token for token in tokenize.generate_tokens(StringIO(minified).readline) if token.type == tokenize.COMMENT
    ]


def test_minify_keeps_comment_like_lines_inside_strings():
    text = (
        'TEXT = """\n# not a comment\n\n"""\n\n\n'
        'def f(a: "int" = 1, *, ü: str = "ä") -> "x":  # gone\n    """Gone."""\n'
    )
    assert minify(text) == ('TEXT = """\n# not a comment\n\n"""\ndef f(a = 1, *, ü = "ä") :\n    pass\n')


def test_only_the_modules_that_a_launcher_needs_are_embedded():
    sources = embedding.collect_sources(trainjob_kfp.train.python_func)
    assert {"trainjob_kfp/launcher.py", "trainjob/lifecycle/submission.py", "trainjob/errors.py"} <= set(sources)
    left_out = (
        "trainjob_local/",
        "trainjob/cli/",
        "trainjob/programs/export/",
        "trainjob/lifecycle/external",
        "trainjob/frameworks/torchtune/recipes",
        "trainjob_kfp/comp",
    )
    assert not [path for path in sources if path.startswith(left_out)]
    assert "external" not in sources["trainjob/lifecycle/__init__.py"]


def test_sources_that_a_step_sends_or_imports_by_name_are_embedded():
    exported = embedding.collect_sources(trainjob_kfp.export_model.python_func)
    assert {"trainjob/programs/export/__main__.py", "trainjob/programs/export/__init__.py"} <= set(exported)
    tuned = embedding.collect_sources(trainjob_kfp.fine_tune.python_func)
    torchtune = "trainjob/frameworks/torchtune"
    assert {f"{torchtune}/framework.py", f"{torchtune}/recipes.py", f"{torchtune}/pod/__main__.py"} <= set(tuned)
    taught = embedding.collect_sources(trainjob_kfp.fine_tune_trl.python_func)
    trl = "trainjob/frameworks/trl"
    assert {f"{trl}/framework.py", f"{trl}/pod/__main__.py"} <= set(taught)
    versions = {f"v{version.replace('.', '_')}" for version in TRL_VERSIONS}
    assert {f"{trl}/argument_tables/{version}.py" for version in versions} <= set(taught)
    assert {f"{trl}/pod/lock_{version.removeprefix('v')}.py" for version in versions} <= set(taught)


def test_a_component_has_no_source_of_the_other_framework():
    """The log parser of the other framework is the exception: any TrainJob may be followed."""
    for name, other in (("fine_tune", "trl"), ("fine_tune_trl", "torchtune")):
        found = embedding.collect_sources(getattr(trainjob_kfp, name).python_func)
        below = [path for path in found if path.startswith(f"trainjob/frameworks/{other}/")]
        assert sorted(below) == [f"trainjob/frameworks/{other}/{file}" for file in ("__init__.py", "log_parser.py")]


def test_the_docstring_of_a_component_is_not_embedded_twice(embedded):
    text = embedded["fine_tune_trl"]
    [container] = load_containers(text)
    program = container["command"][-1]
    assert "Method of TRL" in text
    assert "Method of TRL" not in program
    names = [node.name for node in ast.parse(program).body if isinstance(node, ast.FunctionDef)]
    assert names == ["_unpack", "fine_tune_trl"]


def test_a_function_without_a_docstring_is_unchanged():
    text = "import kfp\n\ndef component(a: int):\n    return a\n"
    assert embedding.remove_docstring(text) == text
    only_a_text = 'def component():\n    """Text."""\n'
    assert embedding.remove_docstring(only_a_text) == only_a_text


def test_an_import_of_a_missing_module_raises_an_error():
    def component():
        from trainjob.lifecycle import nothing_of_this_name  # noqa: F401 - there is none

    with pytest.raises(ImportError, match="nothing_of_this_name"):
        embedding.build_unpacking_program(component)


def test_code_that_nothing_uses_is_left_out():
    sources = {
        "a.py": "from b import used, unused\ndef call():\n    return used()\ndef lost():\n    return unused()\n",
        "b.py": (
            "import functools\n@property\ndef unused():\n    pass\n@functools.cache\ndef cached():\n    pass\n"
            "class Lost:\n    def member(self):\n        pass\n"
            "class Kept:\n    a = 1\n    def gone(self):\n        pass\n"
            "class Task(Base):\n    def run(self):\n        pass\ndef used():\n    return Kept.a, 'by_name'\n"
            "def by_name():\n    pass\n"
        ),
        "sent.py": "def whole():\n    pass\n",
    }
    assert remove_unused_code(sources, "call()", {"sent.py"}) == {
        "a.py": "from b import used\ndef call():\n    return used()\n",
        "b.py": (
            "import functools\n@functools.cache\ndef cached():\n    pass\nclass Kept:\n    a = 1\n"
            "class Task(Base):\n    def run(self):\n        pass\ndef used():\n    return Kept.a, 'by_name'\n"
            "def by_name():\n    pass\n"
        ),
        "sent.py": "def whole():\n    pass\n",
    }


@pytest.mark.parametrize("name", ["export_model", "fine_tune_trl", "train"])
def test_all_embedded_modules_can_be_imported(name, tmp_path):
    """No module imports a name that was left out."""
    sources = embedding.collect_sources(getattr(trainjob_kfp, name).python_func)
    for path, text in sources.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    modules = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in sorted(sources)]
    # What only runs in the training's image needs packages that the launcher does not have.
    programs = (
        "trainjob.programs.",
        "trainjob.frameworks.torchtune.pod.",
        "trainjob.frameworks.trl.pod.",
        "transformers",
    )
    imports = "\n".join(f"import {module}" for module in modules if not any(part in module for part in programs))
    done = subprocess.run(
        [LAUNCHER / "bin" / "python", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{imports}"],
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.slow
def test_the_same_sources_result_in_the_same_bytes(embedded, tmp_path):
    """The embedded bytes do not depend on the hash seed, because a component's command is part of the cache key."""
    assert compile_all(tmp_path, **EMBED_ENVIRONMENT, PYTHONHASHSEED="2") == embedded


def test_embedded_commands_are_shorter_than_the_longest_argument(embedded):
    for name, text in embedded.items():
        plain = (HERE / "golden" / f"{name}.yaml").stat().st_size
        packed = [len(packed_text(container)) for container in load_containers(text)]
        print(f"{name}: {plain:,} bytes of YAML, embedded {len(text):,}; packed sources {packed}")
        for container in load_containers(text):
            assert all(len(word.encode()) < MAX_ARGUMENT_BYTES for word in (*container["command"], *container["args"]))


def test_the_sizes_on_the_page_are_those_of_the_components(embedded):
    page = (HERE.parents[2] / "docs" / "reference" / "components.md").read_text("utf-8")
    [yaml_sizes] = re.findall(r"sources of this project in their YAML, (\d+) to (\d+) kB", page)
    [command_sizes] = re.findall(r"the command of a step has (\d+) to (\d+) kB", page)
    components = {name: text for name, text in embedded.items() if len(load_containers(text)) == 1}
    assert len(components) > 5
    for text in components.values():
        [container] = load_containers(text)
        assert int(yaml_sizes[0]) <= round(len(text) / 1000) <= int(yaml_sizes[1])
        assert int(command_sizes[0]) <= round(sum(map(len, container["command"])) / 1000) <= int(command_sizes[1])


def test_packed_sources_have_no_characters_that_yaml_or_templates_change(embedded):
    """YAML's quotes, `{{...}}`, $(NAME), and characters that Go's JSON escapes do not occur."""
    for text in embedded.values():
        for container in load_containers(text):
            assert not set(packed_text(container)) & set("${}<>&\"'\\ \n\t")


def test_without_an_image_the_python_image_installs_the_cores_requirements():
    code = (
        "import json, trainjob_kfp; container = trainjob_kfp.train.component_spec.implementation.container;"
        "print(json.dumps([container.image, container.command]))"
    )
    environment = {**os.environ, "TRAINJOB_KFP_EMBED": "true", "TRAINJOB_KFP_IMAGE": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True, timeout=60)
    image, command = json.loads(done.stdout)
    assert image == "python:3.12-slim"
    assert command[:2] == ["sh", "-c"]
    assert re.search(r"pip install .*'kfp==2\.\d+\.\d+' '--no-deps'", command[2])
    assert re.search(r"'kubernetes[<>=,\d]+' 'pydantic[<>=.\d]+' 'pyyaml[<>=.\d]+'", command[2])
    assert "trainjob" not in command[2]


def test_a_value_other_than_true_or_false_is_refused(monkeypatch):
    monkeypatch.setenv("TRAINJOB_KFP_EMBED", "maybe")
    with pytest.raises(InvalidSpec, match="TRAINJOB_KFP_EMBED"):
        packaging.trainjob_component(trainjob_kfp.train.python_func)


@pytest.mark.timeout(120)
def test_an_embedded_component_sends_the_program_of_its_framework(embedded, laptop, tmp_path, unique):
    """The program in the pod refuses a workspace without a model.

    The launcher refuses an argument that is not in the framework's table.
    """
    run = {"KUBECONFIG": str(laptop.kubeconfig), "TRAINJOB_RUN_ID": unique}
    given = {
        "method": "grpo",
        "workspace": str(tmp_path / "workspace"),
        "reward_functions": ["def score(completions, **kwargs):\n    return [1.0] * len(completions)"],
        "image": "busybox",
    }
    done, _ = run_component(embedded["fine_tune_trl"], tmp_path, given, **run)
    assert "model is not allowed; it must be the folder of a model with config.json" in done.stdout
    assert "The step failed:" in done.stdout
    done, _ = run_component(embedded["fine_tune_trl"], tmp_path, {**given, "arguments": {"logging_step": 1}}, **run)
    assert "arguments.logging_step: 1 is not allowed; TRL 1.16.0 grpo has no such argument" in done.stdout
    assert done.returncode == 2


@pytest.mark.timeout(120)
def test_an_embedded_component_runs_without_our_packages(embedded, laptop, cluster, tmp_path, unique):
    absent = subprocess.run([LAUNCHER / "bin" / "python3", "-c", "import trainjob"], capture_output=True, text=True)
    assert "No module named 'trainjob'" in absent.stderr
    arguments = {"image": "busybox", "command": ["echo", "hello"]}
    run = {"KUBECONFIG": str(laptop.kubeconfig), "TRAINJOB_RUN_ID": unique}
    done, outputs = run_component(embedded["train"], tmp_path, arguments, **run)
    assert done.returncode == 0, done.stdout
    assert "[node-0] hello" in done.stdout
    job = cluster.get_trainjob(outputs["job"], "default")
    assert derive_verdict(job).phase is Phase.COMPLETE
    assert outputs["uid"] == job["metadata"]["uid"]
    [unpacked] = tmp_path.glob("*/trainjob_kfp/launcher.py")
    assert unpacked.parents[1].stat().st_mode & 0o077 == 0
