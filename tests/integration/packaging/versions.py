"""Run the quick tests of each distribution on every promised Python, and with the lowest promised dependencies.

`make versions` calls it. A Python that is not installed is reported as skipped; any failure makes the exit code 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tomllib

from tests.support.uv import UV, find_python

ROOT = Path(__file__).resolve().parents[3]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
KFP_TESTS = sorted((ROOT / "tests" / "integration" / "kfp").glob("test_*.py"))
PYTEST_TOOLS = ("hypothesis", "pytest", "pytest-rerunfailures", "pytest-timeout", "pytest-xdist")


@dataclass(frozen=True)
class Distribution:
    """Distributions that are tested in one environment, with their requirements and tests."""

    name: str
    folders: tuple[str, ...]
    editable: tuple[str, ...]
    test_requirements: tuple[str, ...]
    tests: tuple[str, ...]
    slow_tests: tuple[str, ...] = ()
    lowest_options: tuple[str, ...] = ()


DISTRIBUTIONS = (
    Distribution(
        "core",
        ("core", "laptop", "migrate", "demo"),
        ("./core[local,cli]", "./laptop", "./migrate", "./demo"),
        ("hatchling", "jsonschema", "kubeflow-trainer-api==2.3.0"),
        (
            "unit",
            "integration/lifecycle/test_life.py",
            "integration/local/test_cluster_jobs.py",
            "integration/cli/test_command.py",
        ),
        ("integration/cli/test_logs_command.py", "integration/cli/test_run.py"),  # the oldest rich fails these
    ),
    Distribution(
        "airflow",
        ("providers/airflow",),
        ("./core[local]", "./laptop", "./providers/airflow"),
        ("apache-airflow-providers-openlineage", "apache-airflow-providers-standard", "statsd"),
        ("integration/airflow",),
        # Two days after the release of Airflow 3.1.2, because kubernetes 32 fails with urllib3 2.6. uv is younger.
        lowest_options=("--exclude-newer", "2025-11-08", "--exclude-newer-package", "uv=2025-12-01"),
    ),
    Distribution(
        "kfp",
        ("components/kfp",),
        ("./core[local,cli]", "./laptop", "./demo", "./components/kfp[author]"),
        ("kubeflow==0.5.0", "kubeflow-trainer-api==2.3.0"),
        # Not test_image.py: it compares the launcher's environment, which is of one Python.
        tuple(path.relative_to(ROOT / "tests").as_posix() for path in KFP_TESTS if path.name != "test_image.py"),
    ),
)


def promised_pythons(folder: str) -> list[str]:
    """Return the Python versions of a distribution's classifiers, lowest first."""
    text = (ROOT / folder / "pyproject.toml").read_text("utf-8")
    classifiers = tomllib.loads(text)["project"]["classifiers"]
    return [version for version in PYTHONS if f"Programming Language :: Python :: {version}" in classifiers]


class Environments:
    """Environments below .venv/, which uv creates, and their tests."""

    def create_locked(self, distribution: Distribution, version: str, python: str) -> Path:
        """Return an environment with the versions of the lock file."""
        folder = self._create(f"py{version}-{distribution.name}", python)
        self._run("pip", "sync", "--python", str(folder), f"requirements/{distribution.name}.txt")
        return folder

    def create_lowest(self, distribution: Distribution, python: str) -> Path:
        """Return an environment with the lowest direct dependencies that the distribution allows."""
        folder = self._create(f"lowest-{distribution.name}", python)
        # Resolved alone, because pytest and its plugins do not have to be the lowest. Not locked: indirect dependencies
        # have the newest versions that the distribution's options allow, as for a user who pins only our dependencies.
        direct, resolved = folder / "lowest.in", folder / "lowest.txt"
        direct.write_text("\n".join(f"-e {path}" for path in distribution.editable), "utf-8")
        self._run(
            *("pip", "compile", "--resolution", "lowest-direct", "--python", str(folder), *distribution.lowest_options),
            *("--no-header", "--no-annotate", "-o", str(resolved), str(direct)),
        )
        requirements = (*PYTEST_TOOLS, *distribution.test_requirements)
        self._run(
            *("pip", "install", "--exact", "--python", str(folder), *distribution.lowest_options),
            *("-r", str(resolved), *requirements),
        )
        return folder

    def run_tests(self, distribution: Distribution, folder: Path) -> bool:
        """Run the distribution's quick tests and return whether all passed."""
        selections = [("not slow", distribution.tests), ("slow", distribution.slow_tests)]
        return all(self._pytest(folder, mark, tests) for mark, tests in selections if tests)

    def _pytest(self, folder: Path, mark: str, tests: tuple[str, ...]) -> bool:
        options = ("-q", "-n", "2", "-m", mark, "--hypothesis-profile", "quick", "-p", "no:cacheprovider")
        paths = [f"tests/{path}" for path in tests]
        return subprocess.run([folder / "bin" / "pytest", *options, *paths], cwd=ROOT).returncode == 0

    def _create(self, name: str, python: str) -> Path:
        folder = ROOT / ".venv" / name
        self._run("venv", "--allow-existing", "--python", python, str(folder))
        return folder

    def _run(self, *arguments: str) -> None:
        subprocess.run([UV, "-q", *arguments], cwd=ROOT, check=True)


def run_combinations(
    environments: Environments, distributions: list[Distribution], selected: list[str]
) -> dict[str, str]:
    """Run the tests of all combinations and return the result of each by its name."""
    results: dict[str, str] = {}
    for distribution in distributions:
        versions = promised_pythons(distribution.folders[0])
        for label in [*versions, "lowest"]:
            if label not in selected:
                continue
            name = f"{distribution.name} {label}"
            version = versions[0] if label == "lowest" else label
            python = find_python(version)
            if python is None:
                results[name] = f"skipped: Python {version} is not installed"
                continue
            print(f"== {name}: {python}", flush=True)
            try:
                if label == "lowest":
                    folder = environments.create_lowest(distribution, python)
                else:
                    folder = environments.create_locked(distribution, label, python)
                passed = environments.run_tests(distribution, folder)
            except subprocess.CalledProcessError as error:
                results[name] = f"FAILED: {error}"
            else:
                results[name] = "passed" if passed else "FAILED"
    return results


def main() -> int:
    """Run the selected tests, print one line for each combination, and return the exit code."""
    names = [distribution.name for distribution in DISTRIBUTIONS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--distribution", choices=names, nargs="+", default=names)
    labels = [*PYTHONS, "lowest"]
    parser.add_argument("--with", choices=labels, nargs="+", default=labels, dest="selected")
    options = parser.parse_args()
    distributions = [each for each in DISTRIBUTIONS if each.name in options.distribution]
    results = run_combinations(Environments(), distributions, options.selected)
    for name, result in results.items():
        print(f"{name:16} {result}")
    return int(any(result.startswith("FAILED") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
