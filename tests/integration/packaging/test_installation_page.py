"""Commands of docs/how-to/installation.md, run as written in new environments, on a copy of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.integration.packaging.package_mirror import PackageMirror

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "how-to" / "installation.md"
UV = shutil.which("uv") or str(ROOT / ".venv" / "uv" / "bin" / "uv")
AIRFLOW = "3.3.2"
AFTER_THE_RELEASE = "After the first release"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def parse_sections():
    """Return the code blocks of each section: its heading, and pairs of language and text."""
    sections, heading = {}, ""
    tokens = MarkdownIt().parse(PAGE.read_text("utf-8"))
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline" and before.type == "heading_open":
            heading = token.content
        elif token.type == "fence":
            sections.setdefault(heading, []).append((token.info, token.content))
    return sections


SECTIONS = parse_sections()


def commands_of(text):
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


def shell_script(heading):
    return "\n".join(
        line for language, text in SECTIONS[heading] if language == "console" for line in commands_of(text)
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a copy of the files that git tracks or would track."""
    folder = tmp_path_factory.mktemp("checkout") / "trainjob"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    with PackageMirror(tmp_path_factory.mktemp("uploads")) as opened:
        yield opened


@pytest.fixture
def environment(tmp_path):
    """Return a new virtual environment with pip."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    return tmp_path / "venv"


@pytest.fixture
def run_script(checkout, tmp_path, environment):
    """Return a function that runs a shell script in the checkout, with an empty home folder."""
    home = tmp_path / "home"
    home.mkdir()
    caches = {"UV_CACHE_DIR": _cache("uv", "UV_CACHE_DIR"), "PIP_CACHE_DIR": _cache("pip", "PIP_CACHE_DIR")}
    folders = [environment / "bin", home / ".local" / "bin", Path(UV).parent, Path(sys.base_prefix) / "bin"]
    path = os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    credentials = {"TWINE_USERNAME": "user", "TWINE_PASSWORD": "password"}

    def run(script, **variables):
        everything = {**inherited, **caches, **credentials, "HOME": str(home), "PATH": path, **variables}
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=checkout, env=everything, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def _cache(name, variable):
    return os.environ.get(variable) or str(Path.home() / ".cache" / name)


@pytest.fixture
def airflow_environment(environment):
    """Install Airflow into the environment, without the Kubernetes provider."""
    subprocess.run([UV, "pip", "install", "-q", "--python", environment, f"apache-airflow=={AIRFLOW}"], check=True)
    return environment


def test_every_section_with_commands_has_a_test():
    assert set(SECTIONS) == {
        "The command and the laptop cluster",
        "The demo",
        "Airflow",
        "Kubeflow Pipelines",
        "Without access to a package index",
        "A private package index",
        AFTER_THE_RELEASE,
    }


@pytest.mark.parametrize(
    "heading",
    ["The command and the laptop cluster", "The demo", "Kubeflow Pipelines", "Without access to a package index"],
)
def test_commands_from_a_checkout(heading, run_script, checkout):
    run_script(shell_script(heading).replace("trainjob demo", "trainjob demo --help"))  # tests/e2e/demo runs it
    if heading == "The command and the laptop cluster":
        assert list((checkout / "core").glob("build*")) == []  # the checkout stays as it is


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the provider needs Python 3.11")
def test_airflow_keeps_its_version_and_its_image_has_the_wheels(run_script, airflow_environment):
    found = run_script(f"{shell_script('Airflow')}\nairflow version\npip check", AIRFLOW_HOME=str(airflow_environment))
    assert "airflow-provider-trainjob" in found
    assert AIRFLOW in found.split()
    [containerfile] = [text for language, text in SECTIONS["Airflow"] if language == "dockerfile"]
    image, run = containerfile.replace("\\\n", " ").splitlines()
    assert image == f"FROM docker.io/apache/airflow:{AIRFLOW}"
    [mount] = re.findall(r"--mount=type=bind,source=(\S+),target=/(\S+)", run)
    assert mount == ("wheels", "wheels")
    command = re.sub(r"^RUN --mount=\S+", "", run).replace("/wheels/", "wheels/")
    uninstall = "pip uninstall -q -y trainjob airflow-provider-trainjob"
    run_script(f"{uninstall}\n{command}\npip show -q airflow-provider-trainjob\npip check", AIRFLOW_VERSION=AIRFLOW)


def test_a_private_index_serves_what_was_uploaded(run_script, mirror):
    script = shell_script("A private package index").replace("https://pypi.example.org", mirror.url)
    run_script(f"{script}\ntrainjob --help\npip check")
    assert len(list(mirror.folder.glob("*.whl"))) == 6


def test_commands_after_the_release_install_from_an_index(run_script, checkout, mirror):
    wheels = f"pip wheel -q --no-deps --wheel-dir {mirror.folder}"
    run_script(f"{wheels} ./core ./laptop ./demo ./migrate ./providers/airflow ./components/kfp")
    command, demo, _, author = [text for language, text in SECTIONS[AFTER_THE_RELEASE] if language == "console"]
    for text in (command, demo):
        run_script("\n".join(commands_of(text)), PIP_INDEX_URL=f"{mirror.url}/simple")
    new_environment = f"python3 -m venv {mirror.folder}/kfp\n. {mirror.folder}/kfp/bin/activate"
    run_script("\n".join([new_environment, *commands_of(author), "pip check"]), PIP_INDEX_URL=f"{mirror.url}/simple")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the provider needs Python 3.11")
@pytest.mark.usefixtures("airflow_environment")
def test_the_provider_after_the_release(run_script, mirror):
    run_script(f"pip wheel -q --no-deps --wheel-dir {mirror.folder} ./core ./providers/airflow")
    text = SECTIONS[AFTER_THE_RELEASE][2][1]
    run_script("\n".join([*commands_of(text), "pip check"]), PIP_INDEX_URL=f"{mirror.url}/simple")
