"""Components that carry our sources: what is carried, that it is the same each time, and that it runs without us."""

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
from trainjob.minify import minify
from trainjob.status import Phase, derive_verdict
from trainjob_kfp import embedding, packaging

HERE = Path(__file__).resolve().parent
LONGEST_ARGUMENT = 131_072  # bytes; MAX_ARG_STRLEN of Linux, and Argo 4.0's MaxEnvVarLen for the template in a pod
SOURCES = [
    path
    for package in (trainjob, trainjob_kfp)
    for path in sorted(Path(package.__file__).parent.rglob("*.py"))
    if path.parent.name not in ("local", "cli")
]
EMBED_ENVIRONMENT = {"TRAINJOB_KFP_EMBED": "true", "TRAINJOB_KFP_IMAGE": "python-with-kfp"}


def compile_all(folder, **environment):
    """What golden.py writes in an interpreter of its own: the texts by name."""
    environment = {**os.environ, **environment}
    subprocess.run([sys.executable, HERE / "golden.py", folder], env=environment, check=True, timeout=120)
    return {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.yaml"))}


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    return compile_all(tmp_path_factory.mktemp("embedded"), **EMBED_ENVIRONMENT, PYTHONHASHSEED="1")


def packed_text(container):
    return re.search(r'^_unpack\("(.+)"\)$', container["command"][-1], re.MULTILINE)[1]


class DocstringStripper(ast.NodeTransformer):
    """The same cuts on the syntax tree, which has no comments and no lines."""

    def visit(self, node):
        self.generic_visit(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not self.is_removable(one)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return node

    def is_removable(self, node):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return text or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-3:]))
def test_cutting_leaves_the_program_as_it_is(path):
    text = path.read_text("utf-8")
    left = minify(text)
    assert ast.dump(ast.parse(left)) == ast.dump(DocstringStripper().visit(ast.parse(text)))
    assert not [one for one in tokenize.generate_tokens(StringIO(left).readline) if one.type == tokenize.COMMENT]


def test_what_looks_like_a_comment_stays_in_a_text():
    text = (
        'TEXT = """\n# not a comment\n\n"""\n\n\n'
        'def f(a: "int" = 1, *, ü: str = "ä") -> "x":  # gone\n    """Gone."""\n'
    )
    assert minify(text) == ('TEXT = """\n# not a comment\n\n"""\ndef f(a = 1, *, ü = "ä") :\n    pass\n')


def test_only_what_a_launcher_needs_is_carried():
    carried = embedding.collect_sources(trainjob_kfp.train.python_func)
    assert {"trainjob_kfp/launcher.py", "trainjob/lifecycle/submission.py", "trainjob/errors.py"} <= set(carried)
    left_out = (
        "trainjob_local/",
        "trainjob/cli/",
        "trainjob/programs/export/",
        "trainjob/lifecycle/external",
        "trainjob/frameworks/torchtune/recipes",
        "trainjob_kfp/comp",
    )
    assert not [path for path in carried if path.startswith(left_out)]
    assert "external" not in carried["trainjob/lifecycle/__init__.py"]


def test_a_component_carries_the_sources_that_its_step_sends_or_imports_by_name():
    exported = embedding.collect_sources(trainjob_kfp.export_model.python_func)
    assert {"trainjob/programs/export/__main__.py", "trainjob/programs/export/__init__.py"} <= set(exported)
    tuned = embedding.collect_sources(trainjob_kfp.fine_tune.python_func)
    torchtune = "trainjob/frameworks/torchtune"
    assert {f"{torchtune}/framework.py", f"{torchtune}/recipes.py", f"{torchtune}/pod/__main__.py"} <= set(tuned)


def test_an_import_that_leads_nowhere_is_refused():
    def component():
        from trainjob.lifecycle import nothing_of_this_name  # noqa: F401 - there is none

    with pytest.raises(ImportError, match="nothing_of_this_name"):
        embedding.build_unpacking_program(component)


@pytest.mark.slow
def test_the_same_sources_are_the_same_bytes(embedded, tmp_path):
    """A component's command is part of the cache key."""
    assert compile_all(tmp_path, **EMBED_ENVIRONMENT, PYTHONHASHSEED="2") == embedded


def test_sizes(embedded):
    for name, text in embedded.items():
        plain = (HERE / "golden" / f"{name}.yaml").stat().st_size
        packed = [len(packed_text(container)) for container in load_containers(text)]
        print(f"{name}: {plain:,} bytes of YAML, embedded {len(text):,}; packed sources {packed}")
        for container in load_containers(text):
            assert all(len(word.encode()) < LONGEST_ARGUMENT for word in (*container["command"], *container["args"]))


def test_nothing_on_the_way_touches_the_packed_sources(embedded):
    """Not YAML's quotes, `{{...}}` of KFP and Argo, $(NAME) of Kubernetes, nor the HTML escapes of Go's JSON."""
    for text in embedded.values():
        for container in load_containers(text):
            assert not set(packed_text(container)) & set("${}<>&\"'\\ \n\t")


def test_without_an_image_a_plain_python_installs_what_the_core_needs():
    code = (
        "import json, trainjob_kfp; made = trainjob_kfp.train.component_spec.implementation.container;"
        "print(json.dumps([made.image, made.command]))"
    )
    environment = {**os.environ, "TRAINJOB_KFP_EMBED": "true", "TRAINJOB_KFP_IMAGE": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True, timeout=60)
    image, command = json.loads(done.stdout)
    assert image == "python:3.12-slim"
    assert command[:2] == ["sh", "-c"]
    assert re.search(r"pip install .*'kfp==2\.\d+\.\d+' '--no-deps'", command[2])
    assert re.search(r"'kubernetes[<>=,\d]+' 'pydantic[<>=.\d]+' 'pyyaml[<>=.\d]+'", command[2])
    assert "trainjob" not in command[2]


def test_a_word_that_is_neither_yes_nor_no_is_refused(monkeypatch):
    monkeypatch.setenv("TRAINJOB_KFP_EMBED", "maybe")
    with pytest.raises(InvalidSpec, match="TRAINJOB_KFP_EMBED"):
        packaging.trainjob_component(trainjob_kfp.train.python_func)


@pytest.mark.timeout(120)
def test_it_runs_where_nothing_of_ours_is_installed(embedded, laptop, cluster, tmp_path, unique):
    absent = subprocess.run([LAUNCHER / "bin" / "python3", "-c", "import trainjob"], capture_output=True, text=True)
    assert "No module named 'trainjob'" in absent.stderr
    arguments = {"image": "busybox", "command": ["echo", "hello"]}
    run = {"KUBECONFIG": str(laptop.kubeconfig), "TRAINJOB_RUN_ID": unique}
    done, told = run_component(embedded["train"], tmp_path, arguments, **run)
    assert done.returncode == 0, done.stdout
    assert "[node-0] hello" in done.stdout
    job = cluster.get_trainjob(told["job"], "default")
    assert derive_verdict(job).phase is Phase.COMPLETE
    assert told["uid"] == job["metadata"]["uid"]
    [unpacked] = tmp_path.glob("*/trainjob_kfp/launcher.py")
    assert unpacked.parents[1].stat().st_mode & 0o077 == 0
