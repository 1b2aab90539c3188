"""Code blocks of README.md and docs/, run as written; the blocks of each engine have tests in its own folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import tomllib
import typer
import yaml
from kubernetes import config as configuration
from kubernetes.dynamic import DynamicClient
from typer.main import get_command
from typer.testing import CliRunner

from tests.support.code_blocks import (
    ALL_BLOCKS,
    PAGES,
    ROOT,
    RUNNABLE_BLOCKS,
    inline_code,
    python_blocks,
    write_project,
)
from tests.support.page_commands import parse_commands
from tests.support.page_runs import BLOCKS_OF_OTHER_TESTS, PAGES_OF_OTHER_TESTS
from trainjob.cli.application import application

# `dockerfile` blocks are run by tests/integration/packaging/test_installation_page.py; `mermaid` blocks are diagrams.
LANGUAGES = {"python", "yaml", "json", "toml", "console", "text", "dockerfile", "mermaid"}
# Kinds of the laptop cluster.
OBJECTS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTrainingRuntime",
    "ConfigMap",
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Role",
    "RoleBinding",
    "Secret",
    "ServiceAccount",
    "StorageClass",
    "TrainingRuntime",
}
OLD_JOBS = {"JAXJob", "MPIJob", "PyTorchJob", "XGBoostJob"}
TRAINJOB = (sys.executable, "-m", "trainjob")
# The tests of these pages apply them on a control plane with Kueue.
KINDS_OF_OTHER_TESTS = dict.fromkeys(
    ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology", "WorkloadPriorityClass"),
    "tests/e2e/controlplane/test_queues_page.py",
)
# Titles of blocks that other tests check: tests/integration/airflow/test_pages.py, tests/integration/evaluation, and
# tests/e2e/controlplane/test_promotion.py.
OTHER_FILES = ("values.yaml", "tasks/tickets.yaml", "service.yaml")
SLOW_ON_CLUSTER = "docs/how-to/from-kubeflow-sdk.md"  # it trains with TorchTune, as README.md's does
RUN_ON_CLUSTER = [block for block in python_blocks("core") if "connect()" in block.text]
RUN_HERE = [
    block for block in python_blocks("core") if block not in RUN_ON_CLUSTER and block.title not in BLOCKS_OF_OTHER_TESTS
]
PIP_OPTIONS_WITH_VALUE = {"--wheel-dir", "--find-links", "--index-url"}
PIP_DOWNLOAD_OPTIONS = {"--require-hashes", "--no-deps", "--only-binary", "--dest", "-r"}
PROJECTS = {
    path.parent.relative_to(ROOT).as_posix(): tomllib.loads(path.read_text("utf-8"))["project"]
    for pattern in ("*/pyproject.toml", "*/*/pyproject.toml")
    for path in ROOT.glob(pattern)
    if not path.parent.parent.name.startswith(".")
}
FOLDERS = {folder: project["name"] for folder, project in PROJECTS.items()}
DISTRIBUTIONS = {project["name"]: set(project.get("optional-dependencies", {})) for project in PROJECTS.values()}
MAKE_TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def blocks_of_language(language):
    return pytest.mark.parametrize("block", [block for block in RUNNABLE_BLOCKS if block.language == language], ids=str)


def test_each_language_has_a_test():
    """A block of a new language needs a test that runs it; `text` is output."""
    assert {block.language for block in ALL_BLOCKS} <= LANGUAGES


@pytest.mark.parametrize("block", RUN_HERE, ids=str)
def test_python_blocks_run(block, tmp_path):
    run_python(block, tmp_path)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=str(block), marks=pytest.mark.slow if block.page == SLOW_ON_CLUSTER else ())
        for block in RUN_ON_CLUSTER
    ],
)
@pytest.mark.torchtune
@pytest.mark.usefixtures("torchrun_lock")
def test_python_blocks_run_on_a_cluster(block, laptop, tmp_path):
    run_python(block, tmp_path, KUBECONFIG=str(laptop.kubeconfig))


def run_python(block, folder, **variables):
    path = folder / "block.py"  # a file, because the source of a function is read from it
    path.write_text(block.text, "utf-8")
    environment = {**os.environ, **variables}
    command = ["-m", "pytest", "-p", "no:cacheprovider"] if "\ndef test_" in block.text else []
    done = subprocess.run([sys.executable, *command, path], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@blocks_of_language("json")
def test_json_blocks_are_valid(block):
    json.loads(block.text)


@blocks_of_language("yaml")
def test_yaml_blocks_are_accepted(block, tmp_path, request):
    documents = [one for one in yaml.safe_load_all(block.text) if one]
    if block.title in OTHER_FILES:
        return
    kinds = {one.get("kind", "") for one in documents}
    if kinds & {"", "TrainJob"}:
        check_steps(block, documents, tmp_path)
    elif kinds <= OLD_JOBS:
        subprocess.run([*TRAINJOB, "migrate", "convert", write_block(block, tmp_path)], check=True)
    elif "Kustomization" in kinds:
        check_kustomization(*documents)
    elif kinds <= OBJECTS:
        for document in documents:
            create_for_a_moment(request.getfixturevalue("laptop"), document)
    else:
        assert kinds <= KINDS_OF_OTHER_TESTS.keys(), f"no test knows {sorted(kinds)}: add them to a table of this file"
        assert {KINDS_OF_OTHER_TESTS[kind] for kind in kinds} == {PAGES_OF_OTHER_TESTS[block.page]}


def write_block(block, folder):
    write_project(block.page, folder)
    path = folder / "block.yaml"
    path.write_text(block.text, "utf-8")
    return path


def check_steps(block, documents, folder):
    """Check that `trainjob submit -o yaml` accepts the steps and the TrainJobs."""
    arguments = ["submit", str(write_block(block, folder)), "--output", "yaml", "--dialect", "2.2"]
    done = CliRunner().invoke(application(), arguments)
    assert done.exit_code == 0, done.output
    printed = [document["kind"] for document in yaml.safe_load_all(done.stdout)]
    assert len(printed) - printed.count("ConfigMap") == len(documents)  # a ConfigMap has a project's code


def check_kustomization(document):
    """Check that the folders exist in this repository, or in a copy named `trainjob`.

    The test of a page's commands applies those that the page writes to a file.
    """
    for path in document.get("resources", ()):
        folder = ROOT / re.sub(r"^(?:trainjob/|\.\./)*", "", path)
        written = any(block.title.rpartition("/")[2] == path.rpartition("/")[2] for block in ALL_BLOCKS)
        assert folder.exists() or written or path.startswith("https://"), path


def create_for_a_moment(laptop, document):
    """Create an object on the laptop cluster, which refuses unknown fields, and delete it."""
    with configuration.new_client_from_config(str(laptop.kubeconfig)) as api:
        resource = DynamicClient(api).resources.get(api_version=document["apiVersion"], kind=document["kind"])
        place = {"namespace": "default"} if resource.namespaced else {}
        body = {**document, "metadata": {**document["metadata"], **place}}
        resource.create(body, field_validation="Strict", **place)
        resource.delete(name=document["metadata"]["name"], **place)


_REDIRECTION = re.compile(r"\d?[<>]{1,2}(?:&\d|\s*\S+)")


_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")


def split_commands(text):
    """Return the commands of a shell line, as words.

    One word replaces the output of a command.
    """
    text = _REDIRECTION.sub("", text)
    text = "; ".join([_SUBSTITUTION.sub("OUTPUT", text), *_SUBSTITUTION.findall(text)])
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&()")
    lexer.whitespace_split = True
    commands = [[]]
    for word in lexer:
        if set(word) <= set(";|&()"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def check_trainjob(arguments):
    """Parse the words of a `trainjob` command, without running it."""
    command, context, name = get_command(application()), None, "trainjob"
    try:
        while True:
            context = command.make_context(name, list(arguments), parent=context)
            if not hasattr(command, "resolve_command"):
                return
            name, command, arguments = command.resolve_command(context, context._protected_args + context.args)
    except typer.Exit:  # --help
        return


def check_make(arguments):
    assert set(arguments) <= MAKE_TARGETS


def check_kubectl(arguments):
    if "-k" in arguments and "https://" not in arguments[arguments.index("-k") + 1]:
        path = f"{arguments[arguments.index('-k') + 1]}/kustomization.yaml"
        assert (ROOT / path).is_file() or any(block.title == path for block in ALL_BLOCKS)


def check_pip(arguments):
    command, *arguments = arguments
    if command == "download":
        assert {word for word in arguments if word.startswith("-")} <= PIP_DOWNLOAD_OPTIONS
        return
    assert command in ("install", "wheel")
    for requirement in requirements_of(arguments):
        if requirement.endswith(".whl"):
            continue
        if not requirement.startswith((".", *DISTRIBUTIONS)):
            assert requirement.startswith(("apache-airflow==", "twine")), requirement
            continue
        name, _, extras = requirement.rstrip("]").partition("[")
        name = FOLDERS.get(name.removeprefix("./"), name)
        assert set(filter(None, extras.split(","))) <= DISTRIBUTIONS[name]


def requirements_of(arguments):
    """Return the arguments of pip or uv that are no options, and no values of options."""
    found, options = [], iter(arguments)
    for word in options:
        if word in PIP_OPTIONS_WITH_VALUE:
            next(options)
        elif word != "--with" and not word.startswith("-"):
            found.append(word)
        else:
            assert word in ("--with", "--no-deps", "--no-index"), word
    return found


def check_uv(arguments):
    assert arguments[:2] in (["tool", "install"], ["pip", "install"])
    check_pip(arguments[1:])


def check_container_engine(arguments):
    """Check the file and the folder of a build; no test has a container engine."""
    command, *rest = arguments
    assert command in ("build", "push")
    if command == "build":
        assert (ROOT / rest[rest.index("-f") + 1]).is_file()
        assert rest[-1] == "."


def check_pytest(arguments):
    paths = [word for word in arguments if word.startswith("tests/")]
    assert paths
    assert all((ROOT / path).exists() for path in paths)


CHECKS = {
    "trainjob": check_trainjob,
    "make": check_make,
    "kubectl": check_kubectl,
    "pip": check_pip,
    "uv": check_uv,
    "podman": check_container_engine,
    **{f".venv/{engine}/bin/pytest": check_pytest for engine in ("core", "airflow", "kfp")},
}


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "console"], ids=str)
def test_commands_of_console_blocks_exist(block):
    """Other tests run them; this one finds wrong names and options first, also in blocks that nothing can run."""
    commands = list(parse_commands(block))
    assert commands
    for command in commands:
        for program, *arguments in split_commands(command.text):
            check_arguments = CHECKS.get(program)
            if check_arguments:
                check_arguments(arguments)


INLINE_COMMANDS = [
    pytest.param(span, id=f"{path.relative_to(ROOT)}: {span}")
    for path in PAGES
    for span in inline_code(path.read_text("utf-8"))
    if re.match(r"trainjob [a-z]+ ", span)
]


@pytest.mark.parametrize("span", INLINE_COMMANDS)
def test_commands_in_running_text_exist(span):
    """A command that is only named has no arguments."""
    for program, *arguments in split_commands(span):
        try:
            CHECKS[program](arguments)
        except Exception as error:  # typer's copies of click's classes have no public name
            if type(error).__name__ not in ("MissingParameter", "BadOptionUsage"):
                raise


@pytest.mark.parametrize("arguments", [["sweeep"], ["sweep", "--finished"], ["migrate", "reprot", "jobs/"]])
def test_the_check_finds_unknown_commands_and_options(arguments):
    with pytest.raises(Exception, match="No such"):
        check_trainjob(arguments)


INSTALLATION_PAGE = "docs/how-to/installation.md"
# A distribution of this project by its name, not by its folder.
INDEX_INSTALLATION = re.compile(
    rf"(?:pip|uv tool) install[^`\n]*[\s'\"](?:{'|'.join(DISTRIBUTIONS)})(?=[\[\s'\"`=\\]|$)", re.MULTILINE
)
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder / "src").rglob("*.py"))


def test_unpublished_distributions_are_not_installed_from_the_public_index():
    """Only the section "After the first release" may do so, until then."""
    found = {path.relative_to(ROOT).as_posix(): find_index_installations(path) for path in (*PAGES, *SOURCES)}
    assert {path: lines for path, lines in found.items() if lines} == {}


def find_index_installations(path):
    text = path.read_text("utf-8")
    if path == ROOT / INSTALLATION_PAGE:
        text, heading, _ = text.partition("\n## After the first release\n")
        assert heading
    found = [match[0] for match in INDEX_INSTALLATION.finditer(text)]
    return [line for line in found if "--index-url" not in line and "--no-index" not in line]
