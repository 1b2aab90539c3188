"""Tests that pages have the versions of lock files and Go modules, the tested Pythons, and all frameworks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.packaging.versions import PYTHONS
from trainjob.framework_modules import list_own_frameworks

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "versions.md").read_text()
REQUIREMENTS = (ROOT / "requirements", ROOT / "laptop" / "src" / "trainjob_local" / "requirements")
MODULES = ROOT / "tests" / "controlplane"
CONTROL_PLANE_FOLDERS = {"2.3": ".", "2.2": "versions/2.2", "2.1": "versions/2.1", "2.0": "versions/2.0"}


def go_module_version(folder, module):
    """Return the version of a Go module, without its v."""
    text = (MODULES / folder / "go.mod").read_text()
    return re.search(rf"^\s*{re.escape(module)} v(\S+)", text, re.MULTILINE)[1]


def locked_version(environment, project):
    """Return the version of a project in a lock file."""
    [path] = [path for folder in REQUIREMENTS if (path := folder / f"{environment}.txt").exists()]
    text = path.read_text()
    return re.search(rf"^{re.escape(project)}==(\S+)", text, re.MULTILINE)[1]


@pytest.mark.parametrize("trainer", CONTROL_PLANE_FOLDERS)
def test_each_control_plane_has_a_row(trainer):
    folder = CONTROL_PLANE_FOLDERS[trainer]
    jobset = f"{folder}/jobset" if trainer == "2.2" else folder
    trainer_version = go_module_version(folder, "github.com/kubeflow/trainer/v2")
    jobset_version = go_module_version(jobset, "sigs.k8s.io/jobset")
    assert f"| {trainer_version} | {jobset_version} |" in PAGE


def test_kubernetes_and_the_other_controllers_have_their_versions():
    kubernetes, etcd = go_module_version(".", "k8s.io/kubernetes"), go_module_version(".", "go.etcd.io/etcd/server/v3")
    assert f"kube-scheduler {kubernetes} with etcd {etcd}" in PAGE
    assert f"| Kueue | {go_module_version('versions/kueue', 'sigs.k8s.io/kueue')} |" in PAGE
    assert (
        f"Kubeflow Pipelines | {go_module_version('versions/argo', 'github.com/argoproj/argo-workflows/v4')} |" in PAGE
    )
    assert f"| TorchTune | {locked_version('torchtune', 'torchtune')} |" in PAGE


@pytest.mark.parametrize(
    ("environment", "project", "name"),
    [
        ("core", "kubernetes", "kubernetes"),
        ("core", "pydantic", "pydantic"),
        ("core", "uvicorn", "uvicorn"),
        ("airflow", "apache-airflow", "Airflow"),
        ("airflow", "apache-airflow-providers-cncf-kubernetes", "cncf.kubernetes"),
        ("kfp", "kfp", "kfp"),
        ("kfp", "kubernetes", "kubernetes"),
    ],
)
def test_the_libraries_have_their_locked_versions(environment, project, name):
    assert f"{name} {locked_version(environment, project)}" in PAGE


@pytest.mark.parametrize("environment", ["airflow", "airflow-3.2", "airflow-3.1"])
def test_each_airflow_has_a_row_with_its_locked_versions(environment):
    projects = ["apache-airflow", "apache-airflow-providers-cncf-kubernetes", "apache-airflow-providers-common-compat"]
    versions = " | ".join(locked_version(environment, project) for project in projects)
    assert f"| {versions} | `requirements/{environment}.txt` |" in PAGE


def test_the_lowest_versions_of_airflow_are_those_of_the_provider():
    text = (ROOT / "providers" / "airflow" / "pyproject.toml").read_text()
    airflow, kubernetes = (
        re.search(rf'"{project}>=(\S+)"', text)[1]
        for project in ("apache-airflow", "apache-airflow-providers-cncf-kubernetes")
    )
    assert f"| Airflow {airflow}, cncf.kubernetes {kubernetes} |" in PAGE


@pytest.mark.parametrize("folder", ["core", "laptop", "migrate", "demo", "providers/airflow", "components/kfp"])
def test_each_package_has_its_python_versions(folder):
    text = (ROOT / folder / "pyproject.toml").read_text()
    name, lowest = (
        re.search(rf'^{key} = "(?:>=)?(\S+)"', text, re.MULTILINE)[1] for key in ("name", "requires-python")
    )
    tested = re.findall(r"Python :: (3\.\d+)", text)
    assert f"| `{name}` | {lowest} to {tested[-1]} |" in PAGE
    assert tested == list(PYTHONS[PYTHONS.index(lowest) :])


@pytest.mark.parametrize("page", ["README.md", "providers/airflow/README.md", "docs/reference/airflow.md"])
def test_the_first_pages_about_airflow_have_the_python_versions_that_are_tested(page):
    assert f"Python 3.11 to {PYTHONS[-1]}" in (ROOT / page).read_text()


@pytest.mark.parametrize("folder", [".", "core", "providers/airflow", "components/kfp"])
def test_each_readme_names_all_training_frameworks(folder):
    text = (ROOT / folder / "README.md").read_text().replace("-", "").lower()
    assert [name for name in list_own_frameworks() if name not in text] == []
